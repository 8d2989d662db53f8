"""A machine with a backing device that was made on a blank vdb, and the programs that release it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from uuid import UUID as Uuid

from elastio.host import superblock
from elastio.host.partition_table import TABLE
from elastio.units import MIB, SECTOR
from elastio_setup import release_created
from elastio_setup.release_created import Created, Releaser

from .adopt_machine import NOISE, ROOT, UUID, AdoptMachine, PowerCutError

BACKING, SET = "2f1c7b9e-6d1a-4c1b-9d0e-0a1b2c3d4e5f", "7b0c4f1e-2222-4333-8444-555566667777"
DATA_BYTES = 3 * MIB
STATE_AT = superblock.OFFSET + superblock.LAYOUT.size - 104


class CreatedMachine(AdoptMachine):
    """`offset`: where the data of vdb begins, in sectors. bcache has registered vdb."""

    def __init__(self, root: Path, offset: int = 2048) -> None:
        super().__init__(root)
        self.offset = offset
        self.on_settle: Callable[[], None] = lambda: None
        block = superblock.render_backing(Uuid(BACKING), Uuid(SET), block_bytes=512, data_offset_sectors=offset)
        self.data = NOISE * (DATA_BYTES // 64)
        front = bytearray(offset * SECTOR)
        front[superblock.OFFSET : superblock.OFFSET + len(block)] = block
        self.disk("vdb", 16, "volume0123456789abcd", bytes(front) + self.data)
        self.found = {"bcache0": {"TYPE": "ext4", "UUID": UUID}}
        self.before = self.volume
        self.start()

    def disk(self, name: str, minor: int, serial: str, content: bytes) -> None:
        shutil.rmtree(self.sysfs.path(f"sys/block/{name}"), ignore_errors=True)
        for link in (f"sys/class/block/{name}", f"sys/dev/block/240:{minor}"):
            self.sysfs.path(link).unlink(missing_ok=True)
        super().disk(name, minor, serial, content)

    # --- the kernel ----------------------------------------------------------------------------------------

    @property
    def runs(self) -> bool:
        return self.sysfs.exists("sys/block/vdb/bcache/dev")

    @property
    def is_as_before(self) -> bool:
        return self.volume == self.before

    @property
    def is_released(self) -> bool:
        """By what the disk has: no superblock, and a partition with the data."""
        is_erased = self.volume[superblock.OFFSET :][:4096] == bytes(4096)
        _, _, _, _, _, begin, length, _ = TABLE.unpack(self.volume[:SECTOR])
        return is_erased and self.volume[begin * SECTOR :][: length * SECTOR] == self.data

    @property
    def is_usable(self) -> bool:
        """Whether a boot shows the data, and all of it."""
        return self.volume[self.offset * SECTOR :] == self.data and (self.is_released or self.has_superblock)

    @property
    def has_superblock(self) -> bool:
        return superblock.parse(self.volume[superblock.OFFSET :]) is not None

    def start(self) -> None:
        """The kernel registers vdb."""
        self.lay("sys/block/vdb/bcache/state", "no cache")
        self.lay("sys/block/vdb/bcache/backing_dev_uuid", BACKING)
        self.lay("sys/block/vdb/bcache/stop", "")
        self.link("sys/block/vdb/bcache/dev", "../../bcache0")
        self.lay("sys/block/bcache0/dev", "252:0")
        self.lay("sys/block/bcache0/size", str(len(self.data) // SECTOR))
        self.link("sys/class/block/bcache0", "../../block/bcache0")
        self.sysfs.path("dev/bcache0").write_bytes(self.volume[self.offset * SECTOR :])

    def stop(self) -> None:
        for name in ("sys/block/vdb/bcache", "sys/block/bcache0"):
            shutil.rmtree(self.sysfs.path(name), ignore_errors=True)
        self.sysfs.path("sys/class/block/bcache0").unlink(missing_ok=True)

    def scan_partitions(self) -> None:
        shutil.rmtree(self.sysfs.path("sys/block/vdb/vdb1"), ignore_errors=True)
        self.sysfs.path("sys/class/block/vdb1").unlink(missing_ok=True)
        if self.volume[510:512] == b"\x55\xaa":
            _, _, _, _, _, begin, length, _ = TABLE.unpack(self.volume[:SECTOR])
            for file, text in (("start", begin), ("size", length), ("dev", "240:17"), ("partition", 1)):
                self.lay(f"sys/block/vdb/vdb1/{file}", str(text))
            self.link("sys/class/block/vdb1", "../../block/vdb/vdb1")

    def show(self, descriptor: int) -> None:
        """The kernel reads the partition table."""
        if "ioctl" in self.failing:
            raise OSError(16, "Device or resource busy")
        self.change()
        self.scan_partitions()

    def power_off(self) -> None:
        self.cut_at = -1
        self.stop()
        self.lay("sys/fs/bcache/register_quiet", "")
        self.lay("proc/self/mountinfo", ROOT)

    def boot(self) -> None:
        self.power_off()
        self.scan_partitions()
        if self.has_superblock:
            self.start()

    # --- what it does --------------------------------------------------------------------------------------

    def wait(self, condition: Callable[[], bool], seconds: float) -> bool:
        if self.sysfs.read("sys/fs/bcache/register_quiet"):
            self.change()
            self.lay("sys/fs/bcache/register_quiet", "")
            if self.has_superblock:
                self.start()
        if self.sysfs.read_or("sys/block/vdb/bcache/stop", ""):
            self.change()
            self.stop()
        return condition()

    def run(self, argv: Sequence[str], *, timeout_s: float) -> str:
        if argv[:2] == ["blockdev", "--rereadpt"] and "blockdev" not in self.failing:
            self.change()
            self.scan_partitions()
        if argv[:2] == ["udevadm", "settle"]:
            self.on_settle()
        return super().run(argv, timeout_s=timeout_s)

    def _mount(self, argv: Sequence[str]) -> str:
        assert argv[1] == str(self.place)
        self.mount("252:0" if self.runs else "240:17")
        return ""

    def planned(self, target: str = "dev/vdb") -> Created:
        return release_created.plan(str(self.sysfs.path(target)), self.sysfs, self.run)

    def released(self, target: str = "dev/vdb") -> str:
        """As the command does it."""
        release_created.register(str(self.sysfs.path(target)), self.sysfs, self.wait, self.show)
        return Releaser(self.sysfs, self.run, self.wait, self.show).release(self.planned(target))

    def is_cut(self, point: int) -> bool:
        """Whether the power was cut, or the command killed, before the change with this number."""
        self.changes, self.cut_at = 0, point
        try:
            self.released()
        except PowerCutError:
            return True
        finally:
            self.cut_at = -1
        return False

    def put(self, at: int, data: bytes) -> None:
        with self.sysfs.path("dev/vdb").open("r+b") as file:
            file.seek(at)
            file.write(data)
