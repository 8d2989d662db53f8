"""A machine with an ext4 on vdb and a blank vdh: a recorded tree, and programs that change it as the real ones do."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from random import Random

from elastio.config.paths import ADOPTED, AT_BOOT, NOT_NOW
from elastio.errors import HostError
from elastio.host.commands import run
from elastio.host.heads import CONTENT_SECTOR, DATA_OFFSET_SECTORS, LEAST_BYTES
from elastio.host.tombstone import INTRODUCTION
from elastio.units import MIB, SECTOR
from elastio_setup import at_boot
from elastio_setup.adopt import Adopter
from elastio_setup.adopt_contents import PROGRAMS
from elastio_setup.adopt_plan import RULES_FILE, UNIT, AdoptPlan, plan
from tests.fixtures.device_mapper import MappedSysfs

UUID = "6d0c4a57-9d55-4f3a-8b1c-2d3e0b6f4c1e"
VOLUME_BYTES = 2 * MIB
# What is on a volume. Always the same: a test that changes a byte changes it.
NOISE = Random(5).randbytes(64)
ROOT = "22 1 254:1 / / rw - ext4 /dev/vda1 rw\n"


class PowerCutError(BaseException):
    """Nothing handles it: neither programs nor the command itself get a chance."""


@dataclass
class AdoptMachine:
    """`found`: what blkid shows of a device. `failing`: programs that fail. `cut_at`: the change that is not made.

    `waits`: the cache is missing when the composed device is registered.
    """

    root: Path
    found: dict[str, dict[str, str]] = field(default_factory=lambda: {"vdb": {"TYPE": "ext4", "UUID": UUID}})
    signatures: dict[str, list[dict[str, str]]] = field(default_factory=dict)
    failing: set[str] = field(default_factory=set)
    ran: list[list[str]] = field(default_factory=list)
    dump: str = "Filesystem features: has_journal extent"
    changes: int = 0
    slept: list[float] = field(default_factory=list)
    cut_at: int = -1
    waits: bool = False
    device, number = "vdb", "240:16"
    head_device, head_number, head_sector = "vdh", "240:32", 0

    def __post_init__(self) -> None:
        self.sysfs = MappedSysfs(self.root)
        self.disk("vdb", 16, "volume0123456789abcd", NOISE * (VOLUME_BYTES // 64))
        self.disk("vdh", 32, "head0123456789abcdef", b"")
        self.resize("vdh", LEAST_BYTES)
        self.lay("proc/self/mountinfo", ROOT)
        self.place.mkdir()
        self.lay("etc/fstab", f"UUID={UUID} {self.place} ext4 defaults,nofail 0 2\n")
        self.lay("sys/fs/bcache/register_quiet", "")
        self.lay("proc/sys/kernel/osrelease", "6.1.0-42-amd64")
        self.lay("proc/sys/kernel/version", "#1 SMP Debian 6.1.192-2 (2026-08-01)")
        for program in ("dmsetup", *chain(*PROGRAMS.values())):
            self.lay(f"usr/sbin/{program}", "")
        self.lay(f"usr/lib/udev/rules.d/{RULES_FILE}", "")
        self.lay(f"usr/lib/systemd/system/{UNIT}", "")
        self.before = self.sysfs.path("dev/vdb").read_bytes()

    def disk(self, name: str, minor: int, serial: str, content: bytes) -> None:
        for file, text in (("dev", f"240:{minor}"), ("size", str(len(content) // SECTOR)), ("serial", serial)):
            self.lay(f"sys/block/{name}/{file}", text)
        self.lay(f"sys/block/{name}/queue/logical_block_size", "512")
        self.lay(f"sys/block/{name}/ro", "0")
        self.link(f"sys/class/block/{name}", f"../../block/{name}")
        self.link(f"sys/dev/block/240:{minor}", f"../../block/{name}")
        node = self.sysfs.path(f"dev/{name}")
        node.parent.mkdir(exist_ok=True)
        node.write_bytes(content)

    def resize(self, name: str, length: int) -> None:
        """The cloud enlarges it: with zeros."""
        os.truncate(self.sysfs.path(f"dev/{name}"), length)
        self.lay(f"sys/block/{name}/size", str(length // SECTOR))

    def lay(self, name: str, text: str) -> None:
        path = self.sysfs.path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def link(self, name: str, target: str) -> None:
        path = self.sysfs.path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(target)

    @property
    def place(self) -> Path:
        return self.root / "data"

    # --- what tests look at --------------------------------------------------------------------------------

    @property
    def volume(self) -> bytes:
        return self.sysfs.path(f"dev/{self.device}").read_bytes()

    @property
    def head(self) -> bytes:
        return self.sysfs.path(f"dev/{self.head_device}").read_bytes()

    @property
    def is_composed(self) -> bool:
        return self.sysfs.exists("sys/block/dm-0/bcache/dev")

    @property
    def records(self) -> list[str]:
        return [json.loads(path.read_text())["step"] for path in self.sysfs.path("etc/elastio/adopted").glob("*")]

    @property
    def is_mounted(self) -> bool:
        return str(self.place) in self.sysfs.read("proc/self/mountinfo")

    @property
    def is_as_before(self) -> bool:
        return (self.volume, self.head, self.records, self.is_composed) == (self.before, bytes(LEAST_BYTES), [], False)

    # --- what it does --------------------------------------------------------------------------------------

    def mount(self, number: str = "") -> None:
        source = f"{number or self.number} / {self.place} rw - ext4 /dev/{self.device}"
        self.lay("proc/self/mountinfo", f"{ROOT}36 22 {source} rw\n")

    def adopter(self) -> Adopter:
        return Adopter(self.sysfs, self.run, self.wait, self.slept.append)

    def plan(self, target: str = "dev/vdb", head: str | None = "dev/vdh") -> AdoptPlan:
        return plan(self.sysfs.path(target), self.sysfs.path(head) if head else None, self.sysfs, self.run)

    def change(self) -> None:
        """One step that changes something: the power may be cut before it."""
        if self.changes == self.cut_at:
            raise PowerCutError
        self.changes += 1

    def spoil(self) -> None:
        """The composed device shows another last byte."""
        with self.sysfs.path("dev/dm-0").open("r+b") as file:
            file.seek(-1, os.SEEK_END)
            file.write(b"?")

    def boot(self) -> None:
        """What only the kernel knew is gone, and the unit runs."""
        self.power_off()
        self.run_unit()

    def run_unit(self) -> None:
        at_boot.assemble(self.adopter(), UUID)

    def power_off(self) -> None:
        self.cut_at = -1
        self.sysfs.forget()
        for name in ("dm-0", "bcache0"):
            shutil.rmtree(self.sysfs.path(f"sys/block/{name}"), ignore_errors=True)
            self.sysfs.path(f"sys/class/block/{name}").unlink(missing_ok=True)
        self.lay("proc/self/mountinfo", ROOT)
        shutil.rmtree(self.sysfs.path(NOT_NOW), ignore_errors=True)

    @property
    def is_hidden(self) -> bool:
        """By 59-elastio-adopted.rules."""
        is_asked = self.sysfs.exists(f"{AT_BOOT}/{UUID}") and not self.sysfs.exists(f"{NOT_NOW}/{UUID}")
        return is_asked or self.sysfs.exists(f"{ADOPTED}/{UUID}")

    def wait(self, condition: Callable[[], bool], seconds: float) -> bool:
        """The kernel does what was written to /sys."""
        directory = "sys/block/dm-0/bcache"
        if self.sysfs.read("sys/fs/bcache/register_quiet") and self.sysfs.exists("sys/block/dm-0"):
            self.change()
            self.lay("sys/fs/bcache/register_quiet", "")
            self.lay(f"{directory}/state", "dirty" if self.waits else "no cache")
            self.lay(f"{directory}/stop", "")
            if not self.waits:
                self.run_adaptive()
        if self.sysfs.read_or(f"{directory}/stop", ""):
            assert self.sysfs.read("sys/block/dm-0/dm/suspended") == "0", "it would wait"
            self.change()
            shutil.rmtree(self.sysfs.path(directory))
            shutil.rmtree(self.sysfs.path("sys/block/bcache0"))
        return condition()

    def run_adaptive(self) -> None:
        self.link("sys/block/dm-0/bcache/dev", "../../bcache0")
        self.lay("sys/block/bcache0/dev", "252:0")

    def run(self, argv: Sequence[str], *, timeout_s: float) -> str:
        self.ran.append(list(argv))
        if argv[0] in self.failing:
            raise HostError(f"`{argv[0]}` failed (1): no", code="program.failed")
        if argv[0] == "blkid":
            shown = self.found.get(Path(argv[-1]).name)
            if shown is not None and self._begins(Path(argv[-1]), INTRODUCTION.encode()):
                shown = {key: value for key, value in shown.items() if key.startswith("PART_ENTRY_")} or None
            if shown is None:
                raise HostError("`blkid` failed (2): nothing", code="program.failed")
            return "".join(f"{key}={value}\n" for key, value in shown.items())
        if argv[0] == "wipefs":
            return json.dumps({"signatures": self.signatures.get(Path(argv[-1]).name, [])})
        if argv[0] in ("dumpe2fs", "xfs_logprint"):
            return self.dump
        if argv[0] in ("e2fsck", "xfs_repair", "modprobe", "udevadm", "blockdev"):
            return ""
        if argv[0] in ("cryptsetup", "btrfs"):
            return run(argv, timeout_s=timeout_s)
        changing = self.changing.get(argv[0])
        if changing is None:
            raise HostError(f"{argv[0]} is not installed", code="program.missing")
        self.change()
        return changing(argv)

    @staticmethod
    def _begins(node: Path, wanted: bytes) -> bool:
        with node.open("rb") as file:
            return file.read(len(wanted)) == wanted

    @property
    def changing(self) -> dict[str, Callable[[Sequence[str]], str]]:
        """What each program that changes something does."""
        return {
            "umount": self._umount,
            "mount": self._mount,
            "dmsetup": self._dmsetup,
            "systemctl": self._systemctl,
        }

    def _systemctl(self, argv: Sequence[str]) -> str:
        """A mount that is started waits for its device."""
        assert argv[1:] == ["--no-block", "start", str(self.place)]
        return self._mount(["mount", argv[3]]) if self.is_composed or not self.is_hidden else ""

    def _umount(self, argv: Sequence[str]) -> str:
        self.lay("proc/self/mountinfo", ROOT)
        return ""

    def _mount(self, argv: Sequence[str]) -> str:
        assert argv[1] == str(self.place)
        self.mount("252:0" if self.is_composed else self.number)
        return ""

    def _dmsetup(self, argv: Sequence[str]) -> str:
        if argv[1] == "remove":
            assert self.sysfs.read("sys/block/dm-0/dm/suspended") == "0", "it would wait"
            assert not self.sysfs.exists("sys/block/dm-0/bcache"), "EBUSY"
            shutil.rmtree(self.sysfs.path("sys/block/dm-0"))
            self.sysfs.forget()
        if argv[1] == "create":
            name, uuid, _, mode, *table = argv[-1].split(",")
            assert mode == "rw"
            rows = [(int(row[0]), int(row[1]), row[3], int(row[4])) for row in map(str.split, table)]
            front = (0, DATA_OFFSET_SECTORS, self.head_number, self.head_sector + CONTENT_SECTOR)
            assert (rows[0], rows[-1][2]) == (front, self.number)
            self.sysfs.create("dm-0", name, uuid, rows)
        return ""
