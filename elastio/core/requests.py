"""Requests of operators, scripts and the service manager: one function per request. Pure.

Each takes the state after this decision's detections and returns the new state and the answer. A request changes the
phase only by an event of the table, through `move`. Every request is answered.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal, assert_never

from elastio.core import boosting, detection, missing_cache
from elastio.core.cycle import NO_BACKOFF
from elastio.core.detection import Detection, Event
from elastio.core.model import CacheState, Request, RequestKind
from elastio.core.policy import Policy, StopPolicy
from elastio.core.state import AgentState, Answer, Inhibition, InhibitionReason, Observation, Phase
from elastio.strategy.situation import Reply
from elastio.units import format_duration

Answered = tuple[AgentState, Answer]
# The code of every answer of a faulted agent.
FAULTED = "agent.faulted"
# The machine is taken away some time after the announced moment; the inhibition must last until then.
NOTICE_GRACE_S = 600.0
NO_SHUTDOWN = "no boost is held because of a shutdown"
NO_SNAPSHOT = "there is no hold: it has ended, or none was begun; what was copied since may be inconsistent"
InhibitionKind = Literal[RequestKind.QUIESCE, RequestKind.UNQUIESCE, RequestKind.STOP, RequestKind.SHUTDOWN]
# How an operator ends an inhibition that does not only end by itself.
ENDS = {InhibitionReason.SNAPSHOT: "unquiesce", InhibitionReason.SHUTDOWN: "shutdown --cancel"}
# Returns the state after an event. Raises InvariantError for an event that the table does not have.
Move = Callable[[AgentState, Detection], AgentState]


def answer(state: AgentState, request: Request, reply: Reply, obs: Observation, policy: Policy, move: Move) -> Answered:
    """The state after the request, and its answer. Raises InvariantError as `move` does.

    `reply` is what the strategy says to it.
    """
    kind = request.kind
    match kind:
        case RequestKind.BOOST:
            return boost(state, request, reply, obs, policy, move)
        case RequestKind.FLUSH:
            return flush(state, request, move)
        case RequestKind.PAUSE:
            return pause(state, request, move)
        case RequestKind.RESUME:
            return resume(state, request, obs, move)
        case RequestKind.RECOVER if request.is_foreign:
            return take_over(state, request, obs, move)
        case RequestKind.RECOVER:
            return missing_cache.answer(state, request, obs)
        case RequestKind.COLLECT:
            return collect(state, request)
        case RequestKind.LEARN | RequestKind.EXPECT:
            return state, Answer(request, not reply.code, reply.text, reply.code)
        case _:
            return _inhibit(kind, state, request, obs, policy)


def _inhibit(kind: InhibitionKind, state: AgentState, request: Request, obs: Observation, policy: Policy) -> Answered:
    match kind:
        case RequestKind.QUIESCE:
            return quiesce(state, request, obs)
        case RequestKind.UNQUIESCE:
            return end_hold(state, request, InhibitionReason.SNAPSHOT, NO_SNAPSHOT)
        case RequestKind.STOP:
            return end(state, request, InhibitionReason.STOP, policy.on_stop, obs)
        case RequestKind.SHUTDOWN if request.cancels:
            return end_hold(state, request, InhibitionReason.SHUTDOWN, NO_SHUTDOWN)
        case RequestKind.SHUTDOWN:
            how = policy.on_reboot if request.reboots else policy.on_shutdown
            return end(state, request, InhibitionReason.SHUTDOWN, how, obs)
        case _:
            assert_never(kind)


# --- boosts ----------------------------------------------------------------------------------------------


def boost(state: AgentState, request: Request, reply: Reply, obs: Observation, policy: Policy, move: Move) -> Answered:
    """Buy a cache now, or let a cache that is being flushed take writes again."""
    if state.phase in (Phase.ATTACHING, Phase.BOOSTING):
        return state, Answer(request, True, f"a boost is under way ({state.phase})")
    is_flushing = state.phase is Phase.FLUSHING
    if state.phase is not Phase.IDLE and not (is_flushing and detection.may_boost_again(state, obs)):
        return state, Answer(request, False, f"the agent is {state.phase}; ask again when it is idle", "agent.busy")
    if not is_flushing and (obstacle := boosting.obstacle(state, obs, policy)):
        return state, Answer(request, False, obstacle, "boost.obstacle")
    if is_flushing and reply.not_again:
        return state, Answer(request, False, reply.not_again, "caps")
    if is_flushing:
        state = move(state, Detection(Event.LOAD_RETURNED, "an operator asked for a boost while flushing"))
        return state, Answer(request, True, f"a boost is under way ({state.phase})")
    if (plan := reply.plan) is not None:
        state = move(state, Detection(Event.BOOST_WANTED, plan.reason, plan=plan))
    return state, Answer(request, not reply.code, reply.text, reply.code)


def flush(state: AgentState, request: Request, move: Move) -> Answered:
    """Flush and release the cache, whatever the load."""
    if state.phase is Phase.FAULTED:
        return state, Answer(request, False, f"the agent is faulted: {state.fault}", FAULTED)
    if state.cycle is None:
        return state, Answer(request, True, "there is no cache to flush")
    return _end_boost(state, move), Answer(request, True, "the cache is being flushed and released")


def pause(state: AgentState, request: Request, move: Move) -> Answered:
    """No boost begins by itself until `resume`; a boost that is under way ends."""
    state = _end_boost(replace(state, paused=True), move)
    return state, Answer(request, True, "no boost will start until `elastio resume`")


def _end_boost(state: AgentState, move: Move) -> AgentState:
    """The state whose cache is released whatever happens: one that is being detached may turn out to take writes."""
    if state.phase is Phase.ATTACHING:
        state = move(state, detection.withdrawn("an operator asked to stop", is_ordered=True))
    elif state.phase is Phase.BOOSTING:
        state = move(state, Detection(Event.WENT_QUIET, "an operator asked to flush", is_ordered=True))
    return state if state.cycle is None else replace(state, cycle=replace(state.cycle, forced=True))


def resume(state: AgentState, request: Request, obs: Observation, move: Move) -> Answered:
    """Boosts may begin again, and a fault ends if its cause is gone.

    Failures and cool-downs are cleared, because whoever resumes has dealt with them: a wanted boost begins at once.
    """
    state = replace(state, paused=False)
    if state.phase is Phase.FAULTED:
        if refused := _why_not_accepted(state, request, obs):
            return state, Answer(request, False, refused, "resume.accepts_loss")
        state = _repaired(state, obs, move)
    if state.phase is Phase.FAULTED:
        return state, Answer(request, False, f"the agent is still faulted: {state.fault}", FAULTED)
    state = replace(state, memory=state.memory.resumed(), failures=0, cool_until=0.0)
    if state.inhibition is None:
        return state, Answer(request, True, "boosts start by themselves again")
    reason, left_s = state.inhibition.reason, state.inhibition.until - obs.now
    text = f"the agent is not paused, but no boost begins yet: {reason}, for another {format_duration(left_s)}"
    return state, Answer(request, True, f"{text} (`elastio {ENDS[reason]}` ends it)" if reason in ENDS else text)


def _why_not_accepted(state: AgentState, request: Request, obs: Observation) -> str:
    """Why this fault ends only by whoever accepts a loss: the device lacks data, or a flush would write older data."""
    backing = obs.backing
    if request.accepts_loss or backing is None:
        return ""
    is_lacking = backing.state is CacheState.INCONSISTENT and state.cycle is None and not state.is_stale_accepted
    if not state.is_mixed and not is_lacking:
        return ""
    return f"the agent is still faulted: {state.fault}; only root may, with `elastio resume --accept-data-loss`"


def _repaired(state: AgentState, obs: Observation, move: Move) -> AgentState:
    """The state after REPAIRED, if nothing is in danger. An inconsistent device is accepted as it is.

    It is not accepted while a volume is left that may hold the missing data: `elastio recover` gives that up by name.
    """
    backing = obs.backing
    if backing is None:
        return state
    is_left_alone = backing.state is CacheState.INCONSISTENT and state.cycle is None
    cycle = None if state.cycle is None else replace(state.cycle, dirtied=0)  # whoever resumes has seen to that
    accepted = replace(state, cycle=cycle, is_stale_accepted=state.is_stale_accepted or is_left_alone)
    if detection.danger(accepted, obs) is not None:
        return state  # a request that is refused changes nothing
    return move(accepted, Detection(Event.REPAIRED, "an operator asked to go on", is_ordered=True))


# --- times without boosts --------------------------------------------------------------------------------


def hold_for_notice(state: AgentState, obs: Observation, policy: Policy) -> tuple[AgentState, str]:
    """Begin an inhibition for a notice; end one whose time is over or whose notice was withdrawn.

    Returns the new state and a sentence that says what changed; an empty one if nothing did.
    """
    current = state.inhibition
    if state.notice is not None:
        if current is not None and current.reason is InhibitionReason.NOTICE:
            return state, ""
        left_s = max(0.0, state.notice.at_wall - obs.wall)
        flush = policy.notice_flush or state.wants_flush  # a notice does not cancel a flush that was ordered
        what = "flushing" if flush else "the cache stays attached; no boost begins"
        current = Inhibition(InhibitionReason.NOTICE, obs.now + left_s + NOTICE_GRACE_S, flush, under=current)
        text = f"the cloud will {state.notice.action} this machine in {format_duration(left_s)}: {what}"
        return replace(state, inhibition=current), text
    if current is None:
        return state, ""
    if current.reason is InhibitionReason.NOTICE:
        return replace(state, inhibition=current.left_at(obs.now)), "the cloud has withdrawn its notice"
    if obs.now >= current.until:
        return replace(state, inhibition=current.left_at(obs.now)), f"the hold ({current.reason}) has ended"
    return state, ""


def quiesce(state: AgentState, request: Request, obs: Observation) -> Answered:
    """Flush and release the cache, and begin no boost for `seconds`: the backing volume is consistent by itself."""
    if state.fault:
        return state, Answer(request, False, f"the agent is faulted: {state.fault}", FAULTED)
    if state.inhibition is not None and state.inhibition.reason is not InhibitionReason.SNAPSHOT:
        return state, Answer(request, False, f"boosts are held already ({state.inhibition.reason})", "hold.other")
    if state.failed_clean_set:
        text = "the superblock names a cache that failed, and a copy would wait for it: boost and flush first"
        return state, Answer(request, False, text, "cache.failed")
    seconds = request.seconds or 0.0
    until = max(obs.now + seconds, state.inhibition.until if state.inhibition is not None else 0.0)
    begun = Inhibition(InhibitionReason.SNAPSHOT, until)  # never shorter than an earlier hold
    text = f"no boost begins for {format_duration(until - obs.now)}; an attached cache is flushed and released"
    return replace(state, inhibition=begun), Answer(request, True, text)


def end_hold(state: AgentState, request: Request, reason: InhibitionReason, unheld: str) -> Answered:
    """End the hold of `quiesce`, or of a `shutdown` that does not take place. A flush that it began goes on.

    Refused, with `unheld`, if there is none: a script has to learn that its hold ended too early.
    """
    if state.inhibition is None or state.inhibition.of(reason) is None:
        return state, Answer(request, False, unheld, "hold.none")
    rest = state.inhibition.without(reason)
    text = "boosts may begin again" if rest is None else f"no boost may begin yet ({rest.reason})"
    if state.paused and reason is InhibitionReason.SHUTDOWN:
        text = "the hold has ended; the agent is paused (`elastio resume`)"
    return replace(state, inhibition=rest), Answer(request, True, text)


def end(state: AgentState, request: Request, reason: InhibitionReason, how: StopPolicy, obs: Observation) -> Answered:
    """The agent or the machine is about to stop: flush for a limited time, or leave the cache attached."""
    until = obs.now + (how.limit_s if how.flush else NOTICE_GRACE_S)  # no boost begins in the time that is left
    begun = Inhibition(reason, until, how.flush, under=state.snapshot_hold)
    text = f"flushing for up to {format_duration(how.limit_s)}; what is left then stays on its volume"
    return replace(state, inhibition=begun), Answer(request, True, text if how.flush else "the device keeps its state")


def take_over(state: AgentState, request: Request, obs: Observation, move: Move) -> Answered:
    """Take over the cache of a machine that is gone, flush and release it. One that is attached is flushed at once."""
    state, answered = missing_cache.answer_take_over(state, request, obs)
    return (_end_boost(state, move) if answered.accepted else state), answered


# --- the rest --------------------------------------------------------------------------------------------


def collect(state: AgentState, request: Request) -> Answered:
    """List the agent's volumes now; those that belong to no cycle are released."""
    text = "the agent's volumes are listed now, and those that belong to no cycle are released"
    return replace(state.with_backoff("ListVolumes", NO_BACKOFF), listed=None), Answer(request, True, text)
