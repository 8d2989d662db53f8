"""The load: since when utilization is high, or low, with two thresholds. Pure."""

from __future__ import annotations

from dataclasses import replace

from elastio.core.model import Sample
from elastio.core.policy import Policy
from elastio.strategy.memory import LoadWatch


def utilization(sample: Sample, policy: Policy) -> float:
    """Throughput of the adaptive device, reads and writes, over the bandwidth of the backing volume; 1.0: all of it.

    Only of the cgroups whose load counts.
    """
    return sample.load.total_mb_s / policy.backing_bandwidth_mb_s


def as_load(sample: Sample, policy: Policy) -> Sample:
    """The sample as past bursts remember it: without a load that does not count.

    Beside one that counts the whole is remembered, because a cache has to have room for all of it.
    """
    if sample.counted is None or utilization(sample, policy) >= policy.release_threshold:
        return sample
    return replace(sample, adaptive=sample.counted)


def watch_load(load: LoadWatch, sample: Sample, policy: Policy) -> LoadWatch:
    """The load after one more sample, with two thresholds.

    At or above UT the load is high, below the release threshold it is over; in between nothing changes. A stretch of
    high or low load begins at the beginning of the sample that showed it. A late sample begins no high load: after a
    stop of the agent, or of the machine, the load that it shows may be over, and the next sample tells.
    """
    used = utilization(sample, policy)
    begun = sample.at - sample.seconds
    if used >= policy.utilization_threshold and not (sample.is_late and load.above_since is None):
        if load.above_since is None:
            return LoadWatch(begun, None, used, sample.at, used)
        return LoadWatch(load.above_since, None, used, load.crossed_at, max(load.peak, used))
    if used < policy.release_threshold:
        return LoadWatch(None, load.below_since if load.below_since is not None else begun, used)
    return replace(load, utilization=used)


def is_load_high(load: LoadWatch, now: float, policy: Policy) -> bool:
    """Utilization has been at or above UT for the trigger delay."""
    return load.above_since is not None and now - load.above_since >= policy.trigger_delay_s


def is_quiet(load: LoadWatch, now: float, policy: Policy) -> bool:
    """Utilization has been below the release threshold for the inactivity delay."""
    return load.below_since is not None and now - load.below_since >= policy.inactivity_delay_s
