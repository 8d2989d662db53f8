"""Bytes read and written per device, from /proc/diskstats. Takes none of bcache's locks.

How long requests took: Documentation/block/stat.rst. Those of bcacheN are counted from where limits of cgroups have let
them pass. Nothing here takes a lock of bcache.
"""

from __future__ import annotations

from collections.abc import Mapping

import psutil

from elastio.core.lending import Requests
from elastio.core.model import HostView
from elastio.host.counted_load import CountedLoad
from elastio.host.sysfs import Sysfs


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
