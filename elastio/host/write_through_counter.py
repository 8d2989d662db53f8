"""Counts the bytes that bcache wrote through because the cache was too full to absorb them.

bcache has no counter for it: `bypassed` does not include it. But its tracepoint `bcache_write` shows it: a write that
is neither written back nor bypassed was written through to the backing device. A histogram trigger sums the sectors in
the kernel, at next to no cost. There is one sum for the machine: it includes every adaptive device.
"""

from __future__ import annotations

import re
from contextlib import suppress

from elastio.errors import HostError
from elastio.host.sysfs import Sysfs
from elastio.units import SECTOR

EVENT = "sys/kernel/tracing/events/bcache/bcache_write"
KEYS = "hist:keys=writeback,bypass"
TRIGGER = f"{KEYS}:vals=nr_sector"
VALUE = "nr_sector"
ROW = re.compile(r"writeback:\s*(\d+),\s*bypass:\s*(\d+)\s*\}.*?nr_sector:\s*(\d+)")


def start(sysfs: Sysfs) -> None:
    """Start counting, where the kernel has the tracepoint and accepts the trigger.

    It is never stopped or reset: removing a trigger waits for every processor, up to a second on a busy machine.
    """
    with suppress(HostError):
        if KEYS not in sysfs.read(f"{EVENT}/trigger"):
            sysfs.write(f"{EVENT}/trigger", TRIGGER)


def read(sysfs: Sysfs) -> int | None:
    """Bytes written through since `start`, or None where the trigger is missing or counts something else."""
    text = sysfs.read_or(f"{EVENT}/hist", "")
    counted = [line for line in text.splitlines() if KEYS in line and VALUE in line]
    return parse(text) if counted else None


def parse(text: str) -> int:
    """The sum, in bytes, of the histogram's rows with neither writeback nor bypass."""
    rows = (tuple(int(group) for group in row) for row in ROW.findall(text))
    return sum(sectors for writeback, bypass, sectors in rows if (writeback, bypass) == (0, 0)) * SECTOR
