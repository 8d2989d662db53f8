"""bcache's superblock: read, written as `make-bcache -C` writes it (bcache-tools 1.0.8), and erased.

Theory of operation. Every bcache device has one sector-aligned structure 4 KiB from its beginning, which names the
device, its cache set, and the block size (`struct cache_sb_disk`, drivers/md/bcache/bcache_ondisk.h). The kernel and
udev recognize a device by it and by nothing else. So:

- the agent formats a cache by writing it. It does not start make-bcache, because a boost waits for it: on a slow or
  busy processor a program takes a quarter of a second and more to start, and these 4 KiB take some milliseconds;
- a disk that is no longer a cache gets zeros there, or udev would register it again;
- a superblock is read past the page cache, because the kernel writes it past the page cache.

Names in /dev are reused while disks come and go. A caller that writes passes `verify`: it gets the open descriptor
before anything is written, and raises if this is not the disk that was meant.
"""

from __future__ import annotations

import os
import struct
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from elastio.errors import HostError, NotOursError
from elastio.units import KIB, SECTOR

OFFSET = 4096
UNREADABLE = "node.unreadable"
MAGIC = bytes.fromhex("c68573f64e1a45ca8265f57f48ba6d81")
# From the checksum to `d[]`: checksum, own sector, version, magic, UUID, UUID of the set, label, flags, seq, padding,
# buckets, block and bucket size in sectors, devices in the set, number of this one, last mount, first bucket, journal
# buckets. A backing device has other fields in place of the buckets; what the agent reads is the same in both.
LAYOUT = struct.Struct("<QQQ16s16s16s32sQQ64sQHHHHIHH")
CHECKSUM = struct.Struct("<Q")
VERSION = 0  # BCACHE_SB_VERSION_CDEV; the kernel raises it to the newest it knows when it registers the disk
BACKING_VERSION = 4  # BCACHE_SB_VERSION_BDEV_WITH_OFFSET
BACKING_BUCKET_SECTORS = 1024  # make-bcache's default; a backing device has no buckets
STATE_SHIFT, STALE = 61, 3  # BDEV_STATE in the flags, two bits: none, clean, dirty, stale
LEAST_DATA_OFFSET = 16  # BDEV_DATA_START_DEFAULT, where the data of a backing device of version 1 begins
FIRST_DATA_SECTOR = 24  # after the superblock: 8 sectors at sector 8, and what make-bcache leaves free

# bcache sets 1/256 of a cache free at a time, and then writes the state of all buckets, which takes a whole bucket
# (alloc.c: `free_inc`, `bch_prio_write`). So with few buckets an eighth of all writes is bcache's own. Measured, for
# 500 MB through 1.3 GB: 37 MB with buckets of 512 KiB, 17 with 256, 9 with 128, 5 with 64. Below 128 KiB the
# application gets slower all the same. Buckets are that small only in a cache that would have too few for the kernel,
# which refuses less than about 512.
BUCKETS_BYTES = (512 * KIB, 256 * KIB, 128 * KIB)
ENOUGH_BUCKETS = 8192
SMALLEST_BUCKET_BYTES = 64 * KIB
LEAST_BUCKETS = 2048
MOST_BUCKETS = 2**21  # the kernel keeps 16 bytes for each

CRC64_POLYNOMIAL = 0x42F0E1EBA9EA3693  # ECMA-182, most significant bit first
ONES = 2**64 - 1

Verify = Callable[[int], None]


class Role(StrEnum):
    CACHE = "cache"
    BACKING = "backing"


# BCACHE_SB_VERSION_*: 0, 3 and 5 are cache devices, 1, 4 and 6 backing devices
ROLES = {0: Role.CACHE, 3: Role.CACHE, 5: Role.CACHE, 1: Role.BACKING, 4: Role.BACKING, 6: Role.BACKING}


@dataclass(frozen=True, slots=True)
class Superblock:
    """`set_uuid` of a backing device is that of the cache set it was last attached to."""

    role: Role
    uuid: str
    set_uuid: str
    block_size_bytes: int
    bucket_size_bytes: int


def parse(block: bytes) -> Superblock | None:
    """The superblock in the bytes read at OFFSET, or None when there is none."""
    if len(block) < LAYOUT.size:
        return None
    _, sector, version, magic, device, cache_set, *rest = LAYOUT.unpack_from(block)
    if magic != MAGIC or sector * SECTOR != OFFSET or version not in ROLES:
        return None
    names = (str(uuid.UUID(bytes=device)), str(uuid.UUID(bytes=cache_set)))
    return Superblock(ROLES[version], *names, block_size_bytes=rest[5] * SECTOR, bucket_size_bytes=rest[6] * SECTOR)


def read(device: Path) -> Superblock | None:
    """The superblock on a device, or None; None also for a device that cannot be opened or read.

    Opens read-only: closing a descriptor that was open for writing makes udev register the disk.
    """
    try:
        return parse(bytes_of(device, OFFSET, OFFSET))
    except HostError as error:
        if error.code != UNREADABLE:
            raise
        return None


def bytes_of(device: Path, at: int, length: int) -> bytes:
    """What the device has there, past its page cache; fewer bytes where it ends. Raises HostError (UNREADABLE)."""
    try:
        descriptor = os.open(device, os.O_RDONLY | os.O_CLOEXEC)
        try:
            # Of the whole device: only whole pages are dropped, and a page may be larger than 4 KiB.
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            return os.pread(descriptor, length, at)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise HostError(f"{device} cannot be read: {error.strerror}", code=UNREADABLE) from error


def block_size(device: Path) -> int:
    """Bytes; a cache set's may not be larger than its backing device's, or the attach is refused. Raises HostError."""
    found = read(device)
    if found is None:
        raise HostError(f"{device} has no bcache superblock", code="backing.superblock")
    return found.block_size_bytes


def render(device: uuid.UUID, cache_set: uuid.UUID, *, size_bytes: int, block_bytes: int, bucket_bytes: int) -> bytes:
    """The superblock of a new cache device that is alone in its set. Sizes are multiples of 512."""
    block, bucket = block_bytes // SECTOR, bucket_bytes // SECTOR
    buckets = size_bytes // bucket_bytes
    first = (FIRST_DATA_SECTOR - 1) // bucket + 1
    return _packed(VERSION, device, cache_set, buckets, block, bucket, 1, 0, 0, first, 0)


def render_backing(device: uuid.UUID, cache_set: uuid.UUID, *, block_bytes: int, data_offset_sectors: int) -> bytes:
    """The superblock of a new backing device without a cache, as `make-bcache -B --data-offset` writes it."""
    geometry = (data_offset_sectors, block_bytes // SECTOR, BACKING_BUCKET_SECTORS, 0, 0, 0, 0, 0)
    return _packed(BACKING_VERSION, device, cache_set, *geometry)


def _packed(version: int, device: uuid.UUID, cache_set: uuid.UUID, *geometry: int) -> bytes:
    """`geometry`: what follows the padding in LAYOUT. Label, flags and sequence number are those of a new device."""
    names = (MAGIC, device.bytes, cache_set.bytes, bytes(32))
    body = LAYOUT.pack(0, OFFSET // SECTOR, version, *names, 0, 0, bytes(64), *geometry)[CHECKSUM.size :]
    return CHECKSUM.pack(crc64(body)) + body


def is_without_cache(block: bytes) -> bool:
    """Whether these bytes, read at OFFSET, are the superblock of a backing device that names no cache."""
    return _state(block) == 0


def is_given_up(block: bytes) -> bool:
    """Whether it names a cache that is not needed: the device was started without it, and a set that comes is empty."""
    return _state(block) == STALE


def _state(block: bytes) -> int | None:
    """BDEV_STATE; None if these bytes are not the superblock of a backing device."""
    found = parse(block)
    if found is None or found.role is not Role.BACKING:
        return None
    flags: int = LAYOUT.unpack_from(block)[7]
    return flags >> STATE_SHIFT & 3


def data_offset(block: bytes) -> int:
    """In sectors, where the data of this backing device begins, by its superblock. Raises NotOursError if unknown."""
    found = parse(block)
    # That of a backing device has no list after it, to which the checksum would extend.
    is_whole = found is not None and CHECKSUM.pack(crc64(block[CHECKSUM.size : LAYOUT.size])) == block[: CHECKSUM.size]
    offset = 0
    if found is not None and found.role is Role.BACKING and is_whole:
        _, _, version, *fields = LAYOUT.unpack_from(block)
        offset = LEAST_DATA_OFFSET if version == 1 else fields[7]
    if offset < LEAST_DATA_OFFSET:
        raise NotOursError("there is no sound superblock that says where the data begins", code="superblock.unsound")
    return offset


def buckets_bytes(size_bytes: int) -> tuple[int, ...]:
    """The bucket sizes for a cache device of that size, the best first: the smaller ones take less memory."""
    enough = tuple(bucket for bucket in BUCKETS_BYTES if size_bytes // bucket >= ENOUGH_BUCKETS)
    if not enough and size_bytes // BUCKETS_BYTES[-1] >= LEAST_BUCKETS:
        enough = BUCKETS_BYTES[-1:]
    sizes = (*enough, SMALLEST_BUCKET_BYTES)
    return tuple(bucket for bucket in sizes if size_bytes // bucket <= MOST_BUCKETS) or sizes[:1]


def write_cache(
    node: Path, cache_set: uuid.UUID, verify: Verify, *, size_bytes: int, block_bytes: int, bucket_bytes: int
) -> None:
    """Make the disk the cache device of a new set, durably. Raises HostError.

    See `cache_disk.make`, which calls it.
    """
    block = render(uuid.uuid4(), cache_set, size_bytes=size_bytes, block_bytes=block_bytes, bucket_bytes=bucket_bytes)
    _overwrite(node, bytes(OFFSET) + block.ljust(OFFSET, b"\0"), 0, verify)


def erase(device: Path, verify: Verify) -> None:
    """Overwrite the superblock with zeros, durably. Raises HostError. The caller has proven that it may go.

    Nothing else on a cache device is a signature, so nothing else makes udev register it again.
    """
    _overwrite(device, bytes(OFFSET), OFFSET, verify)


def _overwrite(device: Path, data: bytes, at: int, verify: Verify) -> None:
    try:
        with claimed(device, verify) as descriptor:
            os.pwrite(descriptor, data, at)
            os.fsync(descriptor)
    except OSError as error:
        text = f"cannot write the superblock of {device}: {error.strerror}"
        raise HostError(text, code="superblock.write") from error


@contextmanager
def claimed(device: Path, verify: Verify) -> Iterator[int]:
    """A descriptor for writing that nobody else shares: the kernel refuses while anything uses the disk.

    Raises OSError, and what `verify` raises.
    """
    descriptor = os.open(device, os.O_RDWR | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        verify(descriptor)
        yield descriptor
    finally:
        os.close(descriptor)


def crc64(data: bytes) -> int:
    """The checksum of everything that bcache writes: all ones at the beginning and inverted at the end."""
    crc = ONES
    for byte in data:
        crc = ((crc << 8) & ONES) ^ _TABLE[(crc >> 56) ^ byte]
    return crc ^ ONES


def _table() -> tuple[int, ...]:
    entries = []
    for index in range(256):
        crc = index << 56
        for _ in range(8):
            crc = ((crc << 1) ^ CRC64_POLYNOMIAL if crc >> 63 else crc << 1) & ONES
        entries.append(crc)
    return tuple(entries)


_TABLE = _table()
