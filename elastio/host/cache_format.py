"""Writes the superblock that makes a disk a cache device, byte for byte what `make-bcache -C` writes (version 1.0.8).

Why not start that program: a boost waits for it. On a slow or busy processor starting it takes a quarter of a second
and more, and writing these 4 KiB some milliseconds. Layout: `struct cache_sb_disk`, drivers/md/bcache/bcache_ondisk.h.
"""

from __future__ import annotations

import os
import struct
import uuid
from collections.abc import Callable
from pathlib import Path

from elastio.errors import HostError
from elastio.host.superblock import MAGIC, OFFSET, SECTOR
from elastio.units import KIB

VERSION = 0  # BCACHE_SB_VERSION_CDEV; the kernel raises it to the newest it knows when it registers the disk
# From the checksum to `d[]`: checksum, own sector, version, magic, uuid, set uuid, label, flags, seq, padding, buckets,
# block and bucket size in sectors, devices in the set, number of this one, last mount, first bucket, journal buckets
SUPERBLOCK = struct.Struct("<QQQ16s16s16s32sQQ64sQHHHHIHH")
CHECKSUM_BYTES = 8
FIRST_DATA_SECTOR = 24  # behind the superblock: 8 sectors at sector 8, and what make-bcache leaves free

# 512 KiB buckets suit a cloud disk; a small cache gets smaller ones, because the kernel refuses fewer
# than about 512 buckets and works badly with few.
BUCKET_BYTES = 512 * KIB
LEAST_BUCKETS = 2048
SMALLEST_BUCKET_BYTES = 64 * KIB

CRC64_POLYNOMIAL = 0x42F0E1EBA9EA3693  # ECMA-182, most significant bit first
ONES = 2**64 - 1


def render(device: uuid.UUID, cache_set: uuid.UUID, *, size_bytes: int, block_bytes: int, bucket_bytes: int) -> bytes:
    """The superblock of a new cache device that is alone in its set. Sizes are multiples of 512."""
    block, bucket = block_bytes // SECTOR, bucket_bytes // SECTOR
    buckets = size_bytes // bucket_bytes
    first = (FIRST_DATA_SECTOR - 1) // bucket + 1
    names = (MAGIC, device.bytes, cache_set.bytes, bytes(32))
    geometry = (0, 0, bytes(64), buckets, block, bucket, 1, 0, 0, first, 0)
    body = SUPERBLOCK.pack(0, OFFSET // SECTOR, VERSION, *names, *geometry)[CHECKSUM_BYTES:]
    return struct.pack("<Q", crc64(body)) + body


def bucket_bytes(size_bytes: int) -> int:
    """Of a cache device of that size."""
    bucket = BUCKET_BYTES
    while bucket > SMALLEST_BUCKET_BYTES and size_bytes // bucket < LEAST_BUCKETS:
        bucket //= 2
    return bucket


def crc64(data: bytes) -> int:
    """The checksum of everything that bcache writes: all ones at the begin and inverted at the end."""
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


def write(
    node: Path,
    cache_set: uuid.UUID,
    verify: Callable[[int], None],
    *,
    size_bytes: int,
    block_bytes: int,
    bucket_bytes: int,
) -> None:
    """Make the disk the cache device of a new set, durably. Raises HostError.

    The caller has proven that the disk is the volume just bought and that nothing is on it. Opened exclusively: the
    kernel refuses while anything uses the disk. `verify` gets the open descriptor before anything is written, and
    raises if it is not the disk that was meant: names in /dev are given anew while disks come and go.
    """
    sizes = {"size_bytes": size_bytes, "block_bytes": block_bytes, "bucket_bytes": bucket_bytes}
    superblock = render(uuid.uuid4(), cache_set, **sizes)
    try:
        descriptor = os.open(node, os.O_RDWR | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            verify(descriptor)
            os.pwrite(descriptor, bytes(OFFSET) + superblock.ljust(OFFSET, b"\0"), 0)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise HostError(f"cannot write a cache superblock on {node}: {error.strerror}") from error
