"""Times in which no boost begins: before a snapshot, a stop, a shutdown, or the end that the cloud announced. Pure.

A hold is a state and not an order: whatever phase the agent is in, or comes into, works towards it.
"""

from __future__ import annotations

from dataclasses import replace

from elastio.core.cycle import Cycle
from elastio.core.model import HostView
from elastio.core.observation import Observation
from elastio.core.policy import Policy
from elastio.core.state import AgentState, Inhibition, InhibitionReason
from elastio.units import format_duration

# The machine goes some time after the moment that was announced: until then a hold would only just be over.
NOTICE_GRACE_S = 600.0


def wants_flush(state: AgentState) -> bool:
    """A cache that is attached shall be flushed and released, whatever the load."""
    return state.inhibition is not None and state.inhibition.flush


def update(state: AgentState, obs: Observation, policy: Policy) -> tuple[AgentState, str]:
    """End a hold whose time is over or whose notice was withdrawn; begin one for a notice. The sentence says why."""
    hold = state.inhibition
    if state.notice is not None:
        if hold is not None and hold.reason is InhibitionReason.NOTICE:
            return state, ""
        left_s = max(0.0, state.notice.at_wall - obs.wall)
        flush = policy.notice_flush or wants_flush(state)  # it takes back no order to flush
        what = "flushing" if flush else "the cache stays attached; no boost begins"
        hold = Inhibition(InhibitionReason.NOTICE, obs.now + left_s + NOTICE_GRACE_S, flush, under=hold)
        text = f"the cloud will {state.notice.action} this machine in {format_duration(left_s)}: {what}"
        return replace(state, inhibition=hold), text
    if hold is None:
        return state, ""
    if hold.reason is InhibitionReason.NOTICE:
        return replace(state, inhibition=_next(hold, obs.now)), "the cloud has withdrawn its notice"
    if obs.now >= hold.until:
        return replace(state, inhibition=_next(hold, obs.now)), f"the time of the hold ({hold.reason}) is over"
    return state, ""


def _next(hold: Inhibition, now: float) -> Inhibition | None:
    """The hold that is in force once `hold` has ended."""
    under = hold.under
    while under is not None and now >= under.until:
        under = under.under
    return under


def snapshot_of(hold: Inhibition | None) -> Inhibition | None:
    """The hold for a snapshot, which outlives a stop, a shutdown and a notice: what is being copied must stay whole."""
    while hold is not None and hold.reason is not InhibitionReason.SNAPSHOT:
        hold = hold.under
    return hold


def without_snapshot(hold: Inhibition | None) -> Inhibition | None:
    if hold is None or hold.reason is InhibitionReason.SNAPSHOT:
        return None
    return replace(hold, under=without_snapshot(hold.under))


def is_safe_to_copy(cycle: Cycle | None, host: HostView | None) -> bool:
    """The backing volume is whole by itself, and durably so.

    A clean cache that is still attached is not enough: the superblock of a copy would name it, and the copy would
    wait for it for ever. The release of the cache disk makes "no cache" durable.
    """
    backing = host.backing if host else None
    if backing is None or backing.cache_set is not None or not backing.running:
        return False
    if backing.waits_for_cache or backing.lost_clean_cache:
        return False
    return cycle is None or cycle.cache_set is None or cycle.times.released is not None


def stop_reason(state: AgentState, now: float) -> str:
    """Why the agent may end now, or an empty string while it works towards its hold."""
    hold = state.inhibition
    if hold is None or not hold.flush:
        return "the device keeps its state"
    if state.fault:
        return "the agent is faulted and changes nothing"
    if state.recovered and state.cycle is None:
        return "no cache is left"
    return "the time to flush is over; what is left stays on its volume" if now >= hold.until else ""
