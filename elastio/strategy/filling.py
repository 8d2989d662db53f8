"""When a cache that is full is released under a load that does not end. Pure.

Theory of operation. A cache whose dirty data is at the cutoff absorbs no more than is flushed at the same time: the
application gets the bandwidth b of the backing volume, with the cache or without. What the cache still costs, c_h a
second, buys nothing until the load ends, and nobody knows when that is. To give it up costs something too: its D bytes
of dirty data have to be flushed now, and applications wait for that,

    c_g = (v + c_h) D/b        v, c_h: see `worth`. A flush under load takes 2 D/b instead of D/b (`governor.LIMITED`)

That is the ski rental problem again (see `hold`): keep the full cache until the rent has reached that price,

    t = c_g / c_h = (1 + v/c_h) D/b

and then give it up; this costs at most twice what somebody pays who knows the end of the load. Where waiting is dear
for what a cache costs, t is long, and loads end before. The rent begins where the paid time ends.

Sooner it is given up for a larger one, if that pays. How much is still to come nobody knows; of a load that has written
W it is taken to be as much again, as for anything of unknown length. While the cache is flushed, D are written. So
what the larger cache saves of the other W - D, its bill included, has to be more than c_g: for that W has to be more
than 2 D, and a load gets a few at the most. The rate at which it filled its cache says how much faster than b it is.

The flush is forced, as one that a cap begins: it is carried out to its end, and only a proven drain detaches the cache.
Where no larger one pays, none is bought for the same load. By AGBs, and for an operator's boost, a full cache stays.
"""

from __future__ import annotations

from dataclasses import replace

from elastio.core import governor
from elastio.core.cycle import Cycle, Trigger
from elastio.core.observation import Observation
from elastio.core.policy import Policy
from elastio.core.state import AgentState, Phase
from elastio.strategy.hold import release_in_s
from elastio.strategy.load import is_quiet
from elastio.strategy.memory import Unended
from elastio.units import MB, format_duration

# A cache counts as full until so much of its room is free again: the governor keeps it near the limit.
FREE_AGAIN = 0.8


def noted(state: AgentState, obs: Observation, policy: Policy) -> AgentState:
    """The state that knows since when the load finds its cache full, and whether a load that filled one goes on."""
    cycle, backing = state.cycle, obs.host.backing if obs.host else None
    # A release holds requests back, which is not the end of the load: what ended meanwhile is seen after it.
    is_releasing = state.phase in (Phase.FLUSHING, Phase.DETACHING)
    knows_one = state.memory.has_filled or state.memory.unended is not None
    if knows_one and not is_releasing and is_quiet(state.memory.load, obs.now, policy):
        state = replace(state, memory=replace(state.memory, has_filled=False, unended=None))
    is_under_load = state.phase is Phase.BOOSTING and state.memory.load.above_since is not None
    if cycle is None or cycle.choice is None or not is_under_load:
        return _full(state, None)
    if backing is None:
        return state
    if governor.is_nearly_full(backing, policy):
        return state if state.memory.full_since is not None else _full(state, obs.now)
    return _full(state, None) if backing.dirty_bytes < FREE_AGAIN * cycle.use.peak_dirty_bytes else state


def _full(state: AgentState, since: float | None) -> AgentState:
    if since == state.memory.full_since:
        return state
    return replace(state, memory=replace(state.memory, full_since=since))


def why_over(state: AgentState, cycle: Cycle, obs: Observation, policy: Policy) -> str:
    """Why a full cache is released although the load goes on; empty: it is kept."""
    since = state.memory.full_since
    if since is None or obs.now < _until(cycle, since, policy):
        return ""
    full = format_duration(obs.now - since)
    return f"full for {full} under a load that goes on: keeping the cache costs more than releasing it"


def unended(state: AgentState, obs: Observation, policy: Policy) -> Unended | None:
    """The load that finds its cache full, if that cache could be given up for a larger one; else None.

    Its rate is that at which the cache has filled since it serves: too low after a pause and by what was flushed, and
    never too high.
    """
    since, above, cycle = state.memory.full_since, state.memory.load.above_since, state.cycle
    if since is None or above is None or cycle is None or cycle.choice is None or cycle.trigger is Trigger.OPERATOR:
        return None
    filled_s = since - (since if cycle.times.boosted is None else cycle.times.boosted)
    # Buckets that wait for garbage collection are not dirty: then it is not the load that fills the cache.
    if filled_s <= 0 or cycle.dirty_bytes <= FREE_AGAIN * cycle.use.peak_dirty_bytes:
        return None
    before_mb = 0.0 if state.memory.unended is None else state.memory.unended.written_mb
    dirty_mb = cycle.dirty_bytes / MB
    written_mb = before_mb + dirty_mb + policy.backing_bandwidth_mb_s * (obs.now - since)
    return Unended(written_mb + dirty_mb, dirty_mb / filled_s)


def _until(cycle: Cycle, since: float, policy: Policy) -> float:
    """Until when (CLOCK_BOOTTIME) a cache that is full since then is kept."""
    market, choice = policy.market, cycle.choice
    if market is None or choice is None or cycle.trigger is Trigger.OPERATOR:
        return float("inf")
    flush_s = cycle.dirty_bytes / MB / policy.backing_bandwidth_mb_s
    hold_per_s = market.tariff.per_hour(cycle.provisioned) / 3600
    if hold_per_s <= 0:
        return float("inf")
    kept_s = (1 + market.waiting_per_s / hold_per_s) * flush_s
    age_s = 0.0 if cycle.opened_wall is None else max(0.0, cycle.wall_at(since) - cycle.opened_wall)
    release_s = choice.billing.release_s + flush_s / governor.LIMITED
    return since + release_in_s(choice.billing, age_s, release_s, kept_s)
