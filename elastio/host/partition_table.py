"""A partition table for a volume that was a backing device: it shows the same bytes as the adaptive device did.

Theory of operation. bcache's data begins 8 KiB or 1 MiB into the volume, and only its superblock lies before it. One
entry of a DOS partition table, in the first sector, says where the data begins. The kernel then shows it as a
partition, on every machine, with no program and no record, which a table of device-mapper would need at each boot. A
GPT would need sectors at the end of the volume, and these are data.

The table is written first and the superblock is erased after it, each durably, through one descriptor that has claimed
the device. Whatever a power cut leaves in between, the kernel lets one user have the volume as a backing device or as
the partition, never both, and without a cache both show the same bytes. Source: block/partitions/msdos.c,
bd_may_claim(). libblkid before 2.39 takes such a volume for a backing device, and a later one for the partition alone.
So no cache may be attached while the table is there (`is_left`), and it is taken back before bcache gets the volume.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import UUID

from elastio.errors import DeviceBusyError, HostError, NotOursError
from elastio.host import superblock
from elastio.host.superblock import Verify
from elastio.host.sysfs import Sysfs
from elastio.units import SECTOR

# The disk's identity, two zeros, and the first of four entries: not bootable, no cylinders, Linux, begin and length.
TABLE = struct.Struct("<440xI2xB3sB3sII48x2s")
NO_CYLINDER, LINUX, MAGIC = b"\xfe\xff\xff", 0x83, b"\x55\xaa"
MOST_BLOCKS = 2**32 - 1
BEFORE_DATA = 2 * superblock.OFFSET  # the first sector, zeros, and bcache's superblock

Show = Callable[[int], None]  # see `reread`


def render(backing_uuid: str, *, offset_sectors: int, size_sectors: int, block_bytes: int) -> bytes:
    """The first sector: one partition from the offset to the end of the volume. The same for the same volume.

    `block_bytes` is the volume's logical block size, in which the table counts. Raises NotOursError where it cannot.
    """
    per_block = block_bytes // SECTOR
    begin, length = offset_sectors // per_block, (size_sectors - offset_sectors) // per_block
    if offset_sectors % per_block or not 0 < length <= MOST_BLOCKS:
        text = f"no partition table can name the data: it takes {length} blocks from {begin} on, and 2 TiB is the most"
        raise NotOursError(f"{text}; nothing was changed", code="release.large")
    return TABLE.pack(_identity(backing_uuid), 0, NO_CYLINDER, LINUX, NO_CYLINDER, begin, length, MAGIC)


def require_replaceable(block: bytes, table: bytes, backing_uuid: str) -> None:
    """Whether the superblock may go: `block` is what lies before the data. Raises NotOursError.

    It is this backing device's, it needs no cache, and the first sector is empty or has the table already.
    """
    found = superblock.parse(block[superblock.OFFSET :])
    if found is None or found.uuid != backing_uuid or found.role is not superblock.Role.BACKING:
        raise NotOursError("the volume has another superblock than its bcache device", code="release.other")
    if not superblock.is_without_cache(block[superblock.OFFSET :]):
        text = "the superblock names a cache, which may hold newer data: flush and detach it first"
        raise NotOursError(f"{text}; nothing was changed", code="release.cache")
    if block[:SECTOR] not in (bytes(SECTOR), table):
        raise NotOursError("the first sector is not empty: nothing was changed", code="release.first_sector")


def is_left(block: bytes, block_bytes: int) -> bool:
    """Whether the first sector names the data as a partition, while there is a superblock: a release was interrupted.

    `block` is what lies before the data.
    """
    found = superblock.parse(block[superblock.OFFSET :])
    identity, _, _, _, _, begin, _, magic = TABLE.unpack_from(block)
    if found is None or (identity, magic) != (_identity(found.uuid), MAGIC):
        return False
    try:
        return bool(begin * block_bytes == SECTOR * superblock.data_offset(block[superblock.OFFSET :]))
    except NotOursError:  # of a cache, or not whole: no release has written before it
        return False


def why_no_cache(sysfs: Sysfs, disk: str) -> str:
    """Why what is on this disk gets no cache now; empty: the table does not forbid it. Raises HostError."""
    block_bytes = int(sysfs.read_or(f"sys/block/{disk}/queue/logical_block_size", "512"))
    if not is_left(read(sysfs.path(f"dev/{disk}")), block_bytes):
        return ""
    return f"`elastio device release /dev/{disk}` was interrupted, and its data would be shown without the cache"


def _identity(backing_uuid: str) -> int:
    return UUID(backing_uuid).fields[0] or 1


def take_back(node: Path, block_bytes: int, verify: Verify, show: Show) -> None:
    """Zeros in place of a table that an interrupted release has left; else nothing is written.

    Raises DeviceBusyError while the partition is in use, HostError or NotOursError.
    """
    if is_left(read(node), block_bytes):
        with _claimed(node, verify) as descriptor:
            if is_left(_read(descriptor), block_bytes):
                os.pwrite(descriptor, bytes(SECTOR), 0)
                os.fsync(descriptor)
                with suppress(OSError):
                    show(descriptor)


@contextmanager
def _claimed(node: Path, verify: Verify) -> Iterator[int]:
    """The device as `superblock.claimed`. Raises DeviceBusyError, or HostError also for what fails inside."""
    try:
        with superblock.claimed(node, verify) as descriptor:
            yield descriptor
    except OSError as error:
        if error.errno == errno.EBUSY:
            text = f"{node} or its partition is in use: unmount it, and give the command again"
            raise DeviceBusyError(text, code="release.busy") from error
        text = f"the partition table of {node} cannot be written: {error.strerror}"
        raise HostError(text, code="release.write") from error


def reread(descriptor: int) -> None:
    """Have the kernel read the table: BLKRRPART of linux/fs.h. Raises OSError where it refuses."""
    fcntl.ioctl(descriptor, 0x125F)


def replace_superblock(node: Path, table: bytes, backing_uuid: str, verify: Verify, show: Show) -> None:
    """Write the table, and erase the superblock. Raises DeviceBusyError, HostError or NotOursError.

    `verify` as in `superblock`; what is on the device is checked once more. The kernel shows the partition before the
    superblock goes, where it can: who is killed in between leaves nothing that needs a boot.
    """
    with _claimed(node, verify) as descriptor:
        require_replaceable(_read(descriptor), table, backing_uuid)
        os.pwrite(descriptor, table, 0)
        os.fsync(descriptor)
        with suppress(OSError):
            show(descriptor)
        os.pwrite(descriptor, bytes(superblock.OFFSET), superblock.OFFSET)
        os.fsync(descriptor)


def read(node: Path) -> bytes:
    """What lies before the data. Raises HostError."""
    return superblock.bytes_of(node, 0, BEFORE_DATA)


def _read(descriptor: int) -> bytes:
    """Past the page cache: bcache writes its superblock past it."""
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    return os.pread(descriptor, BEFORE_DATA, 0)
