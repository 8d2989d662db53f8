"""The head of a volume that is longer than its filesystem: on the volume itself, behind what the filesystem uses.

The filesystem's superblock says how much that is. The composed device ends where the head begins, so the filesystem
cannot grow over it there. It can where the volume is mounted by itself. So before the volume is composed, or the head
erased, the superblock is read again; and as its new size may be in a journal alone, what is not the head's own has to
be zeros still. The place is counted from the begin of the volume; record, label and tombstone have it. A volume that
grows again has it where it was. Sources: fs/ext4/ext4.h, fs/xfs/libxfs/xfs_format.h, btrfs_tree.h of Linux.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from elastio.errors import ConfigError, HostError, NotOursError
from elastio.host import heads, tombstone
from elastio.host.blockdev import is_zero
from elastio.host.commands import Run
from elastio.host.heads import BLOCK_BYTES, LEAST_BYTES, Head, Volume
from elastio.host.superblock import bytes_of
from elastio.host.sysfs import Sysfs
from elastio.host.tombstone import BTRFS_MAGIC, BTRFS_MAGIC_AT, BTRFS_SUPERBLOCK
from elastio.units import KIB, MIB, SECTOR, format_size
from elastio_setup.adopted_volume import describe, probe

EXT4_MAGIC, EXT4_64BIT, XFS_MAGIC = b"\x53\xef", 0x80, b"XFSB"


def end_of(node: Path, filesystem: str) -> int | None:
    """Where it ends by its superblock, in bytes; None if that is not there, or it is none that says so."""
    match filesystem:
        case "ext4":
            block = bytes_of(node, KIB, KIB)
            if block[0x38:0x3A] == EXT4_MAGIC:
                fields = (0x04, 0x150, 0x60, 0x18)
                low, high, flags, shift = (int.from_bytes(block[at : at + 4], "little") for at in fields)
                return ((high << 32 if flags & EXT4_64BIT else 0) | low) * KIB << min(shift, 16)
        case "xfs":
            block = bytes_of(node, 0, SECTOR)
            # What it has of a realtime section may lie behind the rest, on the same device.
            if block.startswith(XFS_MAGIC) and not any(block[16:24]):
                return int.from_bytes(block[8:16]) * int.from_bytes(block[4:8])
        case "btrfs":
            block = bytes_of(node, BTRFS_SUPERBLOCK, BLOCK_BYTES)
            if block[BTRFS_MAGIC_AT:].startswith(BTRFS_MAGIC):
                return int.from_bytes(block[0xD1:0xD9], "little")  # of this device
    return None


def _first_sector(node: Path, filesystem: str) -> int:
    """Where the head begins, or would; 0 if nobody knows. As in a partition, it is aligned."""
    return -(-(end_of(node, filesystem) or 0) // MIB) * MIB // SECTOR


def place(sysfs: Sysfs, device: str, volume: Volume, run: Run) -> int:
    """The first sector of the head. Raises ConfigError without room, and NotOursError if something is there.

    Or if the filesystem is not what a device shows that ends there: a RAID, for one, is recognized by its last sectors.
    """
    node = sysfs.path(f"dev/{device}")
    first = _first_sector(node, volume.filesystem)
    size = int(sysfs.read(f"sys/class/block/{device}/size"))
    if not first or first + LEAST_BYTES // SECTOR > size:
        text = f"name a blank disk or partition of at least {format_size(LEAST_BYTES)} for the head with --head"
        other = "or enlarge the volume, and not its filesystem (ext4, xfs, btrfs)"
        raise ConfigError(f"{text}, {other}; nothing was changed", code="adopt.head")
    if not _are_zeros(node, [(first * SECTOR, first * SECTOR + LEAST_BYTES)]):
        text = f"behind its filesystem, from {format_size(first * SECTOR)} on, /dev/{device} is not zeros"
        raise NotOursError(f"{text}: name another device for the head with --head", code="head.not_blank")
    shown = probe(sysfs, device, run, first * SECTOR)
    if (shown.get("TYPE"), shown.get("UUID")) != (volume.filesystem, volume.uuid):
        found = shown.get("TYPE", "no single filesystem")
        text = f"the first {format_size(first * SECTOR)} of /dev/{device} alone are recognized as {found}"
        raise NotOursError(f"{text}: name another device for the head with --head", code="head.recognized")
    return first


def is_taken(sysfs: Sysfs, device: str, head: Head) -> bool:
    """Whether the head lies on this volume, and somebody else has its place now. Raises HostError."""
    if not head.first_sector:
        return False
    node = sysfs.path(f"dev/{device}")
    end = end_of(node, head.volume.filesystem) or 0
    return end > head.begin or not _are_zeros(node, heads.gaps(head))


def require_there(sysfs: Sysfs, device: str, head: Head, head_device: str | None) -> None:
    """Of a head on the volume: raises NotOursError if the filesystem has grown over it, HostError if it is gone.

    With its tombstone it cannot have grown, and its newest data may be in a cache, for which it has to be composed.
    """
    release = f"`elastio device release {head.volume.uuid}` leaves it as it is"
    if tombstone.read(sysfs.path(f"dev/{device}")) is None and is_taken(sysfs, device, head):
        text = f"the filesystem on /dev/{device} was enlarged over the place of its head, or that was written to"
        raise NotOursError(f"{text}: it is not composed; {release}", code="head.reached")
    if head.first_sector and head_device is None:
        text = f"/dev/{device} has no head behind its filesystem: it was overwritten, or the volume reverted to a copy"
        raise HostError(f"{text}; {release}", code="head.missing")


def _are_zeros(node: Path, places: Iterable[tuple[int, int]]) -> bool:
    try:
        return all(is_zero(node, begin, end - begin) for begin, end in places)
    except OSError as error:
        raise HostError(f"{node} cannot be read: {error.strerror}", code="head.unreadable") from error


def read(sysfs: Sysfs, device: str, run: Run) -> Head | None:
    """The head behind the filesystem of this volume, or behind its tombstone; None if there is none."""
    node = sysfs.path(f"dev/{device}")
    stone, volume = tombstone.read(node), describe(sysfs, device, run)
    first = stone.at if stone else _first_sector(node, volume.filesystem) if volume else 0
    return heads.read(node, first) if first else None
