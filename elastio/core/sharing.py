"""When cgroups share the adaptive device, and how much there is to share. Pure; knows no price.

The capacity is that of now (`capacity`): the bandwidth that limits applications, less the pace that the governor sets
for the flush. So both are one plan, and no bandwidth is given away twice. Nothing is shared while the agent is faulted,
limits all writes so that a flush ends, cannot record what it does, or does not know the capacity.
"""

from __future__ import annotations

from dataclasses import replace

from elastio.core.actions import SetShares
from elastio.core.capacity import Unknown, capacity
from elastio.core.cycle import NO_BACKOFF
from elastio.core.model import BackingView
from elastio.core.observation import Observation
from elastio.core.policy import Policy
from elastio.core.polling import NextAction, ask
from elastio.core.shares import HYSTERESIS, SharePlan
from elastio.core.state import AgentState, Phase

SHARED = frozenset({Phase.IDLE, Phase.ATTACHING, Phase.BOOSTING, Phase.FLUSHING, Phase.DETACHING})


def step(state: AgentState, obs: Observation, policy: Policy) -> NextAction:
    """The action that shares the capacity of now, or ends that; nothing where what is in force is near enough."""
    backing = obs.host.backing if obs.host else None
    if backing is None:
        return NextAction()
    wanted = _wanted(state, obs, backing, policy)
    if wanted is None:
        free = backing.shared_mb_s is not None
        # At once after a change, and later after a failure.
        backoff = state.backoff_of("SetShares") if state.backoff_of("SetShares").error else NO_BACKOFF
        return ask(SetShares(None), backoff, obs, "") if free else NextAction()
    if not _is_change(wanted, state, obs, backing):
        return NextAction()
    return ask(SetShares(wanted), state.backoff_of("SetShares"), obs, "")


def _wanted(state: AgentState, obs: Observation, backing: BackingView, policy: Policy) -> SharePlan | None:
    if policy.share_reserve is None or state.phase not in SHARED or state.is_stopped or not obs.can_record:
        return None
    found = capacity(state, backing, obs.sample, policy)
    if isinstance(found, Unknown):
        return None
    return SharePlan(found.mb_s, policy.share_reserve, policy.share_latency)


def _is_change(wanted: SharePlan, state: AgentState, obs: Observation, backing: BackingView) -> bool:
    in_force = backing.shared_mb_s
    if in_force is None or wanted != replace(state.share_plan, capacity_mb_s=wanted.capacity_mb_s):
        return True
    # Without a sample it is not known what misses the cache.
    return obs.sample is not None and abs(wanted.capacity_mb_s - in_force) > HYSTERESIS * in_force
