"""How much the cache could not absorb, counted by the kernel itself.

bcache has no counter for it: `bypassed` leaves it out. The tracepoint `bcache_write` tells: a write that is neither
written back nor bypassed went through to the backing device because the cache was too full. A histogram trigger
sums the sectors in the kernel at no cost to anybody. One sum for the machine: with several adaptive devices in one
machine it covers them all.
"""

from __future__ import annotations

import re

from elastio.errors import HostError
from elastio.host.sysfs import Sysfs
from elastio.units import SECTOR

EVENT = "sys/kernel/tracing/events/bcache/bcache_write"
KEYS = "hist:keys=writeback,bypass"
TRIGGER = f"{KEYS}:vals=nr_sector"
VALUE = "nr_sector"
ROW = re.compile(r"writeback:\s*(\d+),\s*bypass:\s*(\d+)\s*\}.*?nr_sector:\s*(\d+)")


def start(sysfs: Sysfs) -> bool:
    """Count from now on. False where the kernel has no such tracepoint: then nobody can tell.

    Never back to zero: removing a trigger waits for every processor, up to a second on a busy machine.
    """
    if not sysfs.exists(f"{EVENT}/trigger"):
        return False
    try:
        if KEYS not in sysfs.read(f"{EVENT}/trigger"):
            sysfs.write(f"{EVENT}/trigger", TRIGGER)
    except HostError:
        return False
    return True


def read(sysfs: Sysfs) -> int | None:
    """Bytes not absorbed since `start`, or None when nobody counts, or counts something else."""
    text = sysfs.read_or(f"{EVENT}/hist", "")
    counted = [line for line in text.splitlines() if KEYS in line and VALUE in line]
    return parse(text) if counted else None


def parse(text: str) -> int:
    """Sum the rows of a histogram with neither writeback nor bypass, in bytes."""
    rows = (tuple(int(group) for group in row) for row in ROW.findall(text))
    return sum(sectors for writeback, bypass, sectors in rows if (writeback, bypass) == (0, 0)) * SECTOR
