"""What may be on a volume that is adopted: its own check, and by how many of its first sectors it is recognized.

These move to the head while there is a cache (`host.tombstone`), those of a physical volume as long as it is adopted.
ext4, XFS and physical volumes, with their label in one of the first four sectors, are recognized by their first block.
LUKS2 has a second header. libblkid recognizes it at the places of SECOND_HEADERS, and cryptsetup writes the first
header again from it, over a tombstone. btrfs has its superblock at 64 KiB, and nothing but it in the first MiB; its
copies are read by nobody who is not told to. Sources: lib/luks2/luks2.h of cryptsetup, superblocks/luks.c of libblkid,
btrfs(5).
"""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import NamedTemporaryFile

from elastio.errors import HostError, NotOursError
from elastio.host.commands import Run
from elastio.host.heads import BLOCK_BYTES, MOST_SAVED_SECTORS, PHYSICAL_VOLUME, SAVED_SECTORS, Volume
from elastio.host.superblock import bytes_of
from elastio.host.sysfs import Sysfs
from elastio.host.tombstone import BTRFS_SUPERBLOCK, SECOND_HEADERS, SECOND_MAGIC
from elastio.units import MIB, SECTOR, format_size

LUKS, BTRFS = "crypto_LUKS", "btrfs"
CONTENTS = ("ext4", "xfs", LUKS, BTRFS, PHYSICAL_VOLUME)
# In it, little-endian: the root of the log tree, or 0; the number of devices.
LOG_ROOT, DEVICES = slice(0x60, 0x68), slice(0x88, 0x90)
CHECKS = {
    "ext4": ["e2fsck", "-fn"],
    "xfs": ["xfs_repair", "-n"],
    BTRFS: ["btrfs", "check", "--readonly"],
    PHYSICAL_VOLUME: ["pvck"],
}
# What `require_sound` runs.
PROGRAMS = {
    "ext4": ("dumpe2fs", "e2fsck"),
    "xfs": ("xfs_logprint", "xfs_repair"),
    BTRFS: ("btrfs",),
    LUKS: ("cryptsetup",),
    PHYSICAL_VOLUME: ("pvck",),
}
# All of a large filesystem is read.
CHECK_S = 3600.0
DUMP_S = 60.0


def saved_sectors(device: str, volume: Volume, sysfs: Sysfs) -> int:
    """How many of its first sectors move to the head. Raises NotOursError if too many, or it has several volumes."""
    node = sysfs.path(f"dev/{device}")
    if volume.filesystem == BTRFS:
        if int.from_bytes(bytes_of(node, BTRFS_SUPERBLOCK, BLOCK_BYTES)[DEVICES], "little") != 1:
            text = f"/dev/{device} has a btrfs that lies on several devices: nothing was changed"
            raise NotOursError(text, code="adopt.devices")
        return (BTRFS_SUPERBLOCK + BLOCK_BYTES) // SECTOR
    if volume.filesystem != LUKS:
        return SAVED_SECTORS
    # Also one that an older LUKS has left.
    found = [at for at in SECOND_HEADERS if bytes_of(node, at, BLOCK_BYTES).startswith(SECOND_MAGIC)]
    sectors = (max(found, default=0) + BLOCK_BYTES) // SECTOR
    if sectors > MOST_SAVED_SECTORS:
        most = format_size(MOST_SAVED_SECTORS * SECTOR - BLOCK_BYTES)
        text = f"the second header of LUKS on /dev/{device} lies at {format_size(found[-1])}, and {most} is the most"
        raise NotOursError(f"{text}: nothing was changed", code="adopt.luks")
    return sectors


def require_sound(device: str, volume: Volume, sysfs: Sysfs, run: Run) -> None:
    """Its own check, which writes nothing. Raises NotOursError if that fails, or a journal has to be replayed."""
    if volume.filesystem == LUKS:
        _require_sound_luks(device, volume, sysfs, run)
        return
    node = sysfs.path(f"dev/{device}")
    if _has_journal(node, volume, run):
        text = f"the journal of /dev/{device} has to be replayed: mount and unmount it first; nothing was changed"
        raise NotOursError(text, code="adopt.journal")
    _check([*CHECKS[volume.filesystem], str(node)], device, run)


def _has_journal(node: Path, volume: Volume, run: Run) -> bool:
    """Whether it has to be replayed."""
    match volume.filesystem:
        case "ext4":
            return "needs_recovery" in run(["dumpe2fs", "-h", str(node)], timeout_s=DUMP_S)
        case "xfs":
            return "<CLEAN>" not in run(["xfs_logprint", "-t", str(node)], timeout_s=DUMP_S)
    return volume.filesystem == BTRFS and any(bytes_of(node, BTRFS_SUPERBLOCK, BLOCK_BYTES)[LOG_ROOT])


def _require_sound_luks(device: str, volume: Volume, sysfs: Sysfs, run: Run) -> None:
    """cryptsetup repairs what it reads: so it reads a copy of the headers, in a file that is as long as the volume."""
    headers = bytes_of(sysfs.path(f"dev/{device}"), 0, 2 * MIB)
    folder = sysfs.path("run")
    folder.mkdir(exist_ok=True)
    with NamedTemporaryFile(dir=folder, prefix="elastio-luks-") as file:
        file.write(headers)
        file.truncate(volume.size_sectors * SECTOR)
        file.flush()
        _check(["cryptsetup", "luksDump", file.name], device, run)
        if os.pread(file.fileno(), len(headers), 0) != headers:
            text = f"one of the two headers of LUKS on /dev/{device} is damaged: `cryptsetup isLuks` repairs it"
            raise NotOursError(f"{text}; nothing was changed", code="adopt.damaged")


def _check(argv: list[str], device: str, run: Run) -> None:
    try:
        run(argv, timeout_s=CHECK_S)
    except HostError as error:
        if error.code != "program.failed":
            raise
        raise NotOursError(
            f"what is on /dev/{device} is damaged ({error}): nothing was changed", code="adopt.damaged"
        ) from error
