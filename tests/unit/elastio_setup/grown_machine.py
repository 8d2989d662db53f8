"""A machine with an ext4 on vdb, which was enlarged since."""

from __future__ import annotations

from elastio.host.blockdev import is_zero
from elastio.host.heads import LEAST_BYTES
from elastio.units import KIB, SECTOR

from .adopt_machine import VOLUME_BYTES, AdoptMachine
from .tombstones import record, shown

# The filesystem ends within the MiB before: the place is aligned.
BLOCKS = VOLUME_BYTES // KIB - 4


def ext4(blocks: int, *, is_64bit: bool = False, log_block: int = 0) -> bytes:
    """The fields of ext4's superblock that say its size."""
    block = bytearray(KIB)
    block[4:8] = (blocks & 0xFFFFFFFF).to_bytes(4, "little")
    block[0x18:0x1C] = log_block.to_bytes(4, "little")
    block[0x38:0x3A] = b"\x53\xef"
    block[0x60:0x64] = (0x80 if is_64bit else 0x40).to_bytes(4, "little")
    block[0x150:0x154] = (blocks >> 32).to_bytes(4, "little")
    return bytes(block)


class GrownMachine(AdoptMachine):
    """vdb is 18 MiB long, and its ext4 a little less than 2."""

    head_number, head_sector = AdoptMachine.number, VOLUME_BYTES // SECTOR

    def __post_init__(self) -> None:
        super().__post_init__()
        self.put(KIB, ext4(BLOCKS))
        self.before = self.volume
        self.resize("vdb", VOLUME_BYTES + LEAST_BYTES)

    def put(self, at: int, data: bytes) -> None:
        with self.sysfs.path("dev/vdb").open("r+b") as file:
            file.seek(at)
            file.write(data)

    def adopt(self) -> str:
        return self.adopter().adopt(self.plan(head=None))

    def release(self) -> None:
        self.adopter().release(record(self), None)

    @property
    def contents(self) -> bytes:
        """Of the filesystem."""
        with self.sysfs.path("dev/vdb").open("rb") as file:
            return file.read(VOLUME_BYTES)

    @property
    def is_adopted(self) -> bool:
        return (self.records, self.is_composed) == (["composed"], True) and shown(self) == self.before

    @property
    def is_as_before(self) -> bool:
        there = (self.records, self.is_composed, self.contents) == ([], False, self.before)
        length = int(self.sysfs.read("sys/block/vdb/size")) * SECTOR
        return there and is_zero(self.sysfs.path("dev/vdb"), VOLUME_BYTES, length - VOLUME_BYTES)
