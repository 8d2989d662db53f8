"""Heads of adopted volumes: their format on disk, found, written, erased, and put in front by device-mapper.

Theory of operation. bcache wants its superblock in the first 8 KiB of its backing device, and these belong to the
user's filesystem. So the backing device is composed: a piece of the head, with the superblock, then the whole volume,
untouched. bcache's data begins where the volume begins, so the adaptive device shows the volume byte for byte.

The head lies on a device of its own, or on the volume itself, behind what the filesystem uses of it (`first_sector`):

    0         label: magic, version, length, SHA-256 of the block, then JSON; written last
    512 KiB   the label's other slot; the label that is sound and has the higher sequence number is valid
    4 MiB     content: what is shown in front of the volume (1 MiB, bcache's superblock 4 KiB from its begin)
    6 MiB     the volume's own first sectors, while a tombstone is in their place (`tombstone`)

At the head's begin there is nothing that libblkid, udev or bcache recognizes: were the superblock there, udev would
register the head alone as a backing device, and the kernel would attach a dirty cache to it.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from elastio.codec import decode, encode
from elastio.errors import HostError, NotOursError
from elastio.host import superblock
from elastio.host.mapper import Linear
from elastio.host.superblock import Verify, bytes_of
from elastio.units import KIB, MIB, SECTOR

MAGIC = b"elastio head\r\n\x1a\n"
# The first version had no tombstones, and the second moves one block: a release that knows only these must not touch a
# volume from which more is moved. The third has its head at the begin of a device. A label gets the lowest version that
# can be used with it.
VERSION, LONGER, BEHIND, READABLE = 2, 3, 4, (1, 2, 3, 4)
BLOCK_BYTES = 4 * KIB
SLOTS = (0, 512 * KIB)
LEAST_BYTES = 16 * MIB
# As in a partition, a filesystem behind it stays aligned.
DATA_OFFSET_SECTORS = MIB // SECTOR
CONTENT_SECTOR = 4 * MIB // SECTOR
SAVED_SECTOR = 6 * MIB // SECTOR
# Of the volume: by its first block ext4 and XFS are recognized. Others need more: `Head.saved_sectors`.
SAVED_SECTORS = BLOCK_BYTES // SECTOR
MOST_SAVED_SECTORS = (512 * KIB + BLOCK_BYTES) // SECTOR
# libblkid's type of a physical volume of LVM.
PHYSICAL_VOLUME = "LVM2_member"
# Magic, version, length of the JSON, SHA-256 of the block with zeros in this field.
_PREFIX = struct.Struct("<16sII32s")
_CHECKSUM = slice(24, 56)


@dataclass(frozen=True, slots=True)
class Volume:
    """The user's volume, and by what it is told from a copy of it. The last three are empty where it has none."""

    filesystem: str  # libblkid's type
    uuid: str  # of the filesystem
    size_sectors: int
    serial: str = ""  # of its disk
    partition: str = ""  # UUID in the partition table
    mapped: str = ""  # device-mapper's UUID of a logical volume


@dataclass(frozen=True, slots=True)
class Head:
    """`uuid` is the head's own, `backing_uuid` the one in bcache's superblock. Sectors have 512 bytes.

    `sequence` grows with each label, and a tombstone is written with each label but the first. `saved_sectors`: how
    many of the volume's first sectors move to the head then: all by which its filesystem is recognized. `first_sector`:
    where it begins on its device; its other places count from there. If not 0, that is the volume itself, of which the
    composed device shows the sectors before.
    """

    uuid: str
    backing_uuid: str
    volume: Volume
    size_sectors: int
    content_sector: int = CONTENT_SECTOR
    content_sectors: int = DATA_OFFSET_SECTORS
    saved_sector: int = SAVED_SECTOR
    sequence: int = 1
    saved_sectors: int = SAVED_SECTORS
    first_sector: int = 0

    @property
    def begin(self) -> int:
        """On its device, in bytes; as the next two."""
        return self.first_sector * SECTOR

    @property
    def superblock_at(self) -> int:
        return self.begin + self.content_sector * SECTOR + superblock.OFFSET

    @property
    def saved_at(self) -> int:
        return self.begin + self.saved_sector * SECTOR

    @property
    def keeps_tombstone(self) -> bool:
        """Whether the tombstone stays from the adoption to the release: LVM asks neither udev nor who claims a device,
        activates nothing of a physical volume that it sees twice, and may take the volume itself."""
        return self.volume.filesystem == PHYSICAL_VOLUME


def serialize(head: Head) -> bytes:
    """The label, one block. Raises NotOursError for what `parse` would refuse."""
    _require_sound(head)
    payload = json.dumps(encode(head), sort_keys=True).encode()
    if len(payload) > BLOCK_BYTES - _PREFIX.size:
        raise NotOursError(f"the label of the head takes {len(payload)} bytes, too many", code="head.length")
    version = BEHIND if head.first_sector else VERSION if head.saved_sectors == SAVED_SECTORS else LONGER
    block = _PREFIX.pack(MAGIC, version, len(payload), bytes(32)) + payload
    return _with_checksum(block.ljust(BLOCK_BYTES, b"\0"))


def parse(block: bytes) -> Head | None:
    """The head whose label this block is; None if it is no label. Raises NotOursError for a damaged or newer one."""
    if len(block) != BLOCK_BYTES or not block.startswith(MAGIC):
        return None
    _, version, length, _ = _PREFIX.unpack_from(block)
    if _with_checksum(block) != block:
        raise NotOursError("the label of the head is damaged", code="head.damaged")
    if version not in READABLE:
        text = f"the label of the head has version {version}, not one of {READABLE}: use the newer release"
        raise NotOursError(text, code="head.version")
    try:
        head = decode(Head, json.loads(block[_PREFIX.size :][:length]))
    except (ValueError, TypeError, RecursionError) as error:
        raise NotOursError(f"the label of the head is malformed: {error}", code="head.malformed") from error
    _require_sound(head)
    return head


def valid(blocks: Iterable[bytes]) -> Head | None:
    """The head by the blocks of its SLOTS; None without a label. Raises NotOursError.

    One damaged slot is what a power cut during a change leaves: the other one is valid. A newer version is never
    passed over.
    """
    found: list[Head] = []
    damaged: NotOursError | None = None
    for block in blocks:
        try:
            head = parse(block)
        except NotOursError as error:
            if error.code != "head.damaged":
                raise
            damaged = error
        else:
            found += [head] if head else []
    if damaged and not found:
        raise damaged
    last = max(found, key=lambda head: head.sequence, default=None)
    if any(head.uuid != last.uuid for head in found if last):
        raise NotOursError("the two labels of the head are of different heads", code="head.ambiguous")
    return last


def slot_of(head: Head) -> int:
    """Where its label goes, in bytes: a change never overwrites the label before it."""
    return slots(head.first_sector)[(head.sequence - 1) % len(SLOTS)]


def slots(first_sector: int) -> tuple[int, ...]:
    """Where the labels of a head are that begins there, in bytes."""
    return tuple(first_sector * SECTOR + slot for slot in SLOTS)


def behind(head: Head, first_sector: int) -> Head:
    """The same head on the volume itself, from this sector on, where the volume ends that is composed."""
    return replace(head, volume=replace(head.volume, size_sectors=first_sector), first_sector=first_sector)


def table(head: Head, head_number: str, volume_number: str, *, has_tombstone: bool) -> tuple[Linear, ...]:
    """The table of the composed device; the numbers are `major:minor`.

    What the volume shows of its first sectors is the saved ones while a tombstone is there.
    """
    first, whole = head.content_sectors, head.volume.size_sectors
    content = Linear(0, first, head_number, head.first_sector + head.content_sector)
    if not has_tombstone:
        return content, Linear(first, whole, volume_number, 0)
    saved = Linear(first, head.saved_sectors, head_number, head.first_sector + head.saved_sector)
    rest = Linear(first + head.saved_sectors, whole - head.saved_sectors, volume_number, head.saved_sectors)
    return content, saved, rest


def _require_sound(head: Head) -> None:
    end = head.content_sector + head.content_sectors
    labels_end = (SLOTS[-1] + BLOCK_BYTES) // SECTOR
    if (
        head.sequence < 1
        or head.saved_sectors not in range(SAVED_SECTORS, MOST_SAVED_SECTORS + 1, SAVED_SECTORS)
        or head.volume.size_sectors <= head.saved_sectors
        or head.content_sector < labels_end
        or head.content_sectors < 2 * BLOCK_BYTES // SECTOR
        or end > head.saved_sector
        or head.first_sector not in (0, head.volume.size_sectors)
        or head.saved_sector + head.saved_sectors > head.size_sectors
    ):
        raise NotOursError("the label of the head names places that it does not have", code="head.places")


def _with_checksum(block: bytes) -> bytes:
    without = block[: _CHECKSUM.start] + bytes(32) + block[_CHECKSUM.stop :]
    return block[: _CHECKSUM.start] + hashlib.sha256(without).digest() + block[_CHECKSUM.stop :]


def read(node: Path, first_sector: int = 0) -> Head | None:
    """The head on a device, or None. Raises HostError (UNREADABLE), and NotOursError for a damaged one.

    Opens read-only, as `superblock.read`.
    """
    return valid([bytes_of(node, slot, BLOCK_BYTES) for slot in slots(first_sector)])


def superblock_of(node: Path, head: Head) -> bytes:
    """The block with bcache's superblock. Raises HostError."""
    return bytes_of(node, head.superblock_at, BLOCK_BYTES)


def write(node: Path, head: Head, block: bytes, verify: Verify) -> None:
    """Make the device the head, durably: zeros and bcache's superblock first, the label last. Raises HostError.

    The caller has proven that nothing is on the device, and of a volume that zeros are in its place. `verify` as in
    `superblock`.
    """
    with _claimed(node, verify) as descriptor:
        if not head.first_sector:
            _put(descriptor, bytes(LEAST_BYTES), 0)
        _put(descriptor, block, head.superblock_at)
        os.fsync(descriptor)
        _put(descriptor, serialize(head), slot_of(head))


def gaps(head: Head) -> list[tuple[int, int]]:
    """Begin and end, in bytes, of what is zeros whatever happens: all but labels, superblock and saved piece."""
    blocks = (*slots(head.first_sector), head.superblock_at)
    own = [*((at, at + BLOCK_BYTES) for at in blocks), (head.saved_at, head.saved_at + head.saved_sectors * SECTOR)]
    edges = [head.begin, *(edge for place in sorted(own) for edge in place), head.begin + LEAST_BYTES]
    return list(zip(edges[::2], edges[1::2], strict=True))


def erase(node: Path, head: Head, verify: Verify) -> None:
    """Overwrite the whole head with zeros, durably: the labels first, bcache's superblock last. Raises HostError.

    After a power cut what is left is told by one of the two. On a volume only what the head has written is overwritten.
    """
    at, end = head.superblock_at, head.superblock_at + BLOCK_BYTES
    rest = [(head.saved_at, head.saved_sectors * SECTOR)]
    if not head.first_sector:
        rest = [(0, at), (end, LEAST_BYTES - end)]
    with _claimed(node, verify) as descriptor:
        for slot in slots(head.first_sector):
            _put(descriptor, bytes(BLOCK_BYTES), slot)
        os.fsync(descriptor)
        for place, length in rest:
            _put(descriptor, bytes(length), place)
        os.fsync(descriptor)
        _put(descriptor, bytes(BLOCK_BYTES), at)


@contextmanager
def _claimed(node: Path, verify: Verify) -> Iterator[int]:
    """The device as `superblock.claimed`; what was written is durable at the end. Raises HostError."""
    try:
        with superblock.claimed(node, verify) as descriptor:
            yield descriptor
            os.fsync(descriptor)
    except OSError as error:
        raise HostError(f"the head on {node} cannot be written: {error.strerror}", code="head.write") from error


def _put(descriptor: int, data: bytes, at: int) -> None:
    """All of the data: one write may take only a part of it."""
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, at)
        view, at = view[written:], at + written
