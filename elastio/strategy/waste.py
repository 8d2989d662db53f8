"""When a boost is not worth buying, learned from past boosts. Pure.

A cache is bought as soon as a load is seen, long before anybody knows how long the load will last. For a job that
writes for two seconds each minute, that would be a volume each minute, each too late. So every boost is evaluated when
its volume is gone. It *gained* what applications moved beyond the rate that the device had before the cache. A boost
that gained less than some seconds of the backing volume's bandwidth was *useless*, and its load is remembered for a
day: its highest utilization without the cache, and how long it lasted.

A later load is compared with those. As soon as it exceeds every one of them, in rate or in length, a cache is bought at
once, because no boost for such a load was useless. Until then, caches are bought for it at a limited rate: the first
ones as if nothing had been learned, later ones after waits that double up to some hours. Some are bought even then,
because applications change: a useful boost removes the loads that it contradicts from the memory.

So short loads that leave the backing volume half idle do not delay the cache of a burst that saturates it, except where
the first sample caught so little of the burst that it looks like a short load; then the next sample decides. Short
loads that saturate the volume have the same rate as the beginning of a burst. Where such loads are remembered, a burst
gets its cache when it has lasted a quarter, or one sample, longer than they did.

A cache that was bought ahead of a burst that the agent expected itself was useless if the burst would not have been
slower without it: it gained what applications moved beyond the bandwidth of the backing volume. While the waits above
last, nothing is bought ahead of such bursts either.

Volumes that are bought and never become a cache are counted separately. After several failures in a row the next try is
likely to fail too, and each is billed: no volume is bought until an operator resumes.
"""

from __future__ import annotations

from dataclasses import replace

from elastio.core.model import Sample
from elastio.core.phase import Trigger
from elastio.core.policy import Ahead, Policy
from elastio.strategy.load import utilization
from elastio.strategy.memory import Boost, LoadWatch, Memory, UselessBoost, Waste
from elastio.strategy.situation import CycleView, Situation
from elastio.units import MB, format_duration

# What a useful boost must gain, in seconds of the backing volume's bandwidth. Attaching and detaching hold requests
# back for up to two seconds each.
EARNED_S = 3.0
# This many boosts for similar loads may be useless before the next one waits.
FREE = 3
FIRST_PAUSE_S = 300.0
LONGEST_PAUSE_S = 4 * 3600.0
REMEMBERED_S = 24 * 3600.0
KEPT = 16
# A load exceeds another one from this ratio on; samples of one and the same load differ by less.
BEYOND = 1.25
# Volumes in a row that never became a cache; with the growing cool-downs that takes an hour and a half.
MOST_WASTED = 8


# --- while a cycle is open -------------------------------------------------------------------------------


def shown_by(load: LoadWatch, trigger: Trigger, now: float, chance_until: float | None = None) -> Boost:
    """A new boost for this load. Ahead of an expected load: the device would do what it can."""
    bare = 1.0 if trigger is Trigger.FORECAST else min(1.0, load.peak)
    return Boost(chance_until, bare=bare, longest_s=_lasted_s(load, now))


def with_sample(boost: Boost, cycle: CycleView, load: LoadWatch, sample: Sample, policy: Policy) -> Boost:
    """The boost with one more sample of the device counted.

    Before the cache is seen, utilization counts up to 1.0 only: the cache may have served unseen in part of the sample.
    """
    boost = replace(boost, longest_s=max(boost.longest_s, _lasted_s(load, sample.at)))
    boosted = cycle.times.boosted
    if boosted is None:
        return replace(boost, bare=max(boost.bare, min(1.0, load.peak)))
    if sample.at - sample.seconds < boosted or cycle.times.detached is not None:
        return boost
    moved = boost.moved_bytes + int(sample.adaptive.total_mb_s * sample.seconds * MB)
    above_mb_s = _above(utilization(sample, policy), boost.bare) * policy.backing_bandwidth_mb_s
    gained = boost.gained_bytes + int(above_mb_s * sample.seconds * MB)
    return replace(boost, moved_bytes=moved, gained_bytes=gained)


def _above(use: float, bare: float) -> float:
    """By how much a sample exceeds what the device carried without the cache, in utilization.

    Samples of one load differ; what the backing volume cannot carry is gained, however little it is.
    """
    return use - bare if use > min(1.0, BEYOND * bare) else 0.0


def _lasted_s(load: LoadWatch, at: float) -> float:
    return 0.0 if load.above_since is None else at - load.above_since


# --- when the volume is gone -----------------------------------------------------------------------------


def was_useful(boost: Boost, cycle: CycleView, policy: Policy) -> bool:
    """The boost gained something, or would have with a larger cache."""
    return boost.gained_bytes >= EARNED_S * policy.backing_bandwidth_mb_s * MB or cycle.use.missing_bytes > 0


def after_cycle(memory: Memory, at: Situation, cycle: CycleView, policy: Policy) -> Waste:
    """What is remembered after this cycle."""
    past, boost = memory.waste, memory.boost
    if cycle.failure and at.failures > 0:
        return _wasted(past, cycle)
    past = replace(past, wasted=0) if cycle.times.boosted is not None else past
    was_stopped = cycle.forced or at.is_held
    # An expected load that did not come says nothing about loads.
    is_learned = cycle.trigger is Trigger.FORECAST and policy.ahead is Ahead.LEARNED and boost.longest_s > 0
    if not (cycle.trigger is Trigger.LOAD or is_learned) or was_stopped:
        return past
    recent = _remembered(past, at.wall)
    if was_useful(boost, cycle, policy):
        return replace(past, useless=tuple(u for u in recent if not _is_like(boost.bare, boost.longest_s, 0.0, u)))
    return replace(past, useless=(*recent, UselessBoost(boost.bare, boost.longest_s, at.wall))[-KEPT:])


def _wasted(past: Waste, cycle: CycleView) -> Waste:
    if not cycle.has_volume:
        return past
    wasted = past.wasted + 1
    if wasted < MOST_WASTED:
        return replace(past, wasted=wasted)
    return replace(past, wasted=wasted, stopped=f"{wasted} volumes in a row never became a cache: {cycle.failure}")


# --- before the next purchase ----------------------------------------------------------------------------


def must_wait(past: Waste, load: LoadWatch, now: float, wall: float) -> bool:
    """This load is like those of useless boosts, and the last boost for such a load was too short a time ago."""
    peak, seconds, grain_s = min(1.0, load.peak), _lasted_s(load, now), _lasted_s(load, load.crossed_at or now)
    useless = _remembered(past, wall)
    alike = [u for u in useless if _is_like(peak, seconds, grain_s, u)]
    return len(alike) >= FREE and wall - alike[-1].at_wall < pause_s(len(useless))


def must_wait_ahead(past: Waste, wall: float) -> bool:
    """Boosts of the last day were useless, and the last one was too short a time ago to buy for an expected load."""
    useless = _remembered(past, wall)
    return len(useless) >= FREE and wall - useless[-1].at_wall < pause_s(len(useless))


def pause_s(useless: int) -> float:
    """Seconds to wait after this number of useless boosts within a day."""
    return 0.0 if useless < FREE else min(FIRST_PAUSE_S * 2.0 ** (useless - FREE), LONGEST_PAUSE_S)


def _is_like(peak: float, seconds: float, grain_s: float, useless: UselessBoost) -> bool:
    """The load does not exceed that of the useless boost. Its length is known to within one sample (`grain_s`)."""
    longest_s = max(useless.seconds * BEYOND, useless.seconds + grain_s)
    return peak <= useless.peak * BEYOND and seconds <= longest_s


def _remembered(past: Waste, wall: float) -> tuple[UselessBoost, ...]:
    """The useless boosts of the last day; none from the future, where the clock was set back."""
    return tuple(u for u in past.useless if 0 <= wall - u.at_wall < REMEMBERED_S)


def restraint(past: Waste, wall: float) -> str:
    """What delays or stops purchases, for people; empty: nothing does."""
    if past.stopped:
        return f"no boost begins by itself until `elastio resume`: {past.stopped}"
    useless = _remembered(past, wall)
    if len(useless) < FREE:
        return ""
    pause = format_duration(pause_s(len(useless)))
    return f"{len(useless)} boosts of the last day gained nothing; similar loads wait up to {pause} for the next boost"
