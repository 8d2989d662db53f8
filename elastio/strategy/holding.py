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

from elastio.core.cycle import Cycle
from elastio.core.observation import Observation
from elastio.core.policy import Policy
from elastio.core.state import AgentState, Phase
from elastio.strategy import caps
from elastio.strategy.hold import release_in_s
from elastio.strategy.load import is_quiet
from elastio.strategy.market import OwnedCache
from elastio.strategy.memory import Boost, Choice
from elastio.units import MB, format_duration

# Dirty data of so many seconds of flushing is what an unused filesystem leaves behind.
CLEAN_S = 1.0


def noted(state: AgentState, obs: Observation, policy: Policy) -> tuple[AgentState, str]:
    """The state that knows since when the cache is clean and unused, and a sentence if its hold has just begun."""
    cycle, boost, backing = state.cycle, state.memory.boost, obs.host.backing if obs.host else None
    if cycle is None or cycle.choice is None or backing is None:
        return state, ""
    quiet_s = _quiet_s(state, cycle, obs.now)
    is_clean = backing.dirty_bytes <= CLEAN_S * policy.backing_bandwidth_mb_s * MB
    if state.phase is not Phase.BOOSTING or state.memory.load.above_since is not None:
        return (state if boost.clean_since is None else _with_clean(state, cycle, None)), ""
    # After a restart no sample has shown the load yet: the hold that is recorded goes on.
    if boost.clean_since is not None or not is_clean or quiet_s is None or quiet_s < cycle.choice.quiet_s:
        return state, ""
    begun = replace(cycle, choice=_as_known_now(cycle, cycle.choice, obs))
    state = _with_clean(state, begun, obs.now)
    left = format_duration(max(0.0, _until(state, begun, begun.choice or cycle.choice, obs, policy) - obs.now))
    return state, f"the cache is clean and unused: it is held for {left}"


def _with_clean(state: AgentState, cycle: Cycle, since: float | None) -> AgentState:
    boost = replace(state.memory.boost, clean_since=since)
    return replace(state, cycle=cycle, memory=replace(state.memory, boost=boost))


def why_over(state: AgentState, cycle: Cycle, obs: Observation, policy: Policy) -> str:
    """Why the cache is to be flushed and released for lack of load; empty: it is kept."""
    choice = cycle.choice
    if choice is None:
        return _after_delay(state, cycle, obs, policy)
    quiet_s = _quiet_s(state, cycle, obs.now)
    if quiet_s is None or state.memory.boost.is_awaiting(obs.now):
        return ""
    if quiet_s < choice.quiet_s and not _is_in_vain(state.memory.boost, cycle):
        return ""
    capped = _why_capped(state, obs, policy)
    if capped:
        return f"nothing is written, and {capped}: the cache is not held"
    known = known_of(cycle, obs)
    if is_hindrance(cycle, obs):
        return "another cache would have been cheaper for the last bursts, even beside this one: it is not held"
    if known is not None and known.is_outdated:
        choice = replace(choice, holding_s=0.0)
    if obs.now < _until(state, cycle, choice, obs, policy):
        return ""
    return f"unused for {format_duration(quiet_s)}: holding the cache longer is not worth its price"


def known_of(cycle: Cycle, obs: Observation) -> OwnedCache | None:
    """What the past bursts teach about the cache of this cycle; None: nothing is known."""
    known = None if obs.advice is None else obs.advice.owned
    return known if known is not None and known.token == cycle.token else None


def is_hindrance(cycle: Cycle, obs: Observation) -> bool:
    """Another cache would be cheaper even if the load had to wait for the flush of this one: it is carried out."""
    known = known_of(cycle, obs)
    return known is not None and known.is_hindrance


def _as_known_now(cycle: Cycle, choice: Choice, obs: Observation) -> Choice:
    """The choice with the time of holding that follows from what is known when the hold begins."""
    known = known_of(cycle, obs)
    return choice if known is None else replace(choice, holding_s=0.0 if known.is_outdated else known.holding_s)


def left_s(state: AgentState, obs: Observation, policy: Policy) -> float | None:
    """Seconds for which the cache is still held; None: it is not held."""
    cycle = state.cycle
    if cycle is None or cycle.choice is None or state.memory.boost.clean_since is None:
        return None
    return max(0.0, _until(state, cycle, cycle.choice, obs, policy) - obs.now)


def _after_delay(state: AgentState, cycle: Cycle, obs: Observation, policy: Policy) -> str:
    """By the settings: for an inactivity delay after the load; for the expected burst, and no longer, if none came."""
    if not is_quiet(state.memory.load, obs.now, policy) or state.memory.boost.is_awaiting(obs.now):
        return ""
    if _is_in_vain(state.memory.boost, cycle):
        return "the time of the expected burst is over, and no load came"
    since = max(state.memory.load.below_since or 0.0, cycle.times.boosted or 0.0)
    if obs.now - since < policy.inactivity_delay_s:
        return ""
    return f"utilization below {policy.release_threshold:.0%} for {format_duration(policy.inactivity_delay_s)}"


def _quiet_s(state: AgentState, cycle: Cycle, now: float) -> float | None:
    """How long the cache has been attached without load; None: there is load."""
    below = state.memory.load.below_since
    return None if below is None else now - max(below, cycle.times.boosted or 0.0)


def _until(state: AgentState, cycle: Cycle, choice: Choice, obs: Observation, policy: Policy) -> float:
    """Until when (CLOCK_BOOTTIME) the cache is held."""
    clean_at = _clean_at(state, cycle, obs, policy)
    opened = cycle.opened_wall
    age_s = 0.0 if opened is None else max(0.0, cycle.wall_at(clean_at) - opened)
    return clean_at + release_in_s(
        choice.billing,
        age_s,
        choice.billing.release_s,
        0.0 if _is_in_vain(state.memory.boost, cycle) else choice.holding_s,
    )


def _is_in_vain(boost: Boost, cycle: Cycle) -> bool:
    """The cache was bought ahead of a burst, and no load has come yet. What is paid is paid, and no more than that.

    A load that is seen clears `chance_until`. After a restart it does not; then the load shows in `longest_s`.
    """
    return boost.chance_until is not None and cycle.trigger.is_ahead and boost.longest_s == 0


def _clean_at(state: AgentState, cycle: Cycle, obs: Observation, policy: Policy) -> float:
    since = state.memory.boost.clean_since
    if since is not None:
        return since
    per_s = policy.backing_bandwidth_mb_s * MB
    backing = obs.host.backing if obs.host else None
    dirty = cycle.dirty_bytes if backing is None else backing.dirty_bytes
    begun = max(state.memory.load.below_since or 0.0, cycle.times.boosted or 0.0)
    return min(obs.now + dirty / per_s, begun + 2 * cycle.use.peak_dirty_bytes / per_s)


def _why_capped(state: AgentState, obs: Observation, policy: Policy) -> str:
    """Why a cap forbids to hold; empty: none does. This is so even where caps end no boost."""
    if not obs.spend.known and policy.caps.limits_spending:
        return "the ledger cannot be read, and [caps] limits what is spent"
    capped = caps.passed(state, obs, policy)
    return "" if capped is None else caps.what_ends(capped)
