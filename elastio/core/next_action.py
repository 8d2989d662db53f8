"""The next safe action of a plan: an action whose worker is free and whose backoff is over, or a wait. Pure."""

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
    """At most one action; `wake_at` (CLOCK_BOOTTIME) to decide again, None: at the next sample; what is awaited."""

    action: Action | None = None
    wake_at: float | None = None
    waiting_for: str = ""


def ask(action: Action, backoff: Backoff, obs: Observation, waiting_for: str) -> NextAction:
    """The action if its worker is free and its backoff is over; else the wait for that."""
    if worker_of(action) in obs.busy:
        return NextAction(None, None, waiting_for)
    if backoff.retry_at > obs.now:
        return NextAction(None, backoff.retry_at, f"{waiting_for}{f' ({backoff.error})' if backoff.error else ''}")
    return NextAction(action, None, waiting_for)


def first(*plans: NextAction) -> NextAction:
    """The first plan with an action; else a wait until the earliest `wake_at` of all."""
    for plan in plans:
        if plan.action is not None:
            return plan
    times = [p.wake_at for p in plans if p.wake_at is not None]
    return NextAction(None, min(times) if times else None, plans[0].waiting_for)


def poll_volume(cycle: Cycle, obs: Observation, waiting_for: str) -> NextAction:
    """A poll of the cycle's volume, when it is due."""
    if cycle.volume_id is None:
        return NextAction(waiting_for=waiting_for)
    poll = DescribeVolume(cycle.volume_id)
    return ask(poll, cycle.backoff_of(poll), obs, waiting_for)


def tag_volume(cycle: Cycle, tag: VolumeTag, obs: Observation, policy: Policy) -> NextAction:
    """The action that sets the volume's tag; nothing if the cloud has acknowledged it, or tags are switched off."""
    if not policy.tags_volumes or cycle.tag is tag or cycle.volume_id is None:
        return NextAction()
    action = TagVolume(cycle.volume_id, tag)
    return ask(action, cycle.backoff_of(action), obs, f"the cloud to tag the volume {tag}")
