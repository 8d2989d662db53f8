"""Format a blank volume as a bcache backing device. Nothing is written before every check has passed.

Whether a device that somebody names for a format is empty, by reading it: no signature is not enough.

A database on a raw volume, or an encrypted one whose header lies elsewhere, has no signature that a program knows. All
of a large volume cannot be read in time. So what is read are the places where signatures lie, and one place at random
in each of 256 equal parts. It finds 92 of 100 devices of which a hundredth is used, in pieces that lie anywhere.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from pathlib import Path

from elastio.core.model import Serial
from elastio.errors import DeviceBusyError, HostError, NotOursError
from elastio.host import blockdev, commands, tombstone
from elastio.host.commands import Run
from elastio.host.sysfs import Sysfs, Wait, wait_for
from elastio.host.usage import UseKind, uses
from elastio.units import KIB, SECTOR, format_size

PARTS = 256
READ_BYTES = 64 * KIB
# Any disk's blocks, and a page: direct reads begin at such a place.
ALIGNED = 4 * KIB
ANYWHERE = random.SystemRandom()


def first_data(disk: blockdev.Disk, chance: random.Random = ANYWHERE) -> int | None:
    """Where something else than zeros was read, in bytes from the begin; None if the disk counts as blank.

    Raises HostError if it cannot be read.
    """
    places = [blockdev.place(at, length, disk.size_bytes) for at, length in blockdev.SIGNED]
    part = disk.size_bytes // PARTS
    for number in range(PARTS):
        at = number * part + chance.randrange(max(1, part - READ_BYTES))
        places.append(blockdev.place(at // ALIGNED * ALIGNED, READ_BYTES, disk.size_bytes))
    try:
        return next((at for at, length in places if not blockdev.is_zero(disk.node, at, length)), None)
    except OSError as error:
        text = f"{disk.node} cannot be read ({error.strerror}): nothing was changed"
        raise HostError(text, code="device.unreadable") from error


def shown_state(is_blank: bool) -> str:
    """What an operator has to know before the device is formatted."""
    return "blank" if is_blank else "NOT blank: all data on it will be lost"


def require_blank(disk: blockdev.Disk, shown: str, code: str, *, is_forced: bool) -> bool:
    """Whether the disk is blank. Raises NotOursError if it is not, unless that is forced, and HostError."""
    at = first_data(disk)
    if at is not None and not is_forced:
        raise NotOursError(
            f"{shown} is not blank: there is data near byte {at}; nothing was changed, and --force formats it if "
            "nothing on it is needed",
            code=code,
        )
    return at is None


# The superblock takes 8 KiB; a whole MiB keeps the filesystem behind it aligned as it would be in a partition.
DATA_OFFSET_SECTORS = 2048
MIN_SIZE_BYTES = 64 * 1024 * 1024
UDEV_S = 3.0
APPEAR_S = 15.0
# The error code of each use; the first that applies.
USED = {
    UseKind.MOUNT: "device.mounted",
    UseKind.SWAP: "device.mounted",
    UseKind.PARTITION: "device.partitioned",
    UseKind.HOLDER: "device.held",
}


@dataclass(frozen=True, slots=True)
class VerifiedDevice:
    """A device that passed every check. `is_blank` False: it has data, and may be formatted nevertheless."""

    path: Path  # as the operator named it
    name: str
    size_bytes: int
    block_size_bytes: int
    is_blank: bool = True

    @property
    def shown(self) -> str:
        """What an operator has to know before it is formatted."""
        return f"{format_size(self.size_bytes)}, {shown_state(self.is_blank)}"


@dataclass(frozen=True, slots=True)
class CreatedDevice:
    """The new backing device. `adaptive` is its bcacheN."""

    uuid: str
    adaptive: str


def verify(path: Path, sysfs: Sysfs, run: Run = commands.run, *, is_forced: bool = False) -> VerifiedDevice:
    """Check that the device is blank and unused. Writes nothing. `is_forced`: it need not be blank, only unused.

    Raises HostError, DeviceBusyError or NotOursError; the code names the check that failed.
    """
    name = name_of(path, sysfs)
    directory = f"sys/class/block/{name}"
    if not sysfs.exists(directory):
        raise HostError(f"{path} is not known to the kernel as a block device", code="device.unknown")
    if why := blockdev.why_no_backing(name):
        raise NotOursError(f"{path} {why}; nothing was changed", code="device.virtual")
    if sysfs.exists(f"{directory}/partition"):
        raise NotOursError(f"{path} is a partition: give the whole volume", code="device.partition")
    if sysfs.read_or(f"{directory}/ro", "0") != "0":
        raise HostError(f"{path} is read-only", code="device.read_only")
    _require_unused(path, name, directory, sysfs)
    tombstone.require_none(path, str(path), "device.head")
    found = blockdev.run_wipefs(path, run)
    if found:
        raise NotOursError(
            f"{path} is not blank: it has signatures ({', '.join(found)}); nothing was changed", code="device.signature"
        )
    size = int(sysfs.read(f"{directory}/size")) * SECTOR
    if size < MIN_SIZE_BYTES:
        raise HostError(
            f"{path} has {size} bytes; a backing device needs at least {MIN_SIZE_BYTES}", code="device.too_small"
        )
    node = path.resolve()
    blockdev.require_exclusive(node)
    disk = blockdev.Disk(name, Serial(""), size, node)
    is_blank = require_blank(disk, str(path), "device.not_blank", is_forced=is_forced)
    return VerifiedDevice(path, name, size, int(sysfs.read(f"{directory}/queue/logical_block_size")), is_blank)


def _require_unused(path: Path, name: str, directory: str, sysfs: Sysfs) -> None:
    found = uses(sysfs, name)
    if found:
        code = next(code for kind, code in USED.items() if any(use.kind is kind for use in found))
        raise DeviceBusyError(f"{path} {', '.join(map(str, found))}; nothing was changed", code=code)
    if sysfs.exists(f"{directory}/bcache"):
        raise DeviceBusyError(f"{path} is in use by bcache; nothing was changed", code="device.held")


def format_backing(
    device: VerifiedDevice, sysfs: Sysfs, run: Run = commands.run, wait: Wait = wait_for
) -> CreatedDevice:
    """Write the superblock and wait for bcacheN. Raises HostError; the message says what was already written.

    The block size is the device's own: a larger one rules out a filesystem with smaller sectors, and a smaller one is
    not allowed below the block size of a cache set, which is created with this one.
    """
    run(["modprobe", "bcache"], timeout_s=30)
    argv = ["make-bcache", "-B", "-w", str(device.block_size_bytes), "--data-offset", str(DATA_OFFSET_SECTORS)]
    text = run([*argv, str(device.path)], timeout_s=60)
    printed = re.search(r"^UUID:\s+([0-9a-f-]{36})$", text, re.MULTILINE)
    if printed is None:
        raise HostError(
            f"make-bcache wrote to {device.path} and printed no UUID: see `bcache-super-show {device.path}`",
            code="make_bcache.output",
        )
    uuid = printed[1]
    directory = f"sys/class/block/{device.name}/bcache"
    if not wait(lambda: sysfs.exists(f"{directory}/backing_dev_uuid"), UDEV_S):
        sysfs.write_apart(blockdev.REGISTER, str(device.path), APPEAR_S)
    if not wait(lambda: sysfs.link(f"{directory}/dev") is not None, APPEAR_S):
        raise HostError(
            f"{device.path} is now a backing device (UUID {uuid}), but the kernel shows no /dev/bcacheN for it "
            f"after {APPEAR_S:.0f} s: see `dmesg`",
            code="bcache.not_running",
        )
    shown = sysfs.read(f"{directory}/backing_dev_uuid")
    if shown != uuid:
        raise HostError(
            f"the kernel shows UUID {shown} for {device.path}, but make-bcache wrote {uuid}", code="bcache.other_uuid"
        )
    return CreatedDevice(uuid, sysfs.link(f"{directory}/dev") or "")


def name_of(path: Path, sysfs: Sysfs) -> str:
    """The kernel's name of a node, or of a link to one. Raises HostError."""
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise HostError(f"{path} cannot be opened: {error.strerror}", code="device.missing") from error
    name = path.resolve().name
    if not blockdev.is_block_device(sysfs, name, mode) or not sysfs.exists(f"sys/class/block/{name}"):
        raise HostError(f"{path} is not a block device", code="device.type")
    return name
