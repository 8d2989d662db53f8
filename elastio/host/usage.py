"""What is in use on a disk, and by whom: the one answer to "is it mounted, held, or a swap area".

Theory of operation. The number of a mount names its device only for filesystems with a single device. So a use is
searched for from both sides:

- upwards in /sys: the partitions of the disk, and what holds it or them (device-mapper, md, bcache), over any number of
  layers, with the members of a btrfs of several devices;
- in the mount table: mounts whose number, source or options name one of these devices; overlays with a layer on such a
  mount; loop devices whose file lies on one, and again what is above them;
- in /proc/swaps: areas on these devices, and files on these mounts.

Some users show up nowhere: ZFS, a mount in another namespace, a filesystem that was unmounted lazily. The kernel
knows them: they have claimed the device, and an exclusive open fails. `in_use` asks for that, too; it opens the device,
so a periodic scan only calls `uses`.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from elastio.host import mounts
from elastio.host.mounts import Mount
from elastio.host.sysfs import Sysfs

BTRFS = "sys/fs/btrfs"
SWAPS = "proc/swaps"
# Filesystems on a pool whose devices neither the mount table nor /sys shows.
POOLED = ("zfs",)
# A node that is not there, or whose device is being removed: nobody has claimed it, or EBUSY would come first.
GONE = (errno.ENOENT, errno.ENXIO, errno.ENODEV, errno.ENOMEDIUM)


class UseKind(StrEnum):
    PARTITION = "partition"
    HOLDER = "holder"
    MOUNT = "mount"
    SWAP = "swap"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Use:
    """One user of a disk. `by`: the partition, the holder, the mount point or the swap area.

    Of an unknown use it is what is known, as the end of a sentence about the disk.
    """

    kind: UseKind
    by: str

    def __str__(self) -> str:
        match self.kind:
            case UseKind.PARTITION:
                return f"has the partition {self.by}"
            case UseKind.HOLDER:
                return f"is used by {self.by}"
            case UseKind.MOUNT:
                return f"is mounted at {self.by}"
            case UseKind.SWAP:
                return f"has the swap area {self.by}"
        return self.by


def described(sysfs: Sysfs, found: tuple[Use, ...]) -> str:
    """The uses as the end of a sentence about the disk, and what closes those that are of dm-crypt or LVM."""
    holders = {use.by: sysfs.read_or(f"sys/block/{use.by}/dm/uuid", "") for use in found if use.kind is UseKind.HOLDER}
    opened = [sysfs.read(f"sys/block/{name}/dm/name") for name, uuid in holders.items() if uuid.startswith("CRYPT-")]
    remedy = f"; unmount what is on it, and close it: `cryptsetup close {opened[-1]}`" if opened else ""
    if any(uuid.startswith("LVM-") for uuid in holders.values()):
        remedy += "; unmount its logical volumes, and deactivate the volume group: `vgchange -an`"
    return f"{', '.join(map(str, found))}{remedy}"


def partitions(sysfs: Sysfs, disk: str) -> tuple[str, ...]:
    return tuple(name for name in sysfs.names(f"sys/block/{disk}") if disk and name.startswith(disk))


def directory_of(sysfs: Sysfs, name: str) -> str:
    """The directory of a disk or a partition in /sys."""
    own = f"sys/block/{name}"
    if sysfs.exists(own):
        return own
    disks = (disk for disk in sysfs.names("sys/block") if name.startswith(disk))
    return next((f"sys/block/{d}/{name}" for d in disks if sysfs.exists(f"sys/block/{d}/{name}")), own)


def tree(sysfs: Sysfs, name: str) -> dict[str, str]:
    """The device, its partitions, and all that is stacked on them, each once, with its directory in /sys."""
    found = {name: directory_of(sysfs, name)}
    for each, directory in _growing(found):
        for part in partitions(sysfs, each):
            found.setdefault(part, f"{directory}/{part}")
        for holder in sysfs.names(f"{directory}/holders"):
            found.setdefault(holder, f"sys/block/{holder}")
    return found


def _growing(found: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Every item, also those that are added meanwhile."""
    done = 0
    while done < len(found):
        yield list(found.items())[done]
        done += 1


def is_held(sysfs: Sysfs, disk: str) -> bool:
    """Whether the disk has a partition or a holder: without a look at mounts, for the scan of every second."""
    return bool(partitions(sysfs, disk) or sysfs.names(f"{directory_of(sysfs, disk)}/holders"))


@dataclass(slots=True)
class _Search:
    """`devices`: the tree of the disk, with loop devices on it. `on_it`: the mounts that lie on one of them."""

    sysfs: Sysfs
    table: tuple[Mount, ...]
    devices: dict[str, str]
    on_it: list[Mount] = field(default_factory=list)

    def run(self) -> None:
        """Mounts show loop devices, and these more mounts: until nothing is new."""
        before = -1
        while before != (before := len(self.devices) + len(self.on_it)):
            self._find_mounts()
            self._find_loops()

    def _find_mounts(self) -> None:
        numbers = self.numbers()
        names = (frozenset(self.devices) | self._btrfs_members()) - {""}
        for mount in self.table:
            if mount not in self.on_it and (
                mounts.is_on(self.sysfs, mount, numbers, names) or any(self.has(layer) for layer in mount.layers)
            ):
                self.on_it.append(mount)

    def numbers(self) -> frozenset[str]:
        """The `major:minor` of all devices."""
        return frozenset(self.sysfs.read_or(f"{d}/dev", "") for d in self.devices.values()) - {""}

    def _btrfs_members(self) -> frozenset[str]:
        """A btrfs of several devices is mounted by the name of one: all of them belong to the mount."""
        sets = (set(self.sysfs.names(f"{BTRFS}/{uuid}/devices")) for uuid in self.sysfs.names(BTRFS))
        return frozenset().union(*(members for members in sets if members & self.devices.keys()))

    def _find_loops(self) -> None:
        for name in self.sysfs.names("sys/block"):
            if name.startswith("loop") and name not in self.devices:
                file = self.sysfs.read_or(f"sys/block/{name}/loop/backing_file", "").removesuffix(" (deleted)")
                if file and self.has(file):
                    self.devices |= tree(self.sysfs, name)

    def has(self, path: str) -> bool:
        """Whether this path lies on one of the mounts."""
        return path.startswith("/") and mounts.below(self.table, path) in self.on_it


def _search(sysfs: Sysfs, disk: str) -> _Search:
    search = _Search(sysfs, mounts.read(sysfs), tree(sysfs, disk))
    search.run()
    return search


def mounts_on(sysfs: Sysfs, disk: str) -> tuple[Mount, ...]:
    """The mounts of what lies on a disk such as `bcache0`, at any height, in mount order. Raises HostError."""
    search = _search(sysfs, disk)
    return tuple(mount for mount in search.table if mount in search.on_it)


def mounted_at(sysfs: Sysfs, disk: str) -> list[str]:
    """The places of `mounts_on`."""
    return [mount.place for mount in mounts_on(sysfs, disk)]


def holds(sysfs: Sysfs, disk: str, folder: Path) -> bool | None:
    """Whether an existing folder lies on the disk. None: its filesystem does not say on which devices it is.

    Raises HostError or OSError.
    """
    number = folder.stat().st_dev
    search = _search(sysfs, disk)
    if f"{os.major(number)}:{os.minor(number)}" in search.numbers():
        return True
    mount = mounts.below(search.table, os.path.realpath(folder))
    if mount in search.on_it:
        return True
    return None if mount is None or mount.kind in POOLED else False


def uses(sysfs: Sysfs, disk: str) -> tuple[Use, ...]:
    """All uses of the disk or partition that /sys and /proc show. Raises HostError if /proc cannot be read."""
    search = _search(sysfs, disk)
    found = [Use(_kind(name, d), name) for name, d in search.devices.items() if name != disk]
    found += [Use(UseKind.MOUNT, mount.place) for mount in search.table if mount in search.on_it]
    for line in sysfs.read_or(SWAPS, "").splitlines()[1:]:
        area = mounts.unescape(line.split(" ")[0].split("\t")[0])
        if mounts.node_name(sysfs, area) in search.devices or search.has(area):
            found.append(Use(UseKind.SWAP, area))
    return tuple(found)


def _kind(name: str, directory: str) -> UseKind:
    return UseKind.HOLDER if directory == f"sys/block/{name}" else UseKind.PARTITION


def in_use(sysfs: Sysfs, disk: str) -> tuple[Use, ...]:
    """`uses`, and where these are none whether the kernel knows of a user, or cannot be asked."""
    found = uses(sysfs, disk)
    if any(use.kind is not UseKind.PARTITION for use in found):
        return found
    reason = unnamed_use(sysfs.path(f"dev/{disk}"))
    return (*found, Use(UseKind.UNKNOWN, reason)) if reason else found


def unnamed_use(node: Path) -> str:
    """Why the device counts as used although nothing names a user; empty if nobody has claimed it."""
    try:
        os.close(os.open(node, os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW))
    except OSError as error:
        if error.errno in GONE:
            return ""
        if error.errno == errno.EBUSY:
            return "is in use, and the kernel does not say by whom (ZFS, a container, a lazy umount)"
        return f"may be in use: it cannot be opened ({error.strerror})"
    return ""
