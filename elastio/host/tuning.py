"""The settings of bcache and of the disks' queues, of every phase, of boosting and flushing; what was written through.

Theory of operation. What is set and why, all measured on Linux 6.1 and 6.12:
- An attach, and every change of `cache_mode`, rewrites the backing superblock after everything that is queued on the
  backing disk. A limit on what is in flight there (`depth`) shortens this from 12 s to half a second. `cache_mode` is
  set to `writeback` before the attach, which leaves one such write.
- `sequential_cutoff` and the congestion thresholds are 0: otherwise they bypass the cache, and a block that is read
  while a bypassed write to it is in flight stays stale in the cache.
- `writeback_delay` makes the flush thread sleep that long after each scan, and a later change does not wake it. It is
  set to 0 before the first dirty block.
- `idle_max_writeback_rate` is 0: otherwise the first request after an idle time sets the rate to one sector per second.
- `io_error_limit` is the maximum: by default bcache stops the device after 64 errors of the backing device in its life,
  and the filesystem should see errors instead. The limit of a cache set stays at the kernel's 8: by these errors bcache
  notices that its disk was removed.
"""

from __future__ import annotations

import re
from contextlib import suppress

from elastio.core.model import Depth
from elastio.errors import HostError
from elastio.host.depth import BACKING_REQUEST_KB, CACHE_REQUEST_KB, initial
from elastio.host.sysfs import Sysfs, parse_size
from elastio.units import MB, SECTOR

SCHEDULER = "mq-deadline"
IO_ERROR_LIMIT = 2147483647
FULL_RATE = 1_000_000_000  # sectors/s; more overflows the kernel's 32-bit clamp
FLUSH_PERCENT = 10  # with any target above 0 the flush has normal I/O class; the minimum rate does the rest
# A target that dirty data hardly reaches (the kernel clamps it to its cutoff), so that the rate stays at its minimum.
LIMIT_PERCENT = 70

SET_KNOBS = {
    "congested_read_threshold_us": 0,
    "congested_write_threshold_us": 0,
    "internal/idle_max_writeback_rate": 0,
}


def is_tuned(sysfs: Sysfs, directory: str, disk: str, cache_set: str | None) -> bool:
    """Whether every setting of `tune` is in force, but for the depth of the queues."""
    return (
        _is_queue_tuned(sysfs, disk)
        and parse_size(sysfs.read(f"{directory}/sequential_cutoff")) == 0
        and sysfs.read(f"{directory}/io_error_limit") == str(IO_ERROR_LIMIT)
        and (cache_set is not None or sysfs.shown(f"{directory}/cache_mode") == "writeback")
        and (cache_set is None or (_is_set_tuned(sysfs, cache_set) and _is_cache_queue_tuned(sysfs, cache_set)))
    )


def cache_disk(sysfs: Sysfs, cache_set: str) -> str | None:
    """The disk of an attached cache set, or None while it is being added or removed.

    None also for a disk that was detached by force: the set stays attached until bcache's next request fails.
    """
    device = sysfs.target(f"sys/fs/bcache/{cache_set}/cache0")
    name = device.rsplit("/", 2)[-2] if device is not None and device.count("/") > 1 else ""
    return name if name and sysfs.exists(f"sys/block/{name}") else None


def _is_cache_queue_tuned(sysfs: Sysfs, cache_set: str) -> bool:
    disk = cache_disk(sysfs, cache_set)
    return disk is None or _is_queue_tuned(sysfs, disk)


def _is_queue_tuned(sysfs: Sysfs, disk: str) -> bool:
    return sysfs.shown(f"sys/block/{disk}/queue/scheduler") == SCHEDULER


def _is_set_tuned(sysfs: Sysfs, cache_set: str) -> bool:
    return all(sysfs.read(f"sys/fs/bcache/{cache_set}/{knob}") == str(v) for knob, v in SET_KNOBS.items())


def tune(sysfs: Sysfs, directory: str, disk: str, cache_set: str | None, depth: Depth | None = None) -> None:
    """Put every setting in force; each is written only if it differs. `depth` None: as it is."""
    request_kb = (depth.backing_kb if depth else None) or BACKING_REQUEST_KB
    tune_queue(sysfs, disk, depth.backing if depth else None, request_kb)
    if parse_size(sysfs.read(f"{directory}/sequential_cutoff")) != 0:
        sysfs.write(f"{directory}/sequential_cutoff", 0)
    sysfs.ensure(f"{directory}/io_error_limit", IO_ERROR_LIMIT)
    if cache_set is None:
        sysfs.ensure(f"{directory}/cache_mode", "writeback")
        sysfs.ensure(f"{directory}/writeback_delay", 0)
        sysfs.ensure(f"{directory}/writeback_percent", 0)
        return
    tune_set(sysfs, cache_set)
    # Last, after the attach: a change of the scheduler takes one or two tenths of a second.
    cache = cache_disk(sysfs, cache_set)
    if cache is not None:
        request_kb = (depth.cache_kb if depth else None) or CACHE_REQUEST_KB
        tune_queue(sysfs, cache, depth.cache if depth else None, request_kb)


def tune_queue(sysfs: Sysfs, disk: str, requests: int | None, request_kb: int) -> None:
    """The scheduler first: a change of it resets the number of requests. That is left as it is if None."""
    queue = f"sys/block/{disk}/queue"
    if sysfs.shown(f"{queue}/scheduler") != SCHEDULER:
        sysfs.write(f"{queue}/scheduler", SCHEDULER)
        requests = requests or initial(sysfs, disk)
    if requests is not None:
        sysfs.ensure(f"{queue}/nr_requests", requests)
    most = int(sysfs.read(f"{queue}/max_hw_sectors_kb"))
    sysfs.ensure(f"{queue}/max_sectors_kb", min(request_kb, most))


def tune_set(sysfs: Sysfs, cache_set: str) -> None:
    for knob, value in SET_KNOBS.items():
        sysfs.ensure(f"sys/fs/bcache/{cache_set}/{knob}", value)


def phase1(sysfs: Sysfs, directory: str, *, flush_mb_s: float | None) -> None:
    """Boosting: the writeback rate is at most `flush_mb_s`. The cache has absorbed writes since it was attached."""
    sysfs.ensure(f"{directory}/writeback_delay", 0)
    set_flush(sysfs, directory, flush_mb_s)


def bypass(sysfs: Sysfs, directory: str) -> None:
    """Writes bypass the cache until it is detached.

    The mode is `none`, in which writes bypass and reads fill nothing. In `writearound` and `writethrough` a read that
    misses fills the cache, and could fill it with what a bypassed write in flight is about to replace.
    """
    sysfs.ensure(f"{directory}/cache_mode", "none")


def set_flush(sysfs: Sysfs, directory: str, mb_s: float | None) -> None:
    """Stop flushing (0), flush at idle I/O class with all bandwidth that is left over (None), or at so many MB/s.

    A limited flush has normal class: the guest's scheduler cannot know what a provider's limit leaves over.
    """
    if mb_s is None or mb_s <= 0:
        sysfs.ensure(f"{directory}/writeback_percent", 0)
        sysfs.ensure(f"{directory}/writeback_running", int(mb_s is None))
        return
    sectors_s = max(1, min(round(mb_s * MB / SECTOR), FULL_RATE - 1))
    sysfs.write(f"{directory}/writeback_rate_minimum", sectors_s)
    sysfs.ensure(f"{directory}/writeback_percent", LIMIT_PERCENT)
    sysfs.write(f"{directory}/writeback_rate", sectors_s)
    sysfs.ensure(f"{directory}/writeback_running", 1)


def read_flush(sysfs: Sysfs, directory: str) -> tuple[bool, float | None]:
    """Whether the device flushes at full speed, and otherwise the writeback rate's limit in MB/s (None: no limit)."""
    if sysfs.read(f"{directory}/writeback_percent") == "0":
        return False, None
    floor = int(sysfs.read(f"{directory}/writeback_rate_minimum"))
    return (True, None) if floor >= FULL_RATE else (False, floor * SECTOR / MB)


def phase2(sysfs: Sysfs, directory: str) -> None:
    """Flush at full speed and normal class. The mode is not changed, so that the device can boost again."""
    sysfs.ensure(f"{directory}/writeback_running", 1)
    sysfs.write(f"{directory}/writeback_rate_minimum", FULL_RATE)
    sysfs.ensure(f"{directory}/writeback_percent", FLUSH_PERCENT)
    sysfs.write(f"{directory}/writeback_rate", FULL_RATE)
    sysfs.ensure(f"{directory}/writeback_delay", 0)


EVENT = "sys/kernel/tracing/events/bcache/bcache_write"
KEYS = "hist:keys=writeback,bypass"
TRIGGER = f"{KEYS}:vals=nr_sector"
VALUE = "nr_sector"
ROW = re.compile(r"writeback:\s*(\d+),\s*bypass:\s*(\d+)\s*\}.*?nr_sector:\s*(\d+)")


def count_written_through(sysfs: Sysfs) -> None:
    """Start counting the bytes that bcache writes through because the cache is too full to absorb them.

    bcache has no counter for it: `bypassed` does not include it. But its tracepoint `bcache_write` shows it: a write
    that is neither written back nor bypassed was written through to the backing device. A histogram trigger, where the
    kernel has the tracepoint and accepts it, sums the sectors in the kernel, at next to no cost. There is one sum for
    the machine: it includes every adaptive device.

    It is never stopped or reset: removing a trigger waits for every processor, up to a second on a busy machine.
    """
    with suppress(HostError):
        if KEYS not in sysfs.read(f"{EVENT}/trigger"):
            sysfs.write(f"{EVENT}/trigger", TRIGGER)


def written_through_bytes(sysfs: Sysfs) -> int | None:
    """Bytes written through since it was started; None where the trigger is missing or counts something else."""
    text = sysfs.read_or(f"{EVENT}/hist", "")
    counted = [line for line in text.splitlines() if KEYS in line and VALUE in line]
    return parse_written_through(text) if counted else None


def parse_written_through(text: str) -> int:
    """The sum, in bytes, of the histogram's rows with neither writeback nor bypass."""
    rows = (tuple(int(group) for group in row) for row in ROW.findall(text))
    return sum(sectors for writeback, bypass, sectors in rows if (writeback, bypass) == (0, 0)) * SECTOR
