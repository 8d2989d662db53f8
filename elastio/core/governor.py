"""How fast dirty data flows back while applications use the cache (phase 1). Pure functions of what was seen.

The guest's scheduler cannot see a cap that the provider enforces: a flush that it takes for spare bandwidth takes half
of a capped cache volume from the application (measured: writes fell from 61 to 20..30 of 64 MB/s). So the pace is set
from what both volumes were measured to have left:

- the application is quiet: everything, at idle I/O class; the kernel's own scheduler keeps small requests quick;
- the application works, and leaves bandwidth on both volumes: that much, less a margin;
- the application saturates the cache volume: what was bought on top for this (the drain bandwidth), and no more. A
  sample in which both together saturate it tells nothing about what the application alone would take, and counts
  as this;
- the cache is nearly full of dirty data: as much as the backing volume takes, whatever it costs the application.
  Beyond the kernel's cutoff every write would go at the backing volume's speed, which costs it far more.

A paced flush runs at normal I/O class, a few requests at a time; the application's queue is deep, so it loses no more
than the pace.
"""

from __future__ import annotations

from elastio.core.model import BackingView, Sample
from elastio.core.policy import Policy, utilization

# Of the cache volume's bandwidth: from this on it is taken for saturated; bcache's own index and journal take the rest.
SATURATED = 0.90
# Of the cache volume's bandwidth: up to here application and flush together may use it.
TARGET = 0.80
# Of the backing volume's bandwidth: less is not worth a change of the kernel's settings.
LEAST = 0.10
# Of the share of a cache set that may be dirty: above it the cache is nearly full.
NEARLY_FULL = 0.93

NOTHING = 0.0
EVERYTHING = None


def writeback_rate(sample: Sample, backing: BackingView | None, policy: Policy) -> float | None:
    """MB/s of background flushing: 0 for none, None for all that is left over."""
    spare = _spare(sample, policy)
    if spare is None or backing is None or not is_nearly_full(backing, policy):
        return spare
    return max(spare, policy.backing_bandwidth_mb_s)


def first_writeback_rate(policy: Policy) -> float:
    """MB/s from the attachment on: applications leave the backing volume in that moment, and no sample shows it yet."""
    drain = min(policy.drain_bandwidth_mb_s, policy.backing_bandwidth_mb_s)
    return drain if drain >= LEAST * policy.backing_bandwidth_mb_s else NOTHING


def pressed_mb_s(sample: Sample, backing: BackingView | None, policy: Policy) -> float:
    """What was flushed in the sample beyond the spare bandwidth, because the cache was nearly full."""
    spare = _spare(sample, policy)
    if spare is None or backing is None or not is_nearly_full(backing, policy):
        return 0.0
    return max(0.0, flushed_mb_s(sample) - spare)


def _spare(sample: Sample, policy: Policy) -> float | None:
    """The pace that costs applications nothing."""
    if utilization(sample, policy) < policy.utilization_threshold:
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
    """What flushed in the sample: it was read from the cache volume and written to the backing volume."""
    return min(sample.cache.read_mb_s, sample.backing.write_mb_s)


def is_nearly_full(backing: BackingView, policy: Policy) -> bool:
    """Writes will soon not be absorbed any more."""
    if backing.available_percent is None:
        return False
    cutoff = policy.cutoff * 100 if backing.cutoff_percent is None else backing.cutoff_percent
    return 100 - backing.available_percent >= NEARLY_FULL * cutoff


def is_change(wanted: float | None, in_force: float | None, policy: Policy) -> bool:
    """Whether the pace in force is far enough from the wanted one to be set anew."""
    if wanted is None or in_force is None or NOTHING in (wanted, in_force):
        return wanted != in_force
    return abs(wanted - in_force) > LEAST * policy.backing_bandwidth_mb_s
