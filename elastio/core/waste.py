"""When a boost is not worth buying, by what past ones came to. Pure.

A load is bought a cache as soon as it is seen, long before anybody knows how long it will last. A job that writes for
two seconds each minute would so buy a volume each minute, and each would come when the load is over. So every boost is
judged when its volume is gone. It *gained* what applications moved beyond the rate that the device carried before the
cache was there; a boost that gained less than some seconds of the backing volume's bandwidth was *useless*, and what
its load looked like is remembered for a day: the most that it used without the cache, and how long it lasted.

A later load is held against those. The moment it goes beyond every one of them, in rate or in length, it is a load that
no boost was useless for, and a cache is bought at once. While it does not, it is bought a cache only so often: the
first times as if nothing had been learned, then after pauses that double up to some hours. It is bought one now and
then because the world changes: a useful one takes what it contradicts out of the memory.

So blips that leave the backing volume half idle cost a burst that saturates it no time, but where its first sample
caught so little of it that it looks like a blip: then the next sample tells. Blips that saturate the volume cannot be
told from the beginning of a burst by their rate: where these are remembered, a burst gets its cache when it has lasted
a quarter, or a sample, longer than they do.

Volumes that are bought and never become a cache are counted apart: what failed so often will fail again until somebody
has looked, and each try is paid for.
"""

from __future__ import annotations

from dataclasses import replace

from elastio.core.cycle import Cycle, Trigger
from elastio.core.model import Sample
from elastio.core.policy import Policy, utilization
from elastio.core.state import AgentState, LoadWatch, UselessBoost, Waste
from elastio.units import MB, format_duration

# Of the backing volume's bandwidth: what a boost must save applications to have been worth its cost. Attaching and
# detaching hold their requests back for up to two seconds each.
EARNED_S = 3.0
# So many boosts for loads of one look may be useless before the next one waits.
FREE = 3
FIRST_PAUSE_S = 300.0
LONGEST_PAUSE_S = 4 * 3600.0
REMEMBERED_S = 24 * 3600.0
KEPT = 16
# A load is beyond another one from this ratio on: less is what a sample shows of one and the same load.
BEYOND = 1.25
# Volumes in a row that never became a cache; with the growing pauses between them that takes an hour and a half.
MOST_WASTED = 8


# --- while a cycle is open -------------------------------------------------------------------------------


def begun(cycle: Cycle, load: LoadWatch, now: float) -> Cycle:
    """A cycle for this load: what it has shown so far."""
    return replace(cycle, bare=min(1.0, load.peak), longest_s=_lasted_s(load, now))


def watch(cycle: Cycle, load: LoadWatch, sample: Sample, policy: Policy) -> Cycle:
    """The cycle with one more sample of the device counted.

    Without the cache no more counts than what is reserved for the backing volume: a sample may reach into the time in
    which the cache was there, and was not yet seen.
    """
    cycle = replace(cycle, longest_s=max(cycle.longest_s, _lasted_s(load, sample.at)))
    boosted = cycle.times.boosted
    if boosted is None:
        return replace(cycle, bare=max(cycle.bare, min(1.0, load.peak)))
    if sample.at - sample.seconds < boosted or cycle.times.detached is not None:
        return cycle
    moved = sample.adaptive.total_mb_s * sample.seconds * MB
    gained = max(0.0, utilization(sample, policy) - cycle.bare) * policy.backing_bandwidth_mb_s * sample.seconds * MB
    return replace(cycle, moved_bytes=cycle.moved_bytes + int(moved), gained_bytes=cycle.gained_bytes + int(gained))


def _lasted_s(load: LoadWatch, at: float) -> float:
    return 0.0 if load.above_since is None else at - load.above_since


# --- when its volume is gone -----------------------------------------------------------------------------


def has_earned(cycle: Cycle, policy: Policy) -> bool:
    """It gained something, or would have with a larger cache."""
    return cycle.gained_bytes >= EARNED_S * policy.backing_bandwidth_mb_s * MB or cycle.missing_bytes > 0


def judged(state: AgentState, cycle: Cycle, wall: float, policy: Policy) -> Waste:
    """What is remembered once this cycle is over."""
    thrift = state.waste
    if cycle.failure and state.failures > 0:
        return _wasted(thrift, cycle)
    thrift = replace(thrift, wasted=0) if cycle.times.boosted is not None else thrift
    was_stopped = cycle.forced or state.paused or state.inhibition is not None
    if cycle.trigger is not Trigger.LOAD or was_stopped:
        return thrift
    recent = _remembered(thrift, wall)
    if has_earned(cycle, policy):
        return replace(thrift, useless=tuple(u for u in recent if not _is_like(cycle.bare, cycle.longest_s, 0.0, u)))
    return replace(thrift, useless=(*recent, UselessBoost(cycle.bare, cycle.longest_s, wall))[-KEPT:])


def _wasted(thrift: Waste, cycle: Cycle) -> Waste:
    if cycle.volume_id is None:
        return thrift
    wasted = thrift.wasted + 1
    if wasted < MOST_WASTED:
        return replace(thrift, wasted=wasted)
    return replace(thrift, wasted=wasted, stopped=f"{wasted} volumes in a row never became a cache: {cycle.failure}")


# --- before the next purchase ----------------------------------------------------------------------------


def must_wait(thrift: Waste, load: LoadWatch, now: float, wall: float) -> bool:
    """This load is like those that boosts were useless for, and such a one has had its turn."""
    peak, seconds, grain_s = min(1.0, load.peak), _lasted_s(load, now), _lasted_s(load, load.crossed_at or now)
    useless = _remembered(thrift, wall)
    alike = [u for u in useless if _is_like(peak, seconds, grain_s, u)]
    return len(alike) >= FREE and wall - alike[-1].at_wall < pause_s(len(useless))


def pause_s(useless: int) -> float:
    """After so many useless boosts within a day."""
    return 0.0 if useless < FREE else min(FIRST_PAUSE_S * 2.0 ** (useless - FREE), LONGEST_PAUSE_S)


def _is_like(peak: float, seconds: float, grain_s: float, useless: UselessBoost) -> bool:
    """One and the same load is seen to last longer by a sample (`grain_s`), as it meets the samples."""
    longest_s = max(useless.seconds * BEYOND, useless.seconds + grain_s)
    return peak <= useless.peak * BEYOND and seconds <= longest_s


def _remembered(thrift: Waste, wall: float) -> tuple[UselessBoost, ...]:
    """Not for longer than a day, and nothing that a clock which was set back has not seen yet."""
    return tuple(u for u in thrift.useless if 0 <= wall - u.at_wall < REMEMBERED_S)


def told(thrift: Waste, wall: float) -> str:
    """What holds purchases back, for people; empty: nothing does."""
    if thrift.stopped:
        return f"no boost begins by itself until `elastio resume`: {thrift.stopped}"
    useless = _remembered(thrift, wall)
    if len(useless) < FREE:
        return ""
    pause = format_duration(pause_s(len(useless)))
    return (
        f"{len(useless)} boosts of the last day gained nothing; loads like theirs wait up to {pause} for the next one"
    )
