"""When a boost may begin, and the cycle that it begins. Pure."""

from __future__ import annotations

import hashlib

from elastio.core.cycle import Backoff, Cycle, Timestamps
from elastio.core.model import CacheState
from elastio.core.observation import Observation
from elastio.core.policy import Policy
from elastio.core.state import AgentState, Phase
from elastio.strategy.wish import BoostPlan


def may_begin(state: AgentState, obs: Observation, policy: Policy) -> bool:
    """Whether a boost may begin by itself now. Whoever asks for something else is served first."""
    is_free = state.phase is Phase.IDLE and not (state.paused or state.orphans or obs.requests)
    return is_free and obs.now >= state.cool_until and not obstacle(state, obs, policy)


def obstacle(state: AgentState, obs: Observation, policy: Policy) -> str:
    """Why no boost can begin now, whoever asks for it; empty if one can."""
    if policy.buys_nothing:
        return policy.buys_nothing
    backing = obs.host.backing if obs.host else None
    if backing is None or obs.host is None or not backing.running:
        return "the adaptive device is not running"
    if obs.host.unsupported:
        return obs.host.unsupported
    has_no_cache = backing.state in (CacheState.NO_CACHE, CacheState.INCONSISTENT) or backing.lost_clean_cache
    if backing.cache_set is not None or not has_no_cache:
        return "the backing device has a cache already"
    if state.inhibition is not None:
        return f"no boost may begin now ({state.inhibition.reason})"
    if state.owned is None:
        return "the cloud has not listed this agent's volumes yet"
    return ""


def new_cycle(plan: BoostPlan, state: AgentState, obs: Observation, policy: Policy) -> Cycle:
    """The cycle of this boost, as it begins with the decision."""
    backing = obs.host.backing if obs.host else None
    start = obs.now + obs.jitter * policy.start_jitter_s
    return Cycle(
        token=_token(state, obs, policy),
        backing_serial=backing.disk_serial if backing else None,
        trigger=plan.trigger,
        spec=plan.spec,
        least_s=plan.least_s,
        choice=plan.choice,
        asked_by=plan.asked_by,
        started_at=obs.now,
        started_wall=obs.wall,
        times=Timestamps(crossed=plan.crossed_at, decided=obs.now),
        backoffs={"CreateVolume": Backoff(0, start)},
    )


def _token(state: AgentState, obs: Observation, policy: Policy) -> str:
    """A token for a purchase that no other machine uses.

    Machines from one image have the same backing UUID, and under a parallel application all decide in the same
    millisecond. The machine's identity makes the token unique; where it is unknown, the random part does.
    """
    whose = hashlib.sha256(f"{state.machine} {policy.backing_uuid}".encode()).hexdigest()[:12]
    return f"elastio-{whose}-{int(obs.wall * 1000):x}-{int(obs.jitter * 2**32):08x}"
