"""How often something is asked for, and when again: each call that was made sets the time of the next one of its kind.

What changes something is asked for again only after what was accepted had time to show; what failed, ever more seldom;
and a volume that is being made is looked at when the quickest of the last ones was ready. Jitter keeps machines that
were started together from asking together.
"""

from __future__ import annotations

from dataclasses import replace

from elastio.core.actions import DetachCacheSet, Outcome, OutcomeKind, Worker, is_read, worker_of
from elastio.core.cycle import Backoff, Cycle
from elastio.core.model import VolumeState
from elastio.core.observation import Observation
from elastio.core.state import AgentState

# A call that changes something is repeated only after this long: what was asked for may take a while to show.
SETTLE_S = 5.0
RETRY_FIRST_S = 1.0
RETRY_MOST_S = 60.0
POLL_FIRST_S = 0.2
POLL_GROWTH = 1.3
POLL_MOST_S = 3.0
# Of a volume that is being made: between two looks at least, of what it is late by, and how much earlier the first is.
CLOSE_POLL_S = 0.15
LATE_SHARE = 0.1
SOON_S = 0.2
# The first look is no later than this: the one slow volume that was seen must not hold up those after it.
FIRST_MOST_S = 5.0
SLOWER, EARLIER = 1.25, 0.75
# What did not show after so many looks (about two minutes) is looked for less often: a cloud's API is shared.
PATIENT_LOOKS = 40
PATIENT_ASKS = 4
POLL_LATER_S = 30.0
# Delays grow no more after so many tries; a power of some thousand tries would be no float.
MANY_TRIES = 16


def next_backoff(backoff: Backoff, outcome: Outcome, obs: Observation) -> Backoff:
    """When this kind of call may be made again, after `outcome`."""
    tries = backoff.tries
    if is_read(outcome.action):
        # Successes and failures are counted apart: the first failure after many good looks is a first one.
        tries = tries if bool(backoff.error) == bool(outcome.error) else 0
        delay = _look_delay_s(tries) if outcome.kind is OutcomeKind.DONE else _retry_delay_s(tries)
        return Backoff(tries + 1, obs.now + delay * (0.75 + 0.5 * obs.jitter), outcome.error)
    if outcome.kind is OutcomeKind.DONE:
        return _settling(tries if not backoff.error else 0, outcome, obs)
    return Backoff(tries + 1, obs.now + _retry_delay_s(tries) * (0.5 + 0.5 * obs.jitter), outcome.error)


def awaiting(cycle: Cycle, least_s: float | None, obs: Observation) -> Cycle:
    """When to look at a volume that is being made: first when the quickest of the last ones was ready.

    From then on each wait is a share of what it is late by: what is lost between two looks is that share at most.
    """
    created, poll = cycle.times.created, cycle.backoff_of("DescribeVolume")
    if created is None or poll.error or cycle.volume_state is not VolumeState.CREATING:
        return cycle
    due = created + min(max(0.0, (least_s or 0.0) - SOON_S), FIRST_MOST_S)
    wait_s = min(max(CLOSE_POLL_S, LATE_SHARE * (obs.now - due)), POLL_MOST_S)
    retry_at = due if obs.now < due else obs.now + wait_s * (0.75 + 0.5 * obs.jitter)
    patient = poll.tries >= PATIENT_LOOKS
    return cycle if patient else cycle.with_backoff("DescribeVolume", replace(poll, retry_at=retry_at))


def _look_delay_s(tries: int) -> float:
    if tries >= PATIENT_LOOKS:
        return POLL_LATER_S
    return min(POLL_FIRST_S * POLL_GROWTH ** min(tries, MANY_TRIES), POLL_MOST_S)


def _retry_delay_s(tries: int) -> float:
    return min(RETRY_FIRST_S * 2.0 ** min(tries, MANY_TRIES), RETRY_MOST_S)


def _settling(tries: int, outcome: Outcome, obs: Observation) -> Backoff:
    """Writes to /sys are done when they return; a cloud call and bcache's detach are only accepted.

    What was accepted and does not show is asked for again, ever more seldom.
    """
    if worker_of(outcome.action) is not Worker.CLOUD and not isinstance(outcome.action, DetachCacheSet):
        return Backoff(0, obs.now)
    return Backoff(tries + 1, obs.now + min(SETTLE_S * 1.5 ** min(tries, MANY_TRIES), RETRY_MOST_S))


def create_s(state: AgentState, cycle: Cycle) -> float | None:
    """When a look at a volume that is being made is worth its call: just before the quickest of the last ones is ready.

    What is seen is when it was looked at. One that was ready at the first look may have been so for long: the next one
    is looked at earlier. And clouds become slower, too.
    """
    created, available = cycle.times.created, cycle.times.available
    is_news = state.cycle is not None and state.cycle.times.available is None
    if created is None or available is None or not is_news:
        return state.create_s
    if cycle.unready_at is None:
        return EARLIER * (available - created)
    took_s = (cycle.unready_at + available) / 2 - created
    return took_s if state.create_s is None else min(took_s, SLOWER * state.create_s)
