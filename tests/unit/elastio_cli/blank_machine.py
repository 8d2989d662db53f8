"""A machine with a blank volume: a recorded tree, and programs that change it as the real ones do."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from elastio.errors import HostError
from elastio_setup.fstab import entries

from .conftest import VOLUME_SERIAL
from .machine import UUID, backing, lay

FILESYSTEM_UUID = "6d0c4a57-9d55-4f3a-8b1c-2d3e0b6f4c1e"
READING = ("wipefs", "modprobe", "systemctl is-enabled", "systemctl is-active")
SIZE_SECTORS = 2097152


@dataclass
class BlankMachine:
    """`failing`: the programs that fail, by their first words. `on_start`: what starting the unit does.

    `adaptive`: the next bcache device of the kernel.
    """

    folder: Path
    ran: list[str] = field(default_factory=list)
    made_on: list[str] = field(default_factory=list)
    failing: set[str] = field(default_factory=set)
    signatures: dict[str, list[dict[str, str]]] = field(default_factory=dict)
    is_enabled: bool = False
    on_start: Callable[[], None] = lambda: None
    adaptive: str = "bcache0"

    def __post_init__(self) -> None:
        self.device.touch()
        os.truncate(self.device, SIZE_SECTORS * 512)
        tools = {f"usr__sbin__{t}": "" for t in ("make-bcache", "wipefs", "blkid", "modprobe", "mkfs.ext4", "mkfs.xfs")}
        names = ("69-bcache.rules", "60-elastio.rules", "61-elastio-guard.rules")
        rules = {f"usr__lib__udev__rules.d__{name}": "" for name in names}
        lay(
            self.root,
            proc__sys__kernel__osrelease="6.1.0-42-amd64",
            proc__sys__kernel__version="#1 SMP Debian 6.1.192-2 (2026-08-01)",
            proc__self__mountinfo="20 1 8:1 / / rw - ext4 /dev/vda1 rw\n",
            etc__fstab="UUID=0000-0001 / ext4 errors=remount-ro 0 1\n",
            sys__class__block__vdz__size=str(SIZE_SECTORS),
            sys__class__block__vdz__queue__logical_block_size="512",
            sys__block__vdz__serial=VOLUME_SERIAL,
            sys__fs__bcache__register_quiet="",
            **{"sys__fs__cgroup__cgroup.controllers": "cpu io", "usr__lib__systemd__system__elastiod.service": ""},
            **tools,
            **rules,
        )

    @property
    def root(self) -> Path:
        return self.folder / "root"

    @property
    def device(self) -> Path:
        return self.folder / "vdz"

    @property
    def place(self) -> Path:
        return self.folder / "data"

    @property
    def fstab(self) -> str:
        return (self.root / "etc/fstab").read_text()

    @property
    def changes(self) -> list[str]:
        """The programs that were run and that change something, by their first two words."""
        return [words for words in self.ran if not words.startswith(READING)]

    def __call__(self, argv: Sequence[str], *, timeout_s: float) -> str:
        words = " ".join(argv[:2])
        self.ran.append(words if argv[0] == "systemctl" else argv[0])
        if self.failing & {argv[0], words}:
            raise HostError(f"`{words}` failed (1): no", code="program.failed")
        known: dict[str, Callable[[Sequence[str]], str]] = {
            "wipefs": self._wipefs,
            "modprobe": lambda _: "options bcache bch_cutoff_writeback=70 bch_cutoff_writeback_sync=70\n",
            "make-bcache": self._make_bcache,
            "mkfs.ext4": self._mkfs,
            "mkfs.xfs": self._mkfs,
            "udevadm": lambda _: "",
            "mount": self._mount,
            "systemctl": self._systemctl,
        }
        return known[argv[0]](argv)

    def _wipefs(self, argv: Sequence[str]) -> str:
        return json.dumps({"signatures": self.signatures.get(Path(argv[-1]).name, [])})

    def _make_bcache(self, argv: Sequence[str]) -> str:
        assert argv[-1] == str(self.device)
        for old in (self.root / "sys/class/block/vdz", self.root / "sys/block/vdz"):
            shutil.rmtree(old)
        backing(self.root, "vdz", adaptive=self.adaptive)
        lay(
            self.root,
            sys__block__vdz__serial=VOLUME_SERIAL,
            **{f"sys__class__block__{self.adaptive}__size": str(SIZE_SECTORS), f"dev__{self.adaptive}": ""},
        )
        os.truncate(self.root / "dev" / self.adaptive, SIZE_SECTORS * 512)
        self.signatures["vdz"] = [{"type": "bcache", "uuid": UUID}]
        return f"UUID:\t\t\t{UUID}\n"

    def _mkfs(self, argv: Sequence[str]) -> str:
        kind = argv[0].removeprefix("mkfs.")
        self.made_on.append(argv[-1])
        self.signatures[Path(argv[-1]).name] = [{"type": kind, "uuid": FILESYSTEM_UUID}]
        return ""

    def _mount(self, argv: Sequence[str]) -> str:
        (entry,) = (entry for entry in entries(self.fstab) if entry.place == argv[1])
        assert entry.is_of(FILESYSTEM_UUID, self.adaptive)
        with (self.root / "proc/self/mountinfo").open("a") as mounts:
            number = (self.root / "sys/block" / self.adaptive / "dev").read_text()
            mounts.write(f"36 20 {number} / {argv[1]} rw - {entry.kind} /dev/{self.adaptive} rw\n")
        return ""

    def _systemctl(self, argv: Sequence[str]) -> str:
        if argv[1] in ("is-enabled", "is-active") and not self.is_enabled:
            raise HostError(f"`systemctl {argv[1]}` failed (3): inactive", code="program.failed")
        if argv[1] == "enable":
            self.is_enabled = True
            self.on_start()
        return ""
