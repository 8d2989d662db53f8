"""Throughput over time, from counters that were recorded in a guest. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from elastio_testbed.lvmcache import MAPPED_NAME

SECTOR_MB = 512 / 1e6
APPLICATION, BACKING, CACHE = "application", "backing volume", "cache volume"

Points = tuple[tuple[float, float], ...]


def rates_of(
    timeline: Sequence[Mapping[str, Any]], backing: str, *, is_static: bool
) -> dict[str, list[tuple[float, float]]]:
    """MB/s of each role over time. `backing` is the serial of the data volume, which is the application's if static."""
    series: dict[str, list[tuple[float, float]]] = {}
    for before, after in pairwise(timeline):
        seconds = after["t"] - before["t"]
        if seconds <= 0:
            continue
        totals = {APPLICATION: 0.0} if is_static else {APPLICATION: 0.0, BACKING: 0.0, CACHE: 0.0}
        for name, counts in after["disks"].items():
            role = role_of(name, after["serials"].get(name, ""), backing, is_static=is_static)
            if role in totals and name in before["disks"]:
                rate = max(0, sum(counts) - sum(before["disks"][name])) * SECTOR_MB / seconds
                totals[role] += rate
        for role, rate in totals.items():
            series.setdefault(role, []).append((after["t"], rate))
    return series


def role_of(name: str, serial: str, backing: str, *, is_static: bool) -> str:
    """The role of a disk of the guest; empty for the root disk.

    The bcache device or the mapped device of LVM is the application's; every other disk with a serial is a cache.
    """
    if name.startswith("bcache") or serial == MAPPED_NAME:
        return APPLICATION
    if name.startswith("dm-"):
        return ""
    if serial == backing:
        return APPLICATION if is_static else BACKING
    return CACHE if serial else ""
