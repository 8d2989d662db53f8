"""Limits of cgroups on a disk: what blk-throttle holds requests back for, whatever the disk could do. Reads only.

Version 2: `io.max`, a line for each device (Documentation/admin-guide/cgroup-v2.rst). Version 1:
`blkio.throttle.read_bps_device` and `.write_bps_device` (Documentation/admin-guide/cgroup-v1/blkio-controller.rst). A
limit holds for all groups below it, so the one of the group and those of all above it are read, each time: a process
may be moved, and a limit changed. Limits on requests are not read: no bandwidth helps against them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from elastio.core.account import Limit
from elastio.host.sysfs import Sysfs
from elastio.units import MB

V2 = ("sys/fs/cgroup", "sys/fs/cgroup/unified")
V1 = "sys/fs/cgroup/blkio"
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
        for line in sysfs.read_or(f"{root}/{name}/io.max", "").splitlines():
            device, _, rest = line.partition(" ")
            values = dict(word.partition("=")[::2] for word in rest.split())
            if device == number:
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
