"""Boosts ahead of bursts that somebody announced, or that a forecaster expects. Pure.

A boost that waits for the threshold comes late: by one sample, the cloud's latency and the agent's own steps. Where the
beginning of a burst is known, the cache is bought so much earlier that it is attached by then. Nobody pays for more
than that: the *lead* is the longest of the last measured times from a decision to the attached cache, and a little
more, because a second of waiting application costs more than a second of an idle cache.

An expected burst is *awaited* from its lead time on until it would have ended at the cache's bandwidth, plus the
inactivity delay. Meanwhile a cache that is attached already is not released for lack of load, and one that is being
flushed takes writes again. If no load comes in that time, the expectation was wrong. After three wrong ones in a row
nothing is bought ahead, until one that is only watched turns out right: what announces bursts that do not come must not
buy a volume each time.
"""

from __future__ import annotations

from dataclasses import replace

from elastio.core import learning
from elastio.core.model import Forecast
from elastio.core.observation import Observation
from elastio.core.policy import Policy, chance_until, in_steps, next_size
from elastio.core.state import AgentState, Phase

# Bursts that may be announced at the same time.
MOST_EXPECTED = 64
# Measured times to attach that are kept, and what is added to the longest: another one may take longer.
KEPT = 8
MARGIN, MARGIN_S = 1.1, 1.0
# Wrong expectations in a row after which nothing is bought ahead.
MOST_MISSED = 3


def expect(state: AgentState, burst: Forecast) -> AgentState:
    """The state with one more announced burst."""
    return replace(state, expected=tuple(sorted((*state.expected, burst), key=lambda b: b.begins_at)))


def update(state: AgentState, obs: Observation, policy: Policy) -> AgentState:
    """The state at `obs.now`: past bursts forgotten, the next one awaited, and the outcome of the awaited one noted."""
    state = replace(state, expected=tuple(b for b in state.expected if b.begins_at > obs.now))
    state = _judged(state, obs.now, policy)
    due = _due(state, obs, policy)
    if due is not None and (state.awaited is None or due.begins_at > state.awaited.begins_at):
        state = replace(state, awaited=due)
    return _kept(state, policy)


def _judged(state: AgentState, now: float, policy: Policy) -> AgentState:
    """A load while a burst is awaited is that burst."""
    if state.awaited is None or now < state.awaited.begins_at:
        return state
    if state.load.above_since is not None:
        # From now on the load decides how long the cache is kept.
        cycle = replace(state.cycle, chance_until=None) if state.cycle else None
        return replace(state, cycle=cycle, awaited=None, missed=0)
    if now < chance_until(state.awaited, policy):
        return state
    return replace(state, awaited=None, missed=state.missed + 1)


def _due(state: AgentState, obs: Observation, policy: Policy) -> Forecast | None:
    """The next expected burst, if its lead time has come."""
    forecast = obs.forecast
    is_sure = forecast is not None and forecast.confidence >= policy.least_confidence
    known = (*state.expected, *((forecast,) if forecast is not None and is_sure else ()))
    lead = lead_s(state, policy)
    soon = [b for b in known if 0 < b.begins_at - obs.now <= lead]
    return min(soon, key=lambda b: b.begins_at, default=None)


def _kept(state: AgentState, policy: Policy) -> AgentState:
    """The state whose cycle keeps its cache for the awaited burst."""
    cycle, burst = state.cycle, to_buy_for(state)
    if cycle is None or burst is None or state.phase not in (Phase.ATTACHING, Phase.BOOSTING, Phase.FLUSHING):
        return state
    until = max(chance_until(burst, policy), cycle.chance_until or 0.0)
    return state if until == cycle.chance_until else replace(state, cycle=replace(cycle, chance_until=until))


def to_buy_for(state: AgentState) -> Forecast | None:
    """The awaited burst, if a cache may be bought ahead of it; None: there is none, or too many were wrong."""
    return state.awaited if state.missed < MOST_MISSED else None


def lead_s(state: AgentState, policy: Policy) -> float:
    """How long before a burst its cache is bought, in seconds: from measured boosts, else the policy's."""
    return MARGIN * max(state.attach_s) + MARGIN_S if state.attach_s else policy.lead_s


def with_attach_time(state: AgentState) -> AgentState:
    """The state with the times that the cache of its cycle took: until its disk appeared, and until it was attached."""
    times = state.cycle.times if state.cycle else None
    if times is None or times.decided is None or times.boosted is None:
        return state
    appear_s = () if times.appeared is None else (times.appeared - times.decided,)
    return replace(
        state,
        attach_s=(*state.attach_s, times.boosted - times.decided)[-KEPT:],
        appear_s=(*state.appear_s, *appear_s)[-KEPT:],
    )


def size_for(burst: Forecast, state: AgentState, policy: Policy) -> int:
    """Bytes to buy ahead of this burst: the learned share of what it writes, or room for all of it.

    Without an announced size: the learned size, else the initial one.
    """
    if not burst.written_bytes:
        return next_size(state.learned_size_bytes, policy)
    share = learning.share(state.lessons) if state.lessons else policy.headroom / policy.cutoff
    return in_steps(burst.written_bytes * share, policy)
