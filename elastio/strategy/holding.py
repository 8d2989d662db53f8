"""How long an attached cache stays when its load is over. Pure.

By AGBs: for the inactivity delay. By money: a cache that is clean and unused is held, because the next burst may come
soon and seconds that are billed anyway cost nothing. It stays attached in writeback mode, in phase BOOSTING, exactly as
during the inactivity delay: the next write is absorbed at once, and an operator, an inhibition or a fault ends the hold
as it ends a boost. A cap ends a hold by the rule by which it ends a boost (see `caps`), and also where
`Caps.ends_boosts` is off: a load that is there goes on then, unused time is not bought.

The time is counted from `Boost.clean_since`, which is recorded in the journal when the hold begins. A load that is too
low to count may keep the cache from ever being clean: then the time counts from when twice its flush would be over.
"""

from __future__ import annotations

from dataclasses import replace

from elastio.billing import RELEASE_S
from elastio.core.phase import Phase
from elastio.core.policy import Policy
from elastio.strategy import caps
from elastio.strategy.hold import release_in_s
from elastio.strategy.load import is_quiet
from elastio.strategy.memory import Boost, Choice, Memory
from elastio.strategy.situation import CycleView, Situation
from elastio.strategy.worth import OwnedCache
from elastio.units import MB, format_duration

# Dirty data of so many seconds of flushing is what an unused filesystem leaves behind.
CLEAN_S = 1.0


def noted(memory: Memory, at: Situation, policy: Policy) -> tuple[Memory, Choice | None, str]:
    """The memory that knows since when the cache is clean and unused, its choice as known now, and why it is held.

    The last is empty unless the hold has just begun.
    """
    cycle, since, device = at.cycle, memory.boost.clean_since, at.device
    if cycle is None or cycle.choice is None or device is None:
        return memory, at.choice, ""
    quiet_s = _quiet_s(memory, cycle, at.now)
    is_clean = device.dirty_bytes <= CLEAN_S * policy.backing_bandwidth_mb_s * MB
    if at.phase is not Phase.BOOSTING or memory.load.above_since is not None:
        return (memory if since is None else _with_clean(memory, None)), cycle.choice, ""
    # After a restart no sample has shown the load yet: the hold that is recorded goes on.
    if since is not None or not is_clean or quiet_s is None or quiet_s < cycle.choice.quiet_s:
        return memory, cycle.choice, ""
    memory, choice = _with_clean(memory, at.now), _as_known_now(cycle, cycle.choice, at)
    left = format_duration(max(0.0, _until(memory, cycle, choice, at, policy) - at.now))
    return memory, choice, f"the cache is clean and unused: it is held for {left}"


def _with_clean(memory: Memory, since: float | None) -> Memory:
    return replace(memory, boost=replace(memory.boost, clean_since=since))


def why_over(memory: Memory, cycle: CycleView, at: Situation, policy: Policy) -> str:
    """Why the cache is to be flushed and released for lack of load; empty: it is kept."""
    choice = cycle.choice
    if choice is None:
        return _after_delay(memory, cycle, at, policy)
    quiet_s = _quiet_s(memory, cycle, at.now)
    if quiet_s is None or memory.boost.is_awaiting(at.now):
        return ""
    if quiet_s < choice.quiet_s and not _is_in_vain(memory.boost, cycle):
        return ""
    capped = _why_capped(memory, at, policy)
    if capped:
        return f"nothing is written, and {capped}: the cache is not held"
    known = known_of(cycle, at)
    if is_hindrance(cycle, at):
        return "another cache would have been cheaper for the last bursts, even beside this one: it is not held"
    if known is not None and known.is_outdated:
        choice = replace(choice, holding_s=0.0)
    if at.now < _until(memory, cycle, choice, at, policy):
        return ""
    return f"unused for {format_duration(quiet_s)}: holding the cache longer is not worth its price"


def known_of(cycle: CycleView, at: Situation) -> OwnedCache | None:
    """What the past bursts teach about the cache of this cycle; None: nothing is known."""
    known = None if at.advice is None else at.advice.owned
    return known if known is not None and known.token == cycle.token else None


def is_hindrance(cycle: CycleView, at: Situation) -> bool:
    """Another cache would be cheaper even if the load had to wait for the flush of this one: it is carried out."""
    known = known_of(cycle, at)
    return known is not None and known.is_hindrance


def _as_known_now(cycle: CycleView, choice: Choice, at: Situation) -> Choice:
    """The choice with the time of holding that follows from what is known when the hold begins."""
    known = known_of(cycle, at)
    if known is None:
        return choice
    bought, holding = choice.cache_mb_s + choice.drain_mb_s, 0.0 if known.is_outdated else known.holding_s
    drain = known.drain_mb_s
    return replace(choice, cache_mb_s=bought - drain, drain_mb_s=drain, holding_s=holding)


def left_s(memory: Memory, at: Situation, policy: Policy) -> float | None:
    """Seconds for which the cache is still held; None: it is not held."""
    cycle = at.cycle
    if cycle is None or cycle.choice is None or memory.boost.clean_since is None:
        return None
    return max(0.0, _until(memory, cycle, cycle.choice, at, policy) - at.now)


def _after_delay(memory: Memory, cycle: CycleView, at: Situation, policy: Policy) -> str:
    """By the settings: for an inactivity delay after the load; for the expected burst, and no longer, if none came."""
    if not is_quiet(memory.load, at.now, policy) or memory.boost.is_awaiting(at.now):
        return ""
    if _is_in_vain(memory.boost, cycle):
        return "the time of the expected burst is over, and no load came"
    since = max(memory.load.below_since or 0.0, cycle.times.boosted or 0.0)
    if at.now - since < policy.inactivity_delay_s:
        return ""
    return f"utilization below {policy.release_threshold:.0%} for {format_duration(policy.inactivity_delay_s)}"


def _quiet_s(memory: Memory, cycle: CycleView, now: float) -> float | None:
    """How long the cache has been attached without load; None: there is load."""
    below = memory.load.below_since
    return None if below is None else now - max(below, cycle.times.boosted or 0.0)


def _until(memory: Memory, cycle: CycleView, choice: Choice, at: Situation, policy: Policy) -> float:
    """Until when (CLOCK_BOOTTIME) the cache is held."""
    clean_at = _clean_at(memory, cycle, at, policy)
    opened = cycle.opened_wall
    age_s = 0.0 if opened is None else max(0.0, cycle.wall_at(clean_at) - opened)
    return clean_at + release_in_s(
        choice.billing,
        age_s,
        choice.billing.release_s,
        0.0 if _is_in_vain(memory.boost, cycle) else choice.holding_s,
        RELEASE_S,
    )


def _is_in_vain(boost: Boost, cycle: CycleView) -> bool:
    """The cache was bought ahead of a burst, and no load has come yet. What is paid is paid, and no more than that.

    A load that is seen clears `chance_until`. After a restart it does not; then the load shows in `longest_s`.
    """
    return boost.chance_until is not None and cycle.trigger.is_ahead and boost.longest_s == 0


def _clean_at(memory: Memory, cycle: CycleView, at: Situation, policy: Policy) -> float:
    since = memory.boost.clean_since
    if since is not None:
        return since
    per_s = policy.backing_bandwidth_mb_s * MB
    dirty = cycle.dirty_bytes if at.device is None else at.device.dirty_bytes
    begun = max(memory.load.below_since or 0.0, cycle.times.boosted or 0.0)
    return min(at.now + dirty / per_s, begun + 2 * cycle.use.peak_dirty_bytes / per_s)


def _why_capped(memory: Memory, at: Situation, policy: Policy) -> str:
    """Why a cap forbids to hold; empty: none does. This is so even where caps end no boost."""
    if not at.spend.known and policy.caps.limits_spending:
        return "the ledger cannot be read, and [caps] limits what is spent"
    capped = caps.passed(memory, at, policy)
    return "" if capped is None else caps.what_ends(capped)
