"""The settings that every phase needs, and the two phases' own.

Why these, in short (all measured on Linux 6.1 and 6.12):
- Attaching, and every change of `cache_mode`, rewrites the backing superblock behind everything queued on the backing
  disk: bounding the bytes in flight there turns 12 s into half a second. `cache_mode` is `writeback` before the
  attach, so that one such write is left on the way.
- `sequential_cutoff` and the congestion thresholds are 0: they bypass the cache, and a block that is read while a
  bypassed write to it is in flight stays stale for good.
- `writeback_delay` makes the flush thread sleep that long after each scan and a later change does not wake it: it is
  0 before the first dirty block, whose scan comes at once and finds little else.
- `idle_max_writeback_rate` sets the rate to one sector a second at the first request after an idle time.
- bcache stops the whole device after 64 backing errors in its life: the filesystem should see errors instead. The limit
  of a cache set stays at the kernel's 8: it is by these errors that bcache notices a disk that was torn off.
"""

from __future__ import annotations

from elastio.host.sysfs import Sysfs, parse_size
from elastio.units import MB, SECTOR

SCHEDULER = "mq-deadline"
BACKING_REQUESTS = 8
BACKING_REQUEST_KB = 128
CACHE_REQUESTS = 8
CACHE_REQUEST_KB = 512
IO_ERROR_LIMIT = 2147483647
FULL_RATE = 1_000_000_000  # sectors/s; more overflows the kernel's 32-bit clamp
FLUSH_PERCENT = 10  # any target above 0 lifts the flush to normal I/O class; the rate floor does the rest
# A target that dirty data hardly reaches (the kernel clamps it to its cutoff), so that the rate stays at its floor.
LIMIT_PERCENT = 70

SET_KNOBS = {
    "congested_read_threshold_us": 0,
    "congested_write_threshold_us": 0,
    "internal/idle_max_writeback_rate": 0,
}


def is_tuned(sysfs: Sysfs, directory: str, disk: str, cache_set: str | None) -> bool:
    """Whether every setting of `tune` is in force."""
    return (
        _is_queue_tuned(sysfs, disk, BACKING_REQUESTS)
        and parse_size(sysfs.read(f"{directory}/sequential_cutoff")) == 0
        and sysfs.read(f"{directory}/io_error_limit") == str(IO_ERROR_LIMIT)
        and (cache_set is not None or sysfs.shown(f"{directory}/cache_mode") == "writeback")
        and (cache_set is None or (_is_set_tuned(sysfs, cache_set) and _is_cache_queue_tuned(sysfs, cache_set)))
    )


def cache_disk(sysfs: Sysfs, cache_set: str) -> str | None:
    """The disk of an attached cache set, or None while it comes or goes.

    One that was torn off is gone although the set is still attached: bcache notices at its next request.
    """
    device = sysfs.target(f"sys/fs/bcache/{cache_set}/cache0")
    name = device.rsplit("/", 2)[-2] if device is not None and device.count("/") > 1 else ""
    return name if name and sysfs.exists(f"sys/block/{name}") else None


def _is_cache_queue_tuned(sysfs: Sysfs, cache_set: str) -> bool:
    disk = cache_disk(sysfs, cache_set)
    return disk is None or _is_queue_tuned(sysfs, disk, CACHE_REQUESTS)


def _is_queue_tuned(sysfs: Sysfs, disk: str, requests: int) -> bool:
    queue = f"sys/block/{disk}/queue"
    return sysfs.shown(f"{queue}/scheduler") == SCHEDULER and sysfs.read(f"{queue}/nr_requests") == str(requests)


def _is_set_tuned(sysfs: Sysfs, cache_set: str) -> bool:
    return all(sysfs.read(f"sys/fs/bcache/{cache_set}/{knob}") == str(v) for knob, v in SET_KNOBS.items())


def tune(sysfs: Sysfs, directory: str, disk: str, cache_set: str | None) -> None:
    """Put every setting in force; each is written only if it differs."""
    tune_queue(sysfs, disk, BACKING_REQUESTS, BACKING_REQUEST_KB)
    if parse_size(sysfs.read(f"{directory}/sequential_cutoff")) != 0:
        sysfs.write(f"{directory}/sequential_cutoff", 0)
    sysfs.ensure(f"{directory}/io_error_limit", IO_ERROR_LIMIT)
    if cache_set is None:
        sysfs.ensure(f"{directory}/cache_mode", "writeback")
        sysfs.ensure(f"{directory}/writeback_delay", 0)
        sysfs.ensure(f"{directory}/writeback_percent", 0)
        return
    tune_set(sysfs, cache_set)
    # Only now: choosing a scheduler takes a tenth of a second or two, and the boost does not wait for it.
    cache = cache_disk(sysfs, cache_set)
    if cache is not None:
        tune_queue(sysfs, cache, CACHE_REQUESTS, CACHE_REQUEST_KB)


def tune_queue(sysfs: Sysfs, disk: str, requests: int, request_kb: int) -> None:
    """The scheduler first: choosing one resets the number of requests."""
    queue = f"sys/block/{disk}/queue"
    sysfs.ensure(f"{queue}/scheduler", SCHEDULER)
    sysfs.ensure(f"{queue}/nr_requests", requests)
    most = int(sysfs.read(f"{queue}/max_hw_sectors_kb"))
    sysfs.ensure(f"{queue}/max_sectors_kb", min(request_kb, most))


def tune_set(sysfs: Sysfs, cache_set: str) -> None:
    for knob, value in SET_KNOBS.items():
        sysfs.ensure(f"sys/fs/bcache/{cache_set}/{knob}", value)


def phase1(sysfs: Sysfs, directory: str, *, flush_mb_s: float | None) -> None:
    """Flushing in the background is at most `flush_mb_s`; writes go to the cache since it was attached."""
    sysfs.ensure(f"{directory}/writeback_delay", 0)
    set_flush(sysfs, directory, flush_mb_s)


def bypass(sysfs: Sysfs, directory: str) -> None:
    """Writes bypass the cache, for good: in any other mode a read that misses fills the cache, and keeps what was there
    before a bypassed write that is still in flight. Only in `none` writes bypass and reads fill nothing.
    """
    sysfs.ensure(f"{directory}/cache_mode", "none")


def set_flush(sysfs: Sysfs, directory: str, mb_s: float | None) -> None:
    """Stop flushing (0), flush at idle I/O class with all that is left over (None), or at that many MB/s.

    A limited flush runs at normal class: what a provider's cap leaves over cannot be seen by the guest's scheduler.
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
    """Whether the phase-2 rate is in force, and the limit of background flushing in MB/s (None: none)."""
    if sysfs.read(f"{directory}/writeback_percent") == "0":
        return False, None
    floor = int(sysfs.read(f"{directory}/writeback_rate_minimum"))
    return (True, None) if floor >= FULL_RATE else (False, floor * SECTOR / MB)


def phase2(sysfs: Sysfs, directory: str) -> None:
    """Flushing at full speed and normal class; the mode is left alone, so that this can be taken back."""
    sysfs.ensure(f"{directory}/writeback_running", 1)
    sysfs.write(f"{directory}/writeback_rate_minimum", FULL_RATE)
    sysfs.ensure(f"{directory}/writeback_percent", FLUSH_PERCENT)
    sysfs.write(f"{directory}/writeback_rate", FULL_RATE)
    sysfs.ensure(f"{directory}/writeback_delay", 0)
