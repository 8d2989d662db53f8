"""The writeback rate: how fast dirty data is flushed while applications use the cache (phase 1). Pure.

The guest's scheduler cannot see a bandwidth limit that the cloud enforces. A flush that runs "with spare bandwidth"
takes half of a limited cache volume from the application (measured: writes fell from 61 to 20..30 of 64 MB/s). So the
rate is set from the bandwidth that both volumes were measured to have left:

- The application is quiet: no limit, at idle I/O class; the kernel's own scheduler keeps small requests fast.
- The application works and leaves bandwidth on both volumes: that much, less a margin.
- The application saturates the cache volume: the drain bandwidth that was bought for this, and no more. A sample in
  which application and flush together saturate it does not show what the application alone would use, and counts
  as saturated.
- The cache is nearly full of dirty data: as much as the backing volume takes, at the application's expense. Above the
  kernel's cutoff every write would run at the backing volume's speed, which would cost the application far more.

A limited flush runs at normal I/O class, a few requests at a time; the application's queue is deep, so the application
loses no more than the writeback rate.
"""

from __future__ import annotations

from elastio.core.model import BackingView, Sample
from elastio.core.policy import Policy

# Share of the cache volume's bandwidth from which it counts as saturated; bcache's index and journal use the rest.
SATURATED = 0.90
# Share of the cache volume's bandwidth that application and flush together may use.
TARGET = 0.80
# Share of the backing volume's bandwidth; a smaller difference is not worth a change of the kernel's settings.
LEAST = 0.10
# Share of the cutoff above which the cache counts as nearly full.
NEARLY_FULL = 0.93
# Share of the backing volume's bandwidth to which applications' writes are limited while a flush has to finish.
LIMITED = 0.5

NOTHING = 0.0
EVERYTHING = None


def writeback_rate(sample: Sample, backing: BackingView | None, policy: Policy) -> float | None:
    """The writeback rate in MB/s that this sample asks for; 0: no flushing, None: no limit."""
    spare = _spare(sample, policy)
    if spare is None or backing is None or not is_nearly_full(backing, policy):
        return spare
    return max(spare, policy.backing_bandwidth_mb_s)


def first_writeback_rate(policy: Policy) -> float:
    """The writeback rate in MB/s from the attachment on, when no sample yet shows that the backing volume is free."""
    drain = min(policy.drain_bandwidth_mb_s, policy.backing_bandwidth_mb_s)
    return drain if drain >= LEAST * policy.backing_bandwidth_mb_s else NOTHING


def forced_writeback_mb_s(sample: Sample, backing: BackingView | None, policy: Policy) -> float:
    """MB/s that were flushed in this sample beyond the spare bandwidth, because the cache was nearly full."""
    spare = _spare(sample, policy)
    if spare is None or backing is None or not is_nearly_full(backing, policy):
        return 0.0
    return max(0.0, flushed_mb_s(sample) - spare)


def _spare(sample: Sample, policy: Policy) -> float | None:
    """The writeback rate that costs applications nothing."""
    # What anybody moves, also those without a right to a boost: the flush takes it from all of them.
    if sample.adaptive.total_mb_s < policy.utilization_threshold * policy.backing_bandwidth_mb_s:
        return EVERYTHING
    flushed = flushed_mb_s(sample)
    spare_on_backing = policy.backing_bandwidth_mb_s - (sample.backing.total_mb_s - flushed)
    spare = min(_spare_on_cache(sample, flushed, policy), spare_on_backing)
    return spare if spare >= LEAST * policy.backing_bandwidth_mb_s else NOTHING


def _spare_on_cache(sample: Sample, flushed: float, policy: Policy) -> float:
    bought, used = policy.bought_bandwidth_mb_s, sample.cache.total_mb_s
    measured = 0.0 if used >= SATURATED * bought else TARGET * bought - (used - flushed)
    return max(measured, policy.drain_bandwidth_mb_s)


def flushed_mb_s(sample: Sample) -> float:
    """MB/s that were flushed in this sample: read from the cache volume and written to the backing volume."""
    return min(sample.cache.read_mb_s, sample.backing.write_mb_s)


def is_nearly_full(backing: BackingView, policy: Policy) -> bool:
    """Buckets in use are close to the cutoff, above which writes are no longer absorbed."""
    if backing.available_percent is None:
        return False
    cutoff = policy.cutoff * 100 if backing.cutoff_percent is None else backing.cutoff_percent
    return 100 - backing.available_percent >= NEARLY_FULL * cutoff


def slower(rate: float | None, limit: float | None) -> float | None:
    """The lower of two rates, where None is no limit."""
    return rate if limit is None else limit if rate is None else min(rate, limit)


def is_change(wanted: float | None, in_force: float | None, policy: Policy) -> bool:
    """The writeback rate in force differs enough from the wanted one to be set again."""
    if wanted is None or in_force is None or NOTHING in (wanted, in_force):
        return wanted != in_force
    return abs(wanted - in_force) > LEAST * policy.backing_bandwidth_mb_s
