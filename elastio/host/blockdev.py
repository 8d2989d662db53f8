"""Block devices: found by serial, checked before they are written to, registered with bcache, flushed."""

from __future__ import annotations

import errno
import json
import mmap
import os
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from elastio.core.model import Serial
from elastio.errors import DeviceBusyError, HostError, NotOursError
from elastio.host import commands, superblock, tombstone
from elastio.host.commands import Run
from elastio.host.sysfs import Sysfs, Wait
from elastio.host.usage import UseKind, partitions, uses
from elastio.units import KIB, MIB, SECTOR

# Where a disk in use has its first signature (util-linux, libblkid/src); negative offsets count from the end:
# - filesystems, LVM, LUKS, partition tables, ZFS, md 1.1 and 1.2, swap with pages up to 64 KiB: within the first 68 KiB
#   (the last of them is btrfs, at 64 KiB). Where there are copies elsewhere (LUKS2, ZFS, UDF), one is here, too;
# - VMFS: at 1 MiB;
# - md 0.9 and 1.0, DDF, DRBD, firmware RAID, the second partition table: within the last 132 KiB (md 0.9: 64 to 128).
SIGNED = ((0, 68 * KIB), (MIB, 64 * KIB), (-132 * KIB, 132 * KIB))
# A provider's id may be longer than the 20 bytes virtio and NVMe have for a serial; fewer than these prove nothing.
SHORTEST_SERIAL = 16
CUT_SERIAL = 20
UUID_LENGTH = 36
# Devices that carry no data of their own, or lose it: what lies on them is never looked at.
NO_BACKING = ("bcache", "ram", "zram", "sr")
# What lies on other disks or files. A volume can lie below, or be a copy in a file, so these are searched as well.
VIRTUAL = ("dm-", "loop", "md")
# None of these is a volume.
NO_DISKS = (*NO_BACKING, *VIRTUAL)
REGISTER, REGISTER_S = "sys/fs/bcache/register_quiet", 10.0
ZEROS_BYTES = 256 * KIB  # of a read whose bytes should be zeros
MOST_DIGITS = 20  # of an unsigned 64-bit number, in which the kernel counts sectors


@dataclass(frozen=True, slots=True)
class Disk:
    name: str
    serial: Serial
    size_bytes: int
    node: Path


def _bare(serial: str) -> str:
    return serial.replace("-", "").strip()


def is_same_serial(shown: str, wanted: str) -> bool:
    """Whether the serial that a disk shows is the wanted one.

    Hyphens do not count, and the disk may show only the beginning: EBS drops the hyphen, virtio-blk truncates to 20
    characters. virtio-scsi shows the whole UUID where only those 20 characters are wanted.
    """
    if len(wanted) == CUT_SERIAL and len(shown) == UUID_LENGTH:
        return shown.startswith(wanted)
    shown, wanted = _bare(shown), _bare(wanted)
    return shown == wanted or (len(shown) >= SHORTEST_SERIAL and wanted.startswith(shown))


def disks(sysfs: Sysfs) -> tuple[Disk, ...]:
    """Every disk that shows a serial and a size. A disk that is being removed may show neither for a moment.

    Without those that the kernel hides: the single paths of an NVMe multipath disk.
    """
    found = []
    for name in sysfs.names("sys/block"):
        serial = None if name.startswith(NO_DISKS) else serial_of(sysfs, name)
        if serial is None or sysfs.read_or(f"sys/block/{name}/hidden", "0") == "1":
            continue
        size = _sectors(sysfs.read_or(f"sys/block/{name}/size", "0"), name) * SECTOR
        if size:
            found.append(Disk(name, serial, size, sysfs.path(f"dev/{name}")))
    return tuple(found)


def serial_of(sysfs: Sysfs, name: str) -> Serial | None:
    """The disk's serial, or None. virtio-blk and NVMe show it in a file, SCSI in an inquiry page."""
    device = f"sys/block/{name}/device"
    shown = sysfs.read_or(f"sys/block/{name}/serial", "") or sysfs.read_or(f"{device}/serial", "")
    if not shown.strip() and name.startswith("sd"):
        # SPC, "Unit Serial Number VPD page": a head of four bytes, then the serial.
        shown = sysfs.read_or(f"{device}/vpd_pg80", "")[4:].strip("\0")
    if not shown.strip() and name.startswith("sd"):
        # Designators of type T10 end with the serial; other types do not contain it.
        wwid = sysfs.read_or(f"{device}/wwid", "").split()
        shown = wwid[-1] if len(wwid) > 1 and wwid[0].startswith("t10.") else ""
    return Serial(shown.strip()) if shown.strip() else None


def disk_of(sysfs: Sysfs, name: str) -> str:
    """The whole disk of a partition; the name itself for a disk."""
    if not sysfs.exists(f"sys/class/block/{name}/partition"):
        return name
    target = sysfs.target(f"sys/class/block/{name}") or name
    return target.rstrip("/").split("/")[-2] if target.count("/") else name


def disks_below(sysfs: Sysfs, device: str) -> tuple[str, ...]:
    """The disks on which a disk, a partition or a mapped device lies, sorted; none for a device that is gone."""
    if lower := sysfs.names(f"sys/class/block/{device}/slaves"):
        return tuple(sorted({disk for name in lower for disk in disks_below(sysfs, name)}))
    return (disk_of(sysfs, device),) if sysfs.target(f"sys/class/block/{device}") else ()


def _sectors(text: str, name: str) -> int:
    if not (text or "0").isdecimal() or len(text) > MOST_DIGITS:
        raise HostError(f"disk {name} shows {text[:MOST_DIGITS]!r} as its size")
    return int(text or 0)


def why_no_backing(disk: str) -> str:
    """Why a disk or partition of this name cannot be a backing device, as the end of a sentence; empty if it can.

    The agent tells a backing device from a copy of it by the serial of its disk, and while it attaches a cache it
    limits what is in flight in that disk's queue. These have neither.
    """
    if not disk.startswith(NO_DISKS):
        return ""
    return (
        "is a virtual device, without a serial and a queue of its own: use a disk of the cloud, or a partition of one"
    )


def find(sysfs: Sysfs, serial: Serial) -> Disk | None:
    """The one disk with this serial. Raises NotOursError when several show it."""
    same = [d for d in disks(sysfs) if is_same_serial(d.serial, serial)]
    if len(same) > 1:
        text = f"several disks show the serial {serial}: {', '.join(d.name for d in same)}"
        raise NotOursError(text, code="serial.ambiguous")
    return same[0] if same else None


def directories(sysfs: Sysfs, excluded: tuple[str, ...]) -> Iterator[tuple[str, str, str]]:
    """Every disk and partition: the disk's name, the device's own name, and its directory in /sys."""
    for disk in sysfs.names("sys/block"):
        if not disk.startswith(excluded):
            yield disk, disk, f"sys/block/{disk}"
            yield from ((disk, part, f"sys/block/{disk}/{part}") for part in partitions(sysfs, disk))


def is_blank(disk: Disk) -> bool:
    """Whether all bytes are zero where libblkid finds signatures: SIGNED. False for a disk that cannot be read.

    No more is read because a boost waits for it. Starting a program would take several tenths of a second on a slow
    processor.
    """
    try:
        return all(is_zero(disk.node, *place(at, length, disk.size_bytes)) for at, length in SIGNED)
    except OSError:
        return False


def place(at: int, length: int, size_bytes: int) -> tuple[int, int]:
    """Offset and length within a disk of this size; a negative offset counts from the end."""
    begin = max(0, size_bytes + at) if at < 0 else min(at, size_bytes)
    return begin, min(length, size_bytes - begin)


def is_zero(node: Path, at: int, length: int) -> bool:
    """Whether all these bytes can be read and are zero. Raises OSError.

    Bypasses the page cache where possible, which would take most of the time on a slow processor.
    """
    if length == 0:
        return True
    try:
        return _reads_zeros(node, at, length, os.O_DIRECT)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return _reads_zeros(node, at, length, 0)


def _reads_zeros(node: Path, at: int, length: int, flags: int) -> bool:
    descriptor = os.open(node, os.O_RDONLY | os.O_CLOEXEC | flags)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        zeros = bytes(min(length, ZEROS_BYTES))
        block = memoryview(mmap.mmap(-1, len(zeros)))  # aligned to a page, as O_DIRECT wants it
        for begin in range(at, at + length, len(zeros)):
            wanted = zeros[: at + length - begin]
            read = os.preadv(descriptor, [block[: len(wanted)]], begin)
            if read != len(wanted) or bytes(block[:read]) != wanted:  # a short read proves nothing
                return False
        return True
    finally:
        os.close(descriptor)


def signatures(disk: Disk, run: Run = commands.run) -> tuple[str, ...]:
    """Types of every signature on the disk (`bcache`, `ext4`, `gpt`...), as wipefs finds them."""
    return () if is_blank(disk) else run_wipefs(disk.node, run)


def run_wipefs(node: Path, run: Run) -> tuple[str, ...]:
    """Types of every signature that wipefs finds; it changes nothing. Raises HostError."""
    text = run(["wipefs", "--no-act", "--json", str(node)], timeout_s=10)
    try:
        found = json.loads(text).get("signatures") or [] if text.strip() else []
        return tuple(sorted({str(entry["type"]) for entry in found}))
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        text = f"the output of wipefs about {node} is not valid: nothing was changed"
        raise HostError(text, code="wipefs.output") from error


def require_unused(sysfs: Sysfs, disk: Disk, *, size_bytes: int, run: Run = commands.run) -> tuple[str, ...]:
    """Raises unless the disk has this size, and no holder, mount, partition, head or signature, except a cache's.

    Returns the signatures it has.
    """
    require_size(disk, size_bytes)
    require_free(sysfs, disk)
    tombstone.require_none(disk.node, f"disk {disk.name}", "disk.head")
    found = signatures(disk, run)
    foreign = [s for s in found if s != "bcache"]
    if foreign:
        text = f"disk {disk.name} carries {', '.join(foreign)}: it was not touched"
        raise NotOursError(text, code="disk.signature")
    written = superblock.read(disk.node)
    if written is not None and written.role is superblock.Role.BACKING:
        text = f"disk {disk.name} is itself a backing device of bcache: it was not touched"
        raise NotOursError(text, code="disk.backing")
    return found


def require_size(disk: Disk, size_bytes: int) -> None:
    if disk.size_bytes != size_bytes:
        text = f"disk {disk.name} has {disk.size_bytes} bytes, not {size_bytes}: it was not touched"
        raise NotOursError(text, code="disk.size")


def require_free(sysfs: Sysfs, disk: Disk) -> None:
    """Raises DeviceBusyError while the disk has a holder, is mounted, is a swap area, or is open exclusively."""
    found = uses(sysfs, disk.name)
    if found:
        is_mounted = any(use.kind in (UseKind.MOUNT, UseKind.SWAP) for use in found)
        text = f"disk {disk.name} {', '.join(map(str, found))}: it was not touched"
        raise DeviceBusyError(text, code="disk.mounted" if is_mounted else "disk.held")
    require_exclusive(disk.node)


def require_same(sysfs: Sysfs, disk: Disk, descriptor: int) -> None:
    """Raises NotOursError unless the open descriptor is still this disk, with the same name, serial, size and number.

    The kernel does not reuse the number while the descriptor is open: the result is valid until it is closed.
    """
    if find(sysfs, disk.serial) != disk:
        raise NotOursError(
            f"disk {disk.name} has changed since it was checked: it was not touched", code="disk.changed"
        )
    status = os.fstat(descriptor)
    number = f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"
    shown = sysfs.read_or(f"sys/block/{disk.name}/dev", "none")
    # A recorded tree, as tests use it, has plain files for devices; under the real /dev only block devices count.
    is_recorded = sysfs.root != Path("/") and stat.S_ISREG(status.st_mode)
    if not is_recorded and not (stat.S_ISBLK(status.st_mode) and number == shown):
        text = f"{disk.node} is not disk {disk.name} ({number}, not {shown}): it was not touched"
        raise NotOursError(text, code="node.other")


def is_block_device(sysfs: Sysfs, name: str, mode: int) -> bool:
    """By the mode of its node. A recorded tree, as tests use it, has plain files for the devices that it knows."""
    is_recorded = sysfs.root != Path("/") and stat.S_ISREG(mode)
    return stat.S_ISBLK(mode) or (is_recorded and sysfs.exists(f"sys/class/block/{name}"))


def require_exclusive(node: Path) -> None:
    """Raises DeviceBusyError while the device is open exclusively, which every mount and holder does."""
    try:
        os.close(os.open(node, os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW))
    except OSError as error:
        raise DeviceBusyError(f"{node} is in use: {error.strerror}", code="disk.open") from error


def wipe(disk: Disk, run: Run = commands.run) -> None:
    """Erase every signature. bcache's would make udev register the disk again."""
    run(["wipefs", "--all", "--quiet", str(disk.node)], timeout_s=15)


def register(sysfs: Sysfs, node: Path, is_registered: Callable[[], bool], wait: Wait, seconds: float) -> None:
    """Have bcache register a device. Raises HostError when it is not registered in time.

    udev registers it, too, but up to 1.2 s later. Whoever comes second gets EINVAL or EBUSY, which is no failure.
    By a process of its own: if the one that registers a cache set is killed at the wrong instant, the kernel dies (see
    `kernel`), and this process is killed with the agent, or by it after a time-out.
    """
    refused, end = "", time.monotonic() + seconds
    try:
        sysfs.write_apart(REGISTER, str(node), seconds)
    except HostError as error:
        refused = str(error)
    if not wait(is_registered, max(0.0, end - time.monotonic())):
        raise HostError(f"bcache did not register {node} within {seconds:g} s. {refused}", code="register.timeout")


def rewrite_first_block(node: Path) -> None:
    """Read the first 4 KiB of a device and write them back, while nothing else can write there.

    The device is opened exclusively: a filesystem may change the block in its own memory at any time, and what was read
    before would then overwrite the change. Raises DeviceBusyError while the device is in use: the next write of its
    user has the same effect. Raises HostError for any other failure.
    """
    try:
        with mmap.mmap(-1, 4 * KIB) as block:  # aligned to a page, as O_DIRECT wants it
            descriptor = os.open(node, os.O_RDWR | os.O_EXCL | os.O_CLOEXEC | os.O_DIRECT | os.O_SYNC)
            try:
                if os.preadv(descriptor, [block], 0) != len(block) or os.pwritev(descriptor, [block], 0) != len(block):
                    raise HostError(f"the first block of {node} could not be rewritten")
            finally:
                os.close(descriptor)
    except OSError as error:
        kind = DeviceBusyError if error.errno == errno.EBUSY else HostError
        raise kind(f"cannot rewrite the first block of {node}: {error.strerror}") from error


def make_durable(node: Path) -> None:
    """fsync a block device, which flushes its volatile write cache. bcache itself never does."""
    try:
        descriptor = os.open(node, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise HostError(f"cannot flush the write cache of {node}: {error.strerror}", code="fsync") from error
