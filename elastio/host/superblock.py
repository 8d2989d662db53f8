"""bcache's superblock, as far as the agent reads it. Layout: `struct cache_sb_disk`, include/uapi/linux/bcache.h."""

from __future__ import annotations

import os
import struct
import uuid
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from elastio.errors import HostError

OFFSET = 4096
MAGIC = bytes.fromhex("c68573f64e1a45ca8265f57f48ba6d81")
# checksum, own sector, version, magic, device uuid, set uuid
HEAD = struct.Struct("<QQQ16s16s16s")
BLOCK_SIZE_AT = 192  # in sectors; shared by cache and backing devices
SECTOR = 512


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


def parse(block: bytes) -> Superblock | None:
    """The superblock in the bytes read at OFFSET, or None when there is none."""
    if len(block) < BLOCK_SIZE_AT + 2:
        return None
    _, sector, version, magic, device, cache_set = HEAD.unpack_from(block)
    if magic != MAGIC or sector * SECTOR != OFFSET or version not in ROLES:
        return None
    (block_sectors,) = struct.unpack_from("<H", block, BLOCK_SIZE_AT)
    return Superblock(
        ROLES[version], str(uuid.UUID(bytes=device)), str(uuid.UUID(bytes=cache_set)), block_sectors * SECTOR
    )


def erase(device: Path) -> None:
    """Overwrite the superblock with zeros, durably. Raises HostError. The caller has proven that it may go.

    Nothing else on a cache device is a signature, so nothing else makes udev register it again.
    """
    try:
        descriptor = os.open(device, os.O_RDWR | os.O_EXCL | os.O_CLOEXEC)
        try:
            os.pwrite(descriptor, bytes(OFFSET), OFFSET)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise HostError(f"cannot erase the superblock on {device}: {error.strerror}") from error


def read(device: Path) -> Superblock | None:
    """The superblock on a device, or None. A device that cannot be opened or read has none to show.

    Opens read-only: closing a descriptor that was open for writing makes udev register the disk.
    """
    try:
        descriptor = os.open(device, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        # The kernel writes superblocks past the page cache, which may still hold what was there before: drop it.
        # All of it, because only whole pages are dropped and a page may be larger than this range.
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        return parse(os.pread(descriptor, OFFSET, OFFSET))
    except OSError:
        return None
    finally:
        os.close(descriptor)
