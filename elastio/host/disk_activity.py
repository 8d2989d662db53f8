"""How busy the disks of this machine are, and which of them a folder lies on. From /proc/diskstats and /sys.

Limits of cgroups on a disk: what blk-throttle holds requests back for, whatever the disk could do. Reads only.

Version 2: `io.max`, a line for each device (Documentation/admin-guide/cgroup-v2.rst). Version 1:
`blkio.throttle.read_bps_device` and `.write_bps_device` (Documentation/admin-guide/cgroup-v1/blkio-controller.rst). A
limit holds for all groups below it, so the one of the group and those of all above it are read, each time: a process
may be moved, and a limit changed. Limits on requests are not read: no bandwidth helps against them.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from elastio.errors import HostError
from elastio.host.blockdev import disk_of
from elastio.host.cgroups import CGROUPS, by_device
from elastio.host.sysfs import Sysfs
from elastio.strategy.account import Limit
from elastio.strategy.waits import DiskCount
from elastio.units import MB, SECTOR

# Words of a line of /proc/diskstats (Documentation/admin-guide/iostats.rst): name, reads, sectors read, writes, sectors
# written, milliseconds in which the disk was busy. Flushes are counted apart, and are no requests here.
NAME, READS, READ_SECTORS, WRITES, WRITTEN_SECTORS, BUSY_MS = 2, 3, 5, 7, 9, 12
# Memory, and what only passes on to another disk.
NOT_DISKS = ("ram", "zram", "loop")


def disk_below(sysfs: Sysfs, folder: Path) -> str:
    """The disk that a folder lies on. Raises HostError where its filesystem names none: btrfs, NFS."""
    number = os.stat(folder).st_dev  # noqa: PTH116
    shown = sysfs.link(f"sys/dev/block/{os.major(number)}:{os.minor(number)}")
    if shown is None:
        raise HostError(
            f"the filesystem of {folder} names no disk: name the disk to watch with --device", code="device.unknown"
        )
    return disk_of(sysfs, shown)


def lies_on(sysfs: Sysfs, name: str) -> frozenset[str]:
    """The disks that a device consists of, itself included: those below device-mapper, md, bcache and a loop device."""
    found: set[str] = set()
    left = [disk_of(sysfs, name)]
    while left:
        disk = left.pop()
        if disk not in found:
            found.add(disk)
            left += [disk_of(sysfs, below) for below in sysfs.names(f"sys/block/{disk}/slaves")]
            left += _below_loop(sysfs, disk)
    return frozenset(found)


def _below_loop(sysfs: Sysfs, name: str) -> list[str]:
    """The disk of the file behind a loop device, which is busy whenever it is; none where no disk is named."""
    file = sysfs.read_or(f"sys/block/{name}/loop/backing_file", "").removesuffix(" (deleted)")
    with contextlib.suppress(HostError, OSError):
        return [disk_below(sysfs, Path(file))] if file else []
    return []


class DiskActivity:
    """Counters of one disk, and how busy the others are that it does not consist of."""

    def __init__(self, sysfs: Sysfs, name: str) -> None:
        self._sysfs, self.name = sysfs, disk_of(sysfs, name)
        own = lies_on(sysfs, self.name)
        self._others = frozenset(
            disk
            for disk in sysfs.names("sys/block")
            if disk not in own and not disk.startswith(NOT_DISKS) and not sysfs.names(f"sys/block/{disk}/slaves")
        )

    def read(self) -> tuple[DiskCount, Mapping[str, float]]:
        """The disk's counters, and seconds in which each other disk was busy. Raises HostError if the disk is gone."""
        own: DiskCount | None = None
        others: dict[str, float] = {}
        for line in self._sysfs.read("proc/diskstats").splitlines():
            words = line.split()
            if len(words) <= BUSY_MS:
                continue
            if words[NAME] == self.name:
                own = DiskCount(
                    (int(words[READ_SECTORS]) + int(words[WRITTEN_SECTORS])) * SECTOR,
                    int(words[READS]) + int(words[WRITES]),
                    int(words[BUSY_MS]) / 1000,
                    int(words[WRITTEN_SECTORS]) * SECTOR,
                )
            elif words[NAME] in self._others:
                others[words[NAME]] = int(words[BUSY_MS]) / 1000
        if own is None:
            raise HostError(f"the disk {self.name} is gone", code="device.gone")
        return own, others


V2 = (CGROUPS, f"{CGROUPS}/unified")
V1 = f"{CGROUPS}/blkio"
THROTTLE = "blkio.throttle"


def limits_of_process(sysfs: Sysfs, disk: str, pid: int) -> tuple[Limit, ...]:
    """Those on this whole disk of the cgroups that the process is in; none once it has ended."""
    number = sysfs.read_or(f"sys/block/{disk}/dev", "")
    found: list[Limit] = []
    for line in sysfs.read_or(f"proc/{pid}/cgroup", "").splitlines() if number else ():
        hierarchy, controllers, group = line.split(":", 2)
        if hierarchy == "0":
            found += (limit for root in V2 for limit in _v2(sysfs, root, group, number))
        elif "blkio" in controllers.split(","):
            found += _v1(sysfs, group, number)
    return tuple(found)


def limits_of_cgroup(sysfs: Sysfs, disk: str, group: str) -> tuple[Limit, ...]:
    """Those on this whole disk of a cgroup of version 2, and of those above it."""
    number = sysfs.read_or(f"sys/block/{disk}/dev", "")
    return tuple(limit for root in V2 for limit in _v2(sysfs, root, group, number)) if number else ()


def _groups(group: str) -> Iterator[str]:
    """The group and those above it, without the root, which has no limits."""
    names = group.strip("/").split("/")
    return ("/".join(names[:count]) for count in range(len(names), 0, -1) if names[0])


def _v2(sysfs: Sysfs, root: str, group: str, number: str) -> Iterator[Limit]:
    for name in _groups(group):
        values = by_device(sysfs, name, "io.max", root).get(number, {})
        yield from _limit(name, _mb_s(values.get("rbps", "")), _mb_s(values.get("wbps", "")))


def _v1(sysfs: Sysfs, group: str, number: str) -> Iterator[Limit]:
    for name in _groups(group):
        read, write = (_v1_mb_s(sysfs, f"{V1}/{name}/{THROTTLE}.{way}_bps_device", number) for way in ("read", "write"))
        yield from _limit(name, read, write)


def _v1_mb_s(sysfs: Sysfs, path: str, number: str) -> float:
    lines = (line.split() for line in sysfs.read_or(path, "").splitlines())
    return next((_mb_s(words[1]) for words in lines if len(words) == 2 and words[0] == number), math.inf)


def _mb_s(text: str) -> float:
    return int(text) / MB if text.isdecimal() and int(text) else math.inf


def _limit(name: str, read_mb_s: float, write_mb_s: float) -> Iterator[Limit]:
    if math.isfinite(min(read_mb_s, write_mb_s)):
        yield Limit(name, read_mb_s, write_mb_s)
