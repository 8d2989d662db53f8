"""Times in which no boost begins: before a snapshot, a stop, a shutdown, or an end that the cloud announced. Pure.

An inhibition is a state, not a command: in every phase the agent works towards it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from elastio.core.cycle import Cycle
from elastio.core.model import HostView
from elastio.core.observation import Observation
from elastio.core.policy import Policy
from elastio.core.state import AgentState, Inhibition, InhibitionReason
from elastio.units import format_duration

# The machine is taken away some time after the announced moment; the inhibition must last until then.
NOTICE_GRACE_S = 600.0


def wants_flush(state: AgentState) -> bool:
    """An attached cache is to be flushed and released, whatever the load."""
    return state.inhibition is not None and state.inhibition.flush


def update(state: AgentState, obs: Observation, policy: Policy) -> tuple[AgentState, str]:
    """Begin an inhibition for a notice; end one whose time is over or whose notice was withdrawn.

    Returns the new state and a sentence that says what changed; an empty one if nothing did.
    """
    current = state.inhibition
    if state.notice is not None:
        if current is not None and current.reason is InhibitionReason.NOTICE:
            return state, ""
        left_s = max(0.0, state.notice.at_wall - obs.wall)
        flush = policy.notice_flush or wants_flush(state)  # a notice does not cancel a flush that was ordered
        what = "flushing" if flush else "the cache stays attached; no boost begins"
        current = Inhibition(InhibitionReason.NOTICE, obs.now + left_s + NOTICE_GRACE_S, flush, under=current)
        text = f"the cloud will {state.notice.action} this machine in {format_duration(left_s)}: {what}"
        return replace(state, inhibition=current), text
    if current is None:
        return state, ""
    if current.reason is InhibitionReason.NOTICE:
        return replace(state, inhibition=_next(current, obs.now)), "the cloud has withdrawn its notice"
    if obs.now >= current.until:
        return replace(state, inhibition=_next(current, obs.now)), f"the hold ({current.reason}) has ended"
    return state, ""


def _next(ended: Inhibition, now: float) -> Inhibition | None:
    """The inhibition that is in force once `ended` is over; None: none."""
    under = ended.under
    while under is not None and now >= under.until:
        under = under.under
    return under


def of_reason(inhibition: Inhibition | None, reason: InhibitionReason) -> Inhibition | None:
    """The inhibition for this reason, in force or under another one; None: there is none."""
    while inhibition is not None and inhibition.reason is not reason:
        inhibition = inhibition.under
    return inhibition


def without(inhibition: Inhibition | None, reason: InhibitionReason) -> Inhibition | None:
    """What remains of `inhibition` once the one for this reason is ended; None: nothing."""
    if inhibition is None:
        return None
    rest = without(inhibition.under, reason)
    return rest if inhibition.reason is reason else replace(inhibition, under=rest)


def snapshot_of(inhibition: Inhibition | None) -> Inhibition | None:
    """The inhibition for a snapshot, or None.

    It lasts beyond a stop, a shutdown and a notice: a volume that is being copied must stay consistent.
    """
    return of_reason(inhibition, InhibitionReason.SNAPSHOT)


def remedy(reason: InhibitionReason) -> str:
    """How an operator ends an inhibition for this reason: a phrase; empty: it ends by itself only."""
    match reason:
        case InhibitionReason.SNAPSHOT:
            return "`elastio unquiesce` ends it"
        case InhibitionReason.SHUTDOWN:
            return "`elastio shutdown --cancel` ends it"
        case InhibitionReason.STOP | InhibitionReason.NOTICE:
            return ""
        case _:
            assert_never(reason)


def is_safe_to_copy(cycle: Cycle | None, host: HostView | None) -> bool:
    """The backing volume is consistent without a cache, and durably so.

    A clean cache that is still attached is not enough: the superblock of a copy would name it, and the copy would wait
    for it for ever. Releasing the cache disk makes the superblock's "no cache" durable. Of an adopted volume with its
    tombstone a copy lacks its first sectors.
    """
    backing = host.backing if host else None
    if backing is None or backing.cache_set is not None or not backing.running:
        return False
    if backing.waits_for_cache or backing.lost_clean_cache or backing.has_tombstone:
        return False
    return cycle is None or cycle.cache_set is None or cycle.times.released is not None


def stop_reason(state: AgentState, host: HostView | None, now: float) -> str:
    """Why the agent may end now; empty while it works towards its inhibition."""
    inhibition = state.inhibition
    if inhibition is None or not inhibition.flush:
        return "the device keeps its state"
    if state.fault:
        return "the agent is faulted and changes nothing"
    backing = host.backing if host else None
    if state.recovered and state.cycle is None and not (backing is not None and backing.may_lose_tombstone):
        return "no cache is left"
    return "the time to flush is over; what is left stays on its volume" if now >= inhibition.until else ""
