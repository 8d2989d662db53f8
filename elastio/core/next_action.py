"""The next safe action, and what it is made of: an action whose worker is free and whose time has come, or a wait."""

from __future__ import annotations

from dataclasses import dataclass

from elastio.core.actions import (
    Action,
    DescribeVolume,
    TagVolume,
    worker_of,
)
from elastio.core.cycle import Backoff, Cycle
from elastio.core.model import VolumeTag
from elastio.core.observation import Observation
from elastio.core.policy import Policy


@dataclass(frozen=True, slots=True)
class NextAction:
    """At most one action, when to look again, and what is being waited for."""

    action: Action | None = None
    wake_at: float | None = None
    waiting_for: str = ""


def ask(action: Action, backoff: Backoff, obs: Observation, waiting_for: str) -> NextAction:
    """The action, if its worker is free and its time has come."""
    if worker_of(action) in obs.busy:
        return NextAction(None, None, waiting_for)
    if backoff.retry_at > obs.now:
        return NextAction(None, backoff.retry_at, f"{waiting_for}{f' ({backoff.error})' if backoff.error else ''}")
    return NextAction(action, None, waiting_for)


def first(*plans: NextAction) -> NextAction:
    """The first plan that acts; else a wait until the earliest of their times."""
    for plan in plans:
        if plan.action is not None:
            return plan
    times = [p.wake_at for p in plans if p.wake_at is not None]
    return NextAction(None, min(times) if times else None, plans[0].waiting_for)


def poll_volume(cycle: Cycle, obs: Observation, waiting_for: str) -> NextAction:
    if cycle.volume_id is None:
        return NextAction(waiting_for=waiting_for)
    poll = DescribeVolume(cycle.volume_id)
    return ask(poll, cycle.backoff_of(poll), obs, waiting_for)


def tag_volume(cycle: Cycle, tag: VolumeTag, obs: Observation, policy: Policy) -> NextAction:
    """Tell those who cannot ask this machine; only when nothing else is to be done, and nothing waits for it."""
    if not policy.tags_volumes or cycle.tag is tag or cycle.volume_id is None:
        return NextAction()
    action = TagVolume(cycle.volume_id, tag)
    return ask(action, cycle.backoff_of(action), obs, f"the cloud to tag the volume {tag}")
