"""When a boost may begin, and the cycle that it begins. Pure."""

from __future__ import annotations

import hashlib

from elastio.core.cycle import Backoff, Cycle, Timestamps, Trigger
from elastio.core.detection import Detection, Event
from elastio.core.model import CacheState, VolumeSpec
from elastio.core.observation import Observation
from elastio.core.policy import Policy
from elastio.core.state import AgentState
from elastio.strategy import buying, waste
from elastio.strategy.wish import BoostPlan, Decline


def wanted(state: AgentState, obs: Observation, policy: Policy) -> Detection | None:
    """In phase IDLE: BOOST_WANTED if a load or an expected burst asks for a boost, BOOST_CAPPED if a cap forbids it."""
    if state.paused or obs.now < state.cool_until or obstacle(state, obs, policy):
        return None
    wish = buying.wanted(state, obs, policy)
    if isinstance(wish, Decline):
        return Detection(Event.BOOST_CAPPED if wish.is_capped else Event.BOOST_DECLINED, wish.reason)
    return None if wish is None else Detection(Event.BOOST_WANTED, wish.reason, plan=wish)


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
    cycle = Cycle(
        token=_token(state, obs, policy),
        backing_serial=backing.disk_serial if backing else None,
        trigger=plan.trigger,
        spec=VolumeSpec(plan.size_bytes, _bandwidth(plan, policy), policy.cache_iops),
        choice=plan.choice,
        chance_until=plan.chance_until,
        asked_by=plan.asked_by,
        started_at=obs.now,
        started_wall=obs.wall,
        times=Timestamps(crossed=state.load.crossed_at if plan.trigger is Trigger.LOAD else None, decided=obs.now),
        backoffs={"CreateVolume": Backoff(0, start)},
    )
    if plan.trigger is Trigger.OPERATOR:
        return cycle
    return waste.with_load(cycle, state.load, obs.now)


def _bandwidth(plan: BoostPlan, policy: Policy) -> float:
    """MB/s to buy: the chosen ones, else the configured."""
    chosen = plan.choice
    return policy.bought_bandwidth_mb_s if chosen is None else chosen.cache_mb_s + chosen.drain_mb_s


def _token(state: AgentState, obs: Observation, policy: Policy) -> str:
    """A token for a purchase that no other machine uses.

    Machines from one image have the same backing UUID, and under a parallel application all decide in the same
    millisecond. The machine's identity makes the token unique; where it is unknown, the random part does.
    """
    whose = hashlib.sha256(f"{state.machine} {policy.backing_uuid}".encode()).hexdigest()[:12]
    return f"elastio-{whose}-{int(obs.wall * 1000):x}-{int(obs.jitter * 2**32):08x}"
