"""Bytes read and written per device, from /proc/diskstats. Takes none of bcache's locks."""

from __future__ import annotations

from collections.abc import Mapping

import psutil

from elastio.core.model import HostView


class DiskCounters:
    """`ports.Counters` over psutil. Empty until a scan has named the devices."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def follow(self, view: HostView) -> None:
        backing = view.backing
        names = {"adaptive": backing.adaptive_name, "backing": backing.disk_name} if backing else {}
        cache = next((d.name for d in view.disks if backing and d.cache_set and d.cache_set == backing.cache_set), "")
        self._names = {role: name for role, name in {**names, "cache": cache}.items() if name}

    def read(self) -> Mapping[str, tuple[int, int]]:
        if not self._names:
            return {}
        shown = psutil.disk_io_counters(perdisk=True, nowrap=False)
        return {
            role: (shown[name].read_bytes, shown[name].write_bytes)
            for role, name in self._names.items()
            if name in shown
        }
