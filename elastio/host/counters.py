"""Bytes read and written per device, from /proc/diskstats, and what of them counts towards a boost.

How long requests took: Documentation/block/stat.rst. Those of bcacheN are counted from where limits of cgroups have let
them pass. Nothing here takes a lock of bcache.

Theory of operation, where some cgroups have no right to a boost. The kernel counts the bytes of each cgroup, with all
below it, when a request is submitted, and those of the device when a request is completed. On a slow volume the
difference is some requests of several MB, that is, more in a second than the threshold of a boost. So what cgroups
without the right have submitted is subtracted from what the device completes later: never more than that, and the rest
from the next reading. What is left over is at most what can be in flight. Where only some cgroups have the right, what
these have submitted is what counts.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import add, sub

import psutil

from elastio.core.lending import Requests
from elastio.core.model import HostView
from elastio.core.moved import Moved
from elastio.core.shares import BoostRights, Counted
from elastio.errors import HostError
from elastio.host import cgroups
from elastio.host.cgroups import CGROUPS
from elastio.host.sysfs import Sysfs
from elastio.units import MIB

# Cgroups come and go; those of a machine are listed again so often while the device is used.
LIST_S = 2.0
MOST_IN_FLIGHT_BYTES = 128 * MIB

_log = logging.getLogger(__name__)

Bytes = tuple[int, int]  # read, written
NOTHING: Bytes = (0, 0)


@dataclass(slots=True)
class _Seen:
    """The last reading, of the device and of each cgroup. `owed`: submitted without a right, not subtracted yet."""

    number: str
    rights: BoostRights
    device: Bytes
    counted: Counted
    groups: Mapping[str, Moved]
    listed_at: float
    owed: Bytes = NOTHING


@dataclass(slots=True)
class CountedLoad:
    """The bytes that count, since the first reading. `rights`: those of now; `seconds` is a monotonic clock."""

    sysfs: Sysfs
    rights: Callable[[], BoostRights]
    seconds: Callable[[], float] = time.monotonic
    _bytes: Bytes = NOTHING
    _seen: _Seen | None = None
    _failed: str = ""

    def read(self, adaptive: str, device: Bytes) -> Bytes | None:
        """What counts, while the device `adaptive` has moved `device` in all; None: all of it counts.

        While the device moves nothing, no cgroup is read.
        """
        rights = self.rights()
        if rights.is_everybody:
            self._seen = None
            return None
        try:
            self._advance(adaptive, device, rights)
        except HostError as error:
            if str(error) != self._failed:
                _log.warning("every load counts towards a boost, also that of cgroups without the right: %s", error)
            self._seen, self._failed = None, str(error)
            return None
        self._failed = ""
        return self._bytes

    def _advance(self, adaptive: str, device: Bytes, rights: BoostRights) -> None:
        before = self._seen
        if before is not None and before.device == device and before.rights == rights:
            return
        number, now = self.sysfs.read(f"sys/block/{adaptive}/dev"), self.seconds()
        is_same = before is not None and (before.number, before.rights) == (number, rights)
        if before is None or not is_same or min(_each(sub, device, before.device)) < 0:
            counted = self._list(rights)
            self._seen = _Seen(number, rights, device, counted, self._moved(counted, number, {}), now)
            return
        counted, listed_at = before.counted, before.listed_at
        if now - listed_at >= LIST_S:
            counted, listed_at = self._list(rights), now
        groups = self._moved(counted, number, before.groups)
        added = _grown(before.groups, groups, counted.added)
        taken = _grown(before.groups, groups, counted.subtracted)
        moved, owed = _each(sub, device, before.device), NOTHING
        if counted.everybody:
            owed = _each(add, before.owed, taken)
            added, taken = moved, _each(min, owed, moved)
            owed = _each(min, _each(sub, owed, taken), (MOST_IN_FLIGHT_BYTES, MOST_IN_FLIGHT_BYTES))
        self._bytes = _each(add, self._bytes, _each(max, _each(sub, added, taken), NOTHING))
        self._seen = _Seen(number, rights, device, counted, groups, listed_at, owed)

    def _list(self, rights: BoostRights) -> Counted:
        cgroups.check_counted(self.sysfs)
        return rights.counted(cgroups.counted(self.sysfs))

    def _moved(self, counted: Counted, number: str, before: Mapping[str, Moved]) -> dict[str, Moved]:
        """One that is there and cannot be read has moved as much as before."""
        groups = (*counted.added, *counted.subtracted)
        found = cgroups.all_moved(self.sysfs, groups, number)
        kept = {group: before[group] for group in groups if group not in found and group in before}
        return {**found, **{group: moved for group, moved in kept.items() if self.sysfs.exists(f"{CGROUPS}/{group}")}}


def _grown(before: Mapping[str, Moved], after: Mapping[str, Moved], groups: Iterable[str]) -> Bytes:
    """What they have moved since. One that was not there has begun at 0."""
    none = Moved()
    found = reduce(Moved.plus, (after.get(group, none).since(before.get(group, none)) for group in groups), none)
    return found.read_bytes, found.written_bytes


def _each(operation: Callable[[int, int], int], a: Bytes, b: Bytes) -> Bytes:
    return operation(a[0], b[0]), operation(a[1], b[1])


class DiskCounters:
    """`ports.Counters` over psutil. Empty until a scan has named the devices.

    `load`: what of the adaptive device's load counts; None: all of it.
    """

    def __init__(self, load: CountedLoad | None = None) -> None:
        self._names: dict[str, str] = {}
        self._load = load

    def follow(self, view: HostView) -> None:
        backing = view.backing
        names = {"adaptive": backing.adaptive_name, "backing": backing.disk_name} if backing else {}
        cache = next((d.name for d in view.disks if backing and d.cache_set and d.cache_set == backing.cache_set), "")
        self._names = {role: name for role, name in {**names, "cache": cache}.items() if name}

    def read(self) -> Mapping[str, tuple[int, int]]:
        if not self._names:
            return {}
        shown = psutil.disk_io_counters(perdisk=True, nowrap=False)
        read = {
            role: (shown[name].read_bytes, shown[name].write_bytes)
            for role, name in self._names.items()
            if name in shown
        }
        if (cache := shown.get(self._names.get("cache", ""))) is not None:
            read["requests"] = cache.read_count, cache.write_count
        if self._load is None or "adaptive" not in read:
            return read
        counted = self._load.read(self._names["adaptive"], read["adaptive"])
        return read if counted is None else {**read, "counted": counted}


# Fields of /sys/block/NAME/stat: requests and milliseconds of reads, then of writes.
READS, WRITES = (0, 3), (4, 7)


def finished(sysfs: Sysfs, name: str) -> tuple[Requests, Requests]:
    """Reads and writes that the device has finished; none if it is gone."""
    words = sysfs.read_or(f"sys/block/{name}/stat", "").split()
    if len(words) <= max(WRITES):
        return Requests(), Requests()
    reads, writes = (Requests(int(words[count]), int(words[ms]) / 1000) for count, ms in (READS, WRITES))
    return reads, writes
