"""The writeback rate: how fast dirty data is flushed while applications use the cache (phase 1). Pure.

The guest's scheduler cannot see a bandwidth limit that the cloud enforces. A flush that runs "with spare bandwidth"
takes half of a limited cache volume from the application (measured: writes fell from 61 to 20..30 of 64 MB/s). So the
rate is set from the bandwidth that both volumes were measured to have left:

- The application is quiet: no limit, at idle I/O class; the kernel's own scheduler keeps small requests fast.
- The application works and leaves bandwidth on both volumes: that much, less a margin. Where cgroups share the device,
  of the cache volume what it has left in some seconds, if that is less than in the last one: while limits follow a load
  that has changed it uses less for a moment, and a flush that has begun goes on for up to 2.5 s.
- The application saturates the cache volume: the drain bandwidth that was bought for this, and no more. A sample in
  which application and flush together saturate it does not show what the application alone would use, and counts
  as saturated.
- Small requests saturate the IOPS of the cache volume: nothing, as no IOPS were bought for this.
- The cache is nearly full of dirty data: as much as the backing volume takes, at the application's expense. Above the
  kernel's cutoff every write would run at the backing volume's speed, which would cost the application far more.

A limited flush runs at normal I/O class, a few requests at a time; the application's queue is deep, so the application
loses no more than the writeback rate.
"""

from __future__ import annotations

import math

from elastio.core.model import Sample
from elastio.core.phase import Phase
from elastio.core.policy import LEAST, NOTHING, Policy
from elastio.strategy.situation import DeviceView, Situation

# Share of the cache volume's bandwidth from which it counts as saturated; bcache's index and journal use the rest.
SATURATED = 0.90
# Share of the cache volume's bandwidth that application and flush together may use.
TARGET = 0.80

EVERYTHING = None


def flush_mb_s(at: Situation, policy: Policy, limit_mb_s: float | None) -> float | None:
    """The writeback rate in MB/s that the sample asks for, at most the limit; 0: no flushing, None: no limit."""
    if at.sample is None or _shows_no_cache_yet(at, at.sample):
        return slower(policy.first_writeback_mb_s, limit_mb_s)
    return slower(writeback_rate(at.sample, at.device, policy, _iops(at)), limit_mb_s)


def forced_mb_s(at: Situation, policy: Policy) -> float:
    """MB/s that the cycle's cache has flushed in this sample at the application's expense."""
    is_seen = at.sample is not None and at.phase is Phase.BOOSTING and not _shows_no_cache_yet(at, at.sample)
    return forced_writeback_mb_s(at.sample, at.device, policy, _iops(at)) if is_seen and at.sample is not None else 0.0


def _iops(at: Situation) -> int | None:
    """Of the cache volume; None: not known."""
    return at.cycle.provisioned.iops if at.cycle else None


def _shows_no_cache_yet(at: Situation, sample: Sample) -> bool:
    """The sample begins before the cache was attached: what it shows of the backing volume no longer applies."""
    boosted = at.cycle.times.boosted if at.cycle else None
    return at.phase is Phase.ATTACHING or (boosted is not None and sample.at - sample.seconds < boosted)


def writeback_rate(sample: Sample, device: DeviceView | None, policy: Policy, iops: int | None = None) -> float | None:
    """The writeback rate in MB/s that this sample asks for; 0: no flushing, None: no limit."""
    spare = _spare(sample, policy, iops)
    if spare is None or device is None or not device.is_nearly_full:
        return spare
    return max(spare, policy.backing_bandwidth_mb_s)


def forced_writeback_mb_s(sample: Sample, device: DeviceView | None, policy: Policy, iops: int | None = None) -> float:
    """MB/s that were flushed in this sample beyond the spare bandwidth, because the cache was nearly full."""
    spare = _spare(sample, policy, iops)
    if spare is None or device is None or not device.is_nearly_full:
        return 0.0
    return max(0.0, sample.flushed_mb_s - spare)


def _spare(sample: Sample, policy: Policy, iops: int | None) -> float | None:
    """The writeback rate that costs applications nothing."""
    # What anybody moves, also those without a right to a boost: the flush takes it from all of them.
    if sample.adaptive.total_mb_s < policy.utilization_threshold * policy.backing_bandwidth_mb_s:
        return EVERYTHING
    spare_on_backing = policy.backing_bandwidth_mb_s - (sample.backing.total_mb_s - sample.flushed_mb_s)
    spare = min(_spare_on_cache(sample, policy), _spare_requests(sample, iops), spare_on_backing)
    return spare if spare >= LEAST * policy.backing_bandwidth_mb_s else NOTHING


def _spare_on_cache(sample: Sample, policy: Policy) -> float:
    bought, is_shared = policy.bought_bandwidth_mb_s, policy.share_reserve is not None
    both = (sample, (sample.recent if is_shared else None) or sample)
    used = max(each.cache.total_mb_s - each.flushed_mb_s for each in both)
    measured = 0.0 if sample.cache.total_mb_s >= SATURATED * bought else TARGET * bought - used
    return max(measured, policy.drain_bandwidth_mb_s)


def _spare_requests(sample: Sample, iops: int | None) -> float:
    """MB/s of a flush for which the cache volume has IOPS; its requests are taken to be as large as others."""
    used = sum(sample.cache_iops)
    if iops is None or used <= 0:
        return math.inf
    if used >= SATURATED * iops:
        return 0.0
    mb = sample.cache.total_mb_s / used
    return (TARGET * iops - used) * mb + sample.flushed_mb_s


def slower(rate: float | None, limit: float | None) -> float | None:
    """The lower of two rates, where None is no limit."""
    return rate if limit is None else limit if rate is None else min(rate, limit)
