"""Times in which no boost begins: before a snapshot, a stop, a shutdown, or the end that the cloud announced. Pure.

A hold is a state and not an order: whatever phase the agent is in, or comes into, works towards it.
"""

from __future__ import annotations

from dataclasses import replace

from elastio.core.model import HostView, Request, RequestKind
from elastio.core.observation import Answer, Observation
from elastio.core.policy import Parting, Policy
from elastio.core.state import AgentState, Cycle, Hold, HoldReason
from elastio.units import format_duration

# The machine goes some time after the moment that was announced: until then a hold would only just be over.
NOTICE_GRACE_S = 600.0


def wants_flush(state: AgentState) -> bool:
    """A cache that is attached shall be flushed and released, whatever the load."""
    return state.hold is not None and state.hold.flush


def update(state: AgentState, obs: Observation, policy: Policy) -> tuple[AgentState, str]:
    """End a hold whose time is over or whose notice was withdrawn; begin one for a notice. The sentence says why."""
    hold = state.hold
    if state.notice is not None:
        if hold is not None and hold.reason is HoldReason.NOTICE:
            return state, ""
        left_s = max(0.0, state.notice.at_wall - obs.wall)
        flush = policy.notice_flush or wants_flush(state)  # it takes back no order to flush
        what = "flushing" if flush else "the cache stays attached; no boost begins"
        hold = Hold(HoldReason.NOTICE, obs.now + left_s + NOTICE_GRACE_S, flush, under=hold)
        text = f"the cloud will {state.notice.action} this machine in {format_duration(left_s)}: {what}"
        return replace(state, hold=hold), text
    if hold is None:
        return state, ""
    if hold.reason is HoldReason.NOTICE:
        return replace(state, hold=_next(hold, obs.now)), "the cloud has withdrawn its notice"
    if obs.now >= hold.until:
        return replace(state, hold=_next(hold, obs.now)), f"the time of the hold ({hold.reason}) is over"
    return state, ""


def _next(hold: Hold, now: float) -> Hold | None:
    """The hold that is in force once `hold` has ended."""
    under = hold.under
    while under is not None and now >= under.until:
        under = under.under
    return under


def snapshot_of(hold: Hold | None) -> Hold | None:
    """The hold for a snapshot, which outlives a stop, a shutdown and a notice: what is being copied must stay whole."""
    while hold is not None and hold.reason is not HoldReason.SNAPSHOT:
        hold = hold.under
    return hold


def _without_snapshot(hold: Hold | None) -> Hold | None:
    if hold is None or hold.reason is HoldReason.SNAPSHOT:
        return None
    return replace(hold, under=_without_snapshot(hold.under))


def is_safe_to_copy(cycle: Cycle | None, host: HostView | None) -> bool:
    """The backing volume is whole by itself, and durably so.

    A clean cache that is still attached is not enough: the superblock of a copy would name it, and the copy would
    wait for it for ever. The release of the cache disk makes "no cache" durable.
    """
    backing = host.backing if host else None
    if backing is None or backing.cache_set is not None or not backing.running:
        return False
    if backing.waits_for_cache or backing.outlives_cache:
        return False
    return cycle is None or cycle.cache_set is None or cycle.marks.released is not None


# --- requests --------------------------------------------------------------------------------------------


def answer(state: AgentState, request: Request, obs: Observation, policy: Policy) -> tuple[AgentState, Answer]:
    """To QUIESCE, UNQUIESCE, STOP and SHUTDOWN."""
    match request.kind:
        case RequestKind.QUIESCE:
            return _quiesce(state, request, obs)
        case RequestKind.UNQUIESCE:
            return _unquiesce(state, request)
        case RequestKind.STOP:
            return _part(state, request, HoldReason.STOP, policy.on_stop, obs)
    parting = policy.on_reboot if request.reboots else policy.on_shutdown
    return _part(state, request, HoldReason.SHUTDOWN, parting, obs)


def _quiesce(state: AgentState, request: Request, obs: Observation) -> tuple[AgentState, Answer]:
    if state.fault:
        return state, Answer(request, False, f"the agent is faulted: {state.fault}")
    if state.hold is not None and state.hold.reason is not HoldReason.SNAPSHOT:
        return state, Answer(request, False, f"the agent is held already ({state.hold.reason})")
    if state.outlived:
        text = "the superblock names a cache that failed, and a copy would wait for it: boost and flush before"
        return state, Answer(request, False, text)
    seconds = request.seconds or 0.0
    until = max(obs.now + seconds, state.hold.until if state.hold is not None else 0.0)
    hold = Hold(HoldReason.SNAPSHOT, until)  # never shorter than what somebody else was promised
    text = f"no boost begins for {format_duration(until - obs.now)}; a cache that is attached is flushed and released"
    return replace(state, hold=hold), Answer(request, True, text)


def _unquiesce(state: AgentState, request: Request) -> tuple[AgentState, Answer]:
    """A script has to learn that its hold ended before it was done."""
    if snapshot_of(state.hold) is None:
        text = "nothing is held: the time of the hold was over, or none was begun; what was copied since may be torn"
        return state, Answer(request, False, text)
    rest = _without_snapshot(state.hold)
    text = "boosts may begin again" if rest is None else f"no boost may begin yet ({rest.reason})"
    return replace(state, hold=rest), Answer(request, True, text)


def _part(
    state: AgentState, request: Request, reason: HoldReason, parting: Parting, obs: Observation
) -> tuple[AgentState, Answer]:
    hold = Hold(reason, obs.now + parting.limit_s, parting.flush, under=snapshot_of(state.hold))
    if not parting.flush:
        # Nothing new is begun in the moments that are left; what is attached stays so.
        hold = replace(hold, until=obs.now + NOTICE_GRACE_S)
        return replace(state, hold=hold), Answer(request, True, "the device keeps its state")
    text = f"flushing for up to {format_duration(parting.limit_s)}; what is left then stays on its volume"
    return replace(state, hold=hold), Answer(request, True, text)


def has_parted(state: AgentState, now: float) -> str:
    """Why the agent may end now, or an empty string while it works towards its hold."""
    hold = state.hold
    if hold is None or not hold.flush:
        return "the device keeps its state"
    if state.fault:
        return "the agent is faulted and changes nothing"
    if state.recovered and state.cycle is None:
        return "no cache is left"
    return "the time to flush is over; what is left stays on its volume" if now >= hold.until else ""
