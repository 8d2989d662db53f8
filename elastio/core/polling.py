"""The next safe action of a plan, one whose worker is free and whose backoff is over; backoffs and polls. Pure.

Each action that was carried out sets the earliest time of the next one of its kind. A change is repeated only
after its effect had time to show, and a failure at growing intervals. A volume that is being created is first polled
when the fastest of the last ones was ready. Jitter keeps machines that were started together from calling the cloud
together.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from elastio.core import actions
from elastio.core.cycle import Backoff, Cycle
from elastio.core.model import VolumeState, VolumeTag
from elastio.core.policy import Policy
from elastio.core.state import AgentState, Observation


@dataclass(frozen=True, slots=True)
class NextAction:
    """At most one action; `wake_at` (CLOCK_BOOTTIME) to decide again, None: at the next sample; what is awaited."""

    action: actions.Action | None = None
    wake_at: float | None = None
    waiting_for: str = ""


def ask(of: Cycle | AgentState | Backoff, action: actions.Action, obs: Observation, waiting_for: str) -> NextAction:
    """The action if its worker is free and its backoff is over; else the wait for that.

    `of` is the backoff, or what keeps it: a cycle; for an action that belongs to none, the state.
    """
    backoff = of if isinstance(of, Backoff) else of.backoff_of(action)
    if actions.worker_of(action) in obs.busy:
        return NextAction(waiting_for=waiting_for)
    if backoff.retry_at > obs.now:
        return NextAction(None, backoff.retry_at, f"{waiting_for}{f' ({backoff.error})' if backoff.error else ''}")
    return NextAction(action, None, waiting_for)


def first(*plans: NextAction) -> NextAction:
    """The first plan with an action; else a wait until the earliest `wake_at` of all."""
    for plan in plans:
        if plan.action is not None:
            return plan
    times = [p.wake_at for p in plans if p.wake_at is not None and p.wake_at < float("inf")]
    return NextAction(None, min(times, default=None), plans[0].waiting_for)


def poll_volume(cycle: Cycle, obs: Observation, waiting_for: str) -> NextAction:
    """A poll of the cycle's volume, when it is due."""
    if cycle.volume_id is None:
        return NextAction(waiting_for=waiting_for)
    return ask(cycle, actions.DescribeVolume(cycle.volume_id), obs, waiting_for)


def tag_volume(cycle: Cycle, tag: VolumeTag, obs: Observation, policy: Policy) -> NextAction:
    """The action that sets the volume's tag; nothing if the cloud has acknowledged it, or tags are switched off."""
    if not policy.tags_volumes or cycle.tag is tag or cycle.volume_id is None:
        return NextAction()
    return ask(cycle, actions.TagVolume(cycle.volume_id, tag), obs, f"the cloud to tag the volume {tag}")


# A volume that the cloud has not shown within this time does not exist.
VISIBLE_WITHIN_S = 60.0
# A change is repeated only after this time: its effect may take a while to show.
SETTLE_S = 5.0
RETRY_FIRST_S = 1.0
RETRY_MOST_S = 60.0
POLL_FIRST_S = 0.2
POLL_GROWTH = 1.3
POLL_MOST_S = 3.0
# Polls of a volume that is being created: the shortest wait between two, the wait as a share of how late the volume is,
# and how long before the expected time the first one is.
CLOSE_POLL_S = 0.1
LATE_SHARE = 0.1
SOON_S = 0.2
# The first poll is no later than this: one slow volume must not delay all later ones.
FIRST_MOST_S = 5.0
# After this many polls (about two minutes) the interval grows, because others use the cloud's API too.
PATIENT_POLLS = 40
PATIENT_TRIES = 4
POLL_LATER_S = 30.0
# Delays stop growing after this many tries; a power with an exponent of some thousand would overflow a float.
MANY_TRIES = 16

# A cache is bypassed at an instant in which nothing is dirty, which a load leaves now and then, and is paid until then.
# Each try holds requests back for a moment.
BYPASS_MOST_S = 8.0


def next_backoff(backoff: Backoff, outcome: actions.Outcome, obs: Observation) -> Backoff:
    """The backoff of this kind of action after `outcome`."""
    tries = backoff.tries
    if actions.is_read(outcome.action):
        # Successes and failures are counted separately: a failure after many successful polls is a first failure.
        tries = tries if bool(backoff.error) == bool(outcome.error) else 0
        delay = _poll_delay_s(tries) if outcome.kind is actions.OutcomeKind.DONE else _retry_delay_s(tries)
        return Backoff(tries + 1, obs.now + delay * (0.75 + 0.5 * obs.jitter), outcome.error)
    if outcome.kind is actions.OutcomeKind.DONE:
        return _settling(tries if not backoff.error else 0, outcome, obs)
    most_s = BYPASS_MOST_S if isinstance(outcome.action, actions.BypassCache) else RETRY_MOST_S
    delay = min(_retry_delay_s(tries), most_s)
    return Backoff(tries + 1, obs.now + delay * (0.5 + 0.5 * obs.jitter), outcome.error)


def with_next_poll(cycle: Cycle, least_s: float | None, obs: Observation) -> Cycle:
    """The cycle with the time of the next poll, if its volume is being created.

    The first poll is due after `least_s`, the shortest recent creation time. Each later wait is a share of how late
    the volume is, so that polling adds at most that share.
    """
    created, poll = cycle.times.created, cycle.backoff_of("DescribeVolume")
    if created is None or poll.error or cycle.volume_state is not VolumeState.CREATING:
        return cycle
    due = created + min(max(0.0, (least_s or 0.0) - SOON_S), FIRST_MOST_S)
    wait_s = min(max(CLOSE_POLL_S, LATE_SHARE * (obs.now - due)), POLL_MOST_S)
    retry_at = due if obs.now < due else obs.now + wait_s * (0.75 + 0.5 * obs.jitter)
    patient = poll.tries >= PATIENT_POLLS
    return cycle if patient else cycle.with_backoff("DescribeVolume", replace(poll, retry_at=retry_at))


def _poll_delay_s(tries: int) -> float:
    if tries >= PATIENT_POLLS:
        return POLL_LATER_S
    return min(POLL_FIRST_S * POLL_GROWTH ** min(tries, MANY_TRIES), POLL_MOST_S)


def _retry_delay_s(tries: int) -> float:
    return min(RETRY_FIRST_S * 2.0 ** min(tries, MANY_TRIES), RETRY_MOST_S)


def _settling(tries: int, outcome: actions.Outcome, obs: Observation) -> Backoff:
    """The backoff after a change that succeeded.

    Writes to /sys are done when they return. A cloud call and bcache's detach are only accepted, and are repeated at
    growing intervals until their effect shows.
    """
    if not isinstance(outcome.action, actions.CloudAction | actions.DetachCacheSet):
        return Backoff(0, obs.now)
    return Backoff(tries + 1, obs.now + min(SETTLE_S * 1.5 ** min(tries, MANY_TRIES), RETRY_MOST_S))
