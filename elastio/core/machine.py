"""The state machine: a table, and `decide`, which is all the thinking the agent does.

Rules of the table:
1. A pair that is not in the table cannot happen; asking for it is a bug and raises.
2. Nothing leads out of DETACHING but the proof that the volume is gone, or dirt that was found after all.
3. ENDANGERED leads to FAULTED from everywhere; out of FAULTED leads only what the kernel shows to be repaired.
4. The phase after a start, and after a repair, is read off the kernel (`recovery`), not remembered.

`decide` is pure: the same state, observation and policy give the same decision, so a journal can be replayed.
Order of business: fold in what was seen, notice danger, notice one event, take the next safe step.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

from elastio.core import detection, inhibition, invariants, learning, missing_cache, polling, update, waste
from elastio.core.detection import Event, Seen
from elastio.core.model import CacheState, Forecast, Request, RequestKind, VolumeSpec, VolumeState
from elastio.core.observation import Answer, Decision, Observation
from elastio.core.planner import next_step
from elastio.core.policy import Policy, chance_until, forecast_size, is_boost_wanted, next_size, refusal
from elastio.core.recovery import cycle_of, recover
from elastio.core.state import NEVER_ASKED, AgentState, Cycle, Marks, Pace, Phase, Thrift, Trigger
from elastio.units import format_duration, format_size

TRANSITIONS: dict[tuple[Phase, Event], Phase] = {
    (Phase.IDLE, Event.BOOST_WANTED): Phase.ATTACHING,
    (Phase.IDLE, Event.ORPHAN_FOUND): Phase.DETACHING,
    (Phase.ATTACHING, Event.CACHE_ATTACHED): Phase.BOOSTING,
    (Phase.ATTACHING, Event.BOOST_REFUSED): Phase.IDLE,
    (Phase.ATTACHING, Event.BOOST_ABANDONED): Phase.DETACHING,
    (Phase.ATTACHING, Event.BOOST_WITHDRAWN): Phase.DETACHING,
    (Phase.BOOSTING, Event.WENT_QUIET): Phase.FLUSHING,
    (Phase.BOOSTING, Event.CACHE_LEFT): Phase.DETACHING,
    (Phase.FLUSHING, Event.LOAD_RETURNED): Phase.BOOSTING,
    (Phase.FLUSHING, Event.CACHE_LEFT): Phase.DETACHING,
    (Phase.FLUSHING, Event.DRAINED): Phase.DETACHING,
    (Phase.DETACHING, Event.DIRTIED): Phase.FLUSHING,
    (Phase.DETACHING, Event.RELEASED): Phase.IDLE,
    (Phase.IDLE, Event.ENDANGERED): Phase.FAULTED,
    (Phase.ATTACHING, Event.ENDANGERED): Phase.FAULTED,
    (Phase.BOOSTING, Event.ENDANGERED): Phase.FAULTED,
    (Phase.FLUSHING, Event.ENDANGERED): Phase.FAULTED,
    (Phase.DETACHING, Event.ENDANGERED): Phase.FAULTED,
}

# After a boost that failed the load is left alone for this long, and twice as long after each further one: what
# failed will fail again, and every volume that is bought is paid for.
FAILED_COOL_DOWN_S = 60.0
FAILED_COOL_DOWN_MOST_S = 900.0
COLLECTING = "the agent's volumes are listed anew, and those that no cycle knows are released"


def decide(state: AgentState, obs: Observation, policy: Policy) -> Decision:
    """The new state and the next safe actions. Raises InvariantError when they would break a safety rule."""
    before = state
    state = folded = missing_cache.settle(update.fold(state, obs, policy), obs)
    reason = ""
    if not state.recovered:
        recovered = recover(state, obs, policy)
        if recovered is None:
            return _waiting_to_recover(state, obs, policy)
        state, reason = recovered
        state = _after_change(state)
    state, held = inhibition.update(state, obs, policy)
    reason = held or reason or _why_outlived(before, state)
    state = _told_anew(state, obs)
    seen = _event(state, obs, policy)
    if seen is not None:
        state, reason = _transition(state, seen, obs, policy), seen.reason
    state, answers, asked = _answer(state, obs, policy)
    reason = asked or reason
    if state.phase is Phase.IDLE and not asked:
        state, why = _boost_if_wanted(state, obs, policy)
        reason = why or reason
    plan = next_step(state, obs, policy)
    if plan.waiting_for != state.waiting_for:
        state = replace(state, waiting_for=plan.waiting_for)
    actions = () if plan.action is None else (plan.action,)
    decision = Decision(state, actions, reason, _changed_cycles(before, folded, state, obs), answers, plan.wake_at)
    invariants.check(decision, obs, policy)
    return decision


def _why_outlived(before: AgentState, state: AgentState) -> str:
    """A record of its own: no look after a boot shows it."""
    if state.outlived and state.outlived != before.outlived:
        return f"cache set {state.outlived} failed while it was clean: the device goes on without it"
    return ""


def _waiting_to_recover(state: AgentState, obs: Observation, policy: Policy) -> Decision:
    """Before the first clear look at the kernel nothing is done but looking."""
    answers = tuple(Answer(r, False, "the agent has just started and is still looking") for r in obs.requests)
    if obs.host is None or (obs.host.backing is None and not obs.host.dropped):
        text = "the backing device to be registered with bcache"
        return Decision(replace(state, waiting_for=text), answers=answers)
    lost_its_cache = obs.host.dropped and state.cycle is not None and state.cycle.is_in_front
    cycle = state.cycle if lost_its_cache else None
    plan = next_step(replace(state, cycle=cycle, listed_at=None), obs, policy)
    actions = () if plan.action is None else (plan.action,)
    return Decision(replace(state, waiting_for=plan.waiting_for), actions, answers=answers, wake_at=plan.wake_at)


# --- transitions -----------------------------------------------------------------------------------------


def _event(state: AgentState, obs: Observation, policy: Policy) -> Seen | None:
    danger = None if state.phase is Phase.FAULTED else detection.danger(state, obs)
    return danger or detection.DETECTORS[state.phase](state, obs, policy)


def _told_anew(state: AgentState, obs: Observation) -> AgentState:
    """A fault says what is wrong now: what an operator, or the kernel, did meanwhile may have changed it."""
    if state.phase is not Phase.FAULTED or state.stopped:
        return state
    danger = detection.danger(state, obs)
    return state if danger is None else replace(state, fault=danger.reason)


def _transition(state: AgentState, seen: Seen, obs: Observation, policy: Policy) -> AgentState:
    if seen.event is Event.REPAIRED:
        repaired = recover(detection.resumed(state, obs), obs, policy)
        return _after_change(repaired[0]) if repaired else state
    phase = TRANSITIONS[state.phase, seen.event]
    state = _after_change(replace(state, phase=phase))
    match seen.event:
        case Event.ENDANGERED:
            return replace(state, fault=seen.reason)
        case Event.ORPHAN_FOUND:
            return replace(state, cycle=cycle_of(detection.orphans(state)[0], obs))
        case Event.BOOST_REFUSED:
            state = replace(state, cycle=None, failures=state.failures + 1)
            return replace(state, cool_until=obs.now + _cool_down_s(state, policy))
        case Event.RELEASED:
            return _released(state, obs, policy)
        case Event.BOOST_ABANDONED:
            state = replace(state, failures=state.failures + 1)
        case Event.CACHE_ATTACHED:
            state = replace(state, failures=0)
    cycle = state.cycle
    return (
        state
        if cycle is None
        else replace(state, cycle=_marked(cycle, seen, obs, is_held=inhibition.wants_flush(state)))
    )


def _marked(cycle: Cycle, seen: Seen, obs: Observation, *, is_held: bool) -> Cycle:
    match seen.event:
        case Event.WENT_QUIET:
            asked = is_held or any(r.kind in (RequestKind.FLUSH, RequestKind.PAUSE) for r in obs.requests)
            dirty = obs.host.backing.dirty_bytes if obs.host and obs.host.backing else 0
            marks = replace(cycle.marks, quiet=obs.now, clean=None)
            return replace(cycle, marks=marks, forced=asked, flush_started_dirty_bytes=dirty)
        case Event.LOAD_RETURNED:
            return replace(cycle, forced=False, failure="", marks=replace(cycle.marks, detaching=None))
        case Event.DRAINED:
            return cycle.marked(clean=obs.now)
        case Event.CACHE_LEFT:
            return cycle.marked(detached=obs.now)
        case Event.BOOST_ABANDONED | Event.BOOST_WITHDRAWN:
            return replace(cycle, failure=seen.reason)
        case Event.DIRTIED:
            return replace(cycle, marks=replace(cycle.marks, clean=None))
    return cycle


def _released(state: AgentState, obs: Observation, policy: Policy) -> AgentState:
    cycle = state.cycle
    if cycle is not None:
        state = replace(_taught(state, cycle, policy), thrift=waste.judged(state, cycle, obs.wall, policy))
    gone = cycle.volume_id if cycle else None
    return replace(
        state,
        cycle=None,
        cool_until=obs.now + _cool_down_s(state, policy),
        owned=tuple(v for v in state.owned or () if v.id != gone) if state.owned is not None else None,
        listed_at=None,  # look once more: the list, not the answer, proves that nothing is left
        list_pace=Pace(0, obs.now + polling.SETTLE_S),
    )


def _taught(state: AgentState, cycle: Cycle, policy: Policy) -> AgentState:
    """A boost that was given up, and whose cache was attached all the same, was never one. What was bought for nothing
    must not make the cache of those small that are bought for something."""
    is_lesson = cycle.is_lesson and cycle.marks.boosted is not None and not cycle.failure
    lesson = learning.lesson_of(cycle, policy) if is_lesson and cycle.trigger is not Trigger.ORPHAN else None
    if lesson is None or (state.lessons and not waste.has_earned(cycle, policy)):
        return state
    learned = learning.with_lesson(state.lessons, lesson)
    return replace(state, lessons=learned, learned_size_bytes=learning.learned_bytes(learned, cycle, policy))


def _cool_down_s(state: AgentState, policy: Policy) -> float:
    if state.failures == 0:
        return policy.cool_down_s
    wait = min(FAILED_COOL_DOWN_S * 2.0 ** min(state.failures - 1, 10), FAILED_COOL_DOWN_MOST_S)
    return max(policy.cool_down_s, wait)


def _after_change(state: AgentState) -> AgentState:
    """A new phase asks afresh: pauses of the old one mean nothing to it."""
    return state if state.cycle is None else replace(state, cycle=replace(state.cycle, pace={}))


def _changed_cycles(before: AgentState, folded: AgentState, after: AgentState, obs: Observation) -> tuple[Cycle, ...]:
    """Cycles whose ledger row is due: a phase or a bill changed, or the cycle has just ended.

    A volume that was given up and is left to the operator is paid for until a list does not show it any more.
    """
    old, new = before.cycle, after.cycle
    if folded.cycle is not None and new is None:
        ended = folded.cycle
        was_given_up = before.phase is Phase.FAULTED and ended.volume_state is not VolumeState.GONE
        return (ended if ended.opened_wall is None or was_given_up else ended.bill_closed(obs.now),)
    if new is None:
        return ()
    billed = old is None or (old.opened_wall, old.closed_wall) != (new.opened_wall, new.closed_wall)
    return (new,) if billed or before.phase is not after.phase else ()


# --- boosts and requests ---------------------------------------------------------------------------------


def _cannot_boost(state: AgentState, obs: Observation) -> str:
    backing = obs.host.backing if obs.host else None
    if backing is None or obs.host is None or not backing.running:
        return "the adaptive device is not running"
    if obs.host.unfit:
        return obs.host.unfit
    is_bare = backing.state in (CacheState.NO_CACHE, CacheState.INCONSISTENT) or backing.outlives_cache
    if backing.cache_set is not None or not is_bare:
        return "the backing device has a cache already"
    if state.hold is not None:
        return f"no boost may begin now ({state.hold.reason})"
    if state.owned is None:
        return "the cloud has not answered yet: whether a volume is left over is unknown"
    return ""


def _boost_if_wanted(state: AgentState, obs: Observation, policy: Policy) -> tuple[AgentState, str]:
    trigger = is_boost_wanted(state.load, obs.forecast, obs.now, policy)
    if trigger is None or state.paused or obs.now < state.cool_until or _cannot_boost(state, obs):
        return state, ""
    is_like_useless = trigger is Trigger.LOAD and waste.must_wait(state.thrift, state.load, obs.now, obs.wall)
    if is_like_useless or state.thrift.stopped:
        return state, ""
    ahead_of = obs.forecast if trigger is Trigger.FORECAST else None
    learned = state.learned_size_bytes
    size = next_size(learned, policy) if ahead_of is None else forecast_size(ahead_of, learned, policy)
    refused = refusal(size, obs.spend, policy)
    if refused:
        return replace(state, cool_until=obs.now + FAILED_COOL_DOWN_S), f"no boost: {refused}"
    text = f"{_why_wanted(state, ahead_of, obs, policy)}: buying a cache of {format_size(size)}"
    state = _begin(state, trigger, size, obs, policy)
    if state.cycle is not None:
        chance = None if ahead_of is None else chance_until(ahead_of, policy)
        cycle = replace(waste.begun(state.cycle, state.load, obs.now), chance_until=chance)
        state = replace(state, cycle=cycle)
    return state, text


def _why_wanted(state: AgentState, ahead_of: Forecast | None, obs: Observation, policy: Policy) -> str:
    if ahead_of is None:
        return f"utilization {state.load.utilization:.0%} is at or above {policy.utilization_threshold:.0%}"
    written, wait = format_size(ahead_of.written_bytes), format_duration(ahead_of.begins_at - obs.now)
    return f"a burst of {written} is expected in {wait} ({ahead_of.confidence:.0%} sure)"


def _begin(state: AgentState, trigger: Trigger, size: int, obs: Observation, policy: Policy) -> AgentState:
    backing = obs.host.backing if obs.host else None
    start = obs.now + obs.jitter * policy.start_spread_s
    cycle = Cycle(
        token=_token(state, obs, policy),
        backing_serial=backing.disk_serial if backing else None,
        trigger=trigger,
        spec=VolumeSpec(size, policy.bought_bandwidth_mb_s, policy.cache_iops),
        started_at=obs.now,
        started_wall=obs.wall,
        marks=Marks(crossed=state.load.crossed_at if trigger is Trigger.LOAD else None, decided=obs.now),
        pace={"CreateVolume": Pace(0, start)},
    )
    return replace(state, phase=TRANSITIONS[Phase.IDLE, Event.BOOST_WANTED], cycle=cycle)


def _token(state: AgentState, obs: Observation, policy: Policy) -> str:
    """A name for a purchase that no other machine uses.

    Machines of one image have the same backing UUID, and a parallel application has them all decide in the same
    millisecond: the machine's own identity tells them apart, and chance those that cannot name themselves.
    """
    whose = hashlib.sha256(f"{state.machine} {policy.backing_uuid}".encode()).hexdigest()[:12]
    return f"elastio-{whose}-{int(obs.wall * 1000):x}-{int(obs.jitter * 2**32):08x}"


def _answer(state: AgentState, obs: Observation, policy: Policy) -> tuple[AgentState, tuple[Answer, ...], str]:
    answers: list[Answer] = []
    reason = ""
    for request in obs.requests:
        state, answer = _answer_one(state, request, obs, policy)
        answers.append(answer)
        if answer.accepted:
            reason = f"an operator asked to {request.kind}: {answer.text}"
    return state, tuple(answers), reason


def _answer_one(state: AgentState, request: Request, obs: Observation, policy: Policy) -> tuple[AgentState, Answer]:
    match request.kind:
        case RequestKind.PAUSE:
            return replace(state, paused=True), Answer(request, True, "no boost will start until `elastio resume`")
        case RequestKind.RESUME:
            return _answer_resume(state, request)
        case RequestKind.FLUSH:
            return _answer_flush(state, request)
        case RequestKind.BOOST:
            return _answer_boost(state, request, obs, policy)
        case RequestKind.RECOVER:
            return missing_cache.answer(state, request, obs)
        case RequestKind.COLLECT:
            return replace(state, listed_at=None, list_pace=NEVER_ASKED), Answer(request, True, COLLECTING)
        case RequestKind.LEARN:
            return _answer_learn(state, request, policy)
    return inhibition.answer(state, request, obs, policy)


def _answer_resume(state: AgentState, request: Request) -> tuple[AgentState, Answer]:
    state = replace(state, paused=False)
    if state.phase is Phase.FAULTED:
        return state, Answer(request, False, f"the agent is still faulted: {state.fault}")
    # Whoever resumes has seen to what failed: a boost that is wanted begins now.
    state = replace(state, failures=0, cool_until=0.0, thrift=Thrift())
    return state, Answer(request, True, "boosts start by themselves again")


def _answer_flush(state: AgentState, request: Request) -> tuple[AgentState, Answer]:
    if state.phase is Phase.FAULTED:
        return state, Answer(request, False, f"the agent is faulted: {state.fault}")
    if state.cycle is None:
        return state, Answer(request, True, "there is no cache to flush")
    if state.phase is Phase.FLUSHING:
        state = replace(state, cycle=replace(state.cycle, forced=True))
    return state, Answer(request, True, "the cache is being flushed and released")


def _answer_boost(state: AgentState, request: Request, obs: Observation, policy: Policy) -> tuple[AgentState, Answer]:
    if state.phase in (Phase.ATTACHING, Phase.BOOSTING):
        return state, Answer(request, True, f"a boost is under way ({state.phase})")
    if state.phase is not Phase.IDLE:
        return state, Answer(request, False, f"the agent is {state.phase}; ask again when it is idle")
    size = next_size(state.learned_size_bytes, policy) if request.size_bytes is None else request.size_bytes
    refused = _cannot_boost(state, obs) or refusal(size, obs.spend, policy)
    if refused:
        return state, Answer(request, False, refused)
    text = f"buying a cache of {format_size(size)}"
    return _begin(state, Trigger.OPERATOR, size, obs, policy), Answer(request, True, text)


def _answer_learn(state: AgentState, request: Request, policy: Policy) -> tuple[AgentState, Answer]:
    """Refused rather than clamped, and not unlearned by a cycle that is open: who asks for a size wants that size."""
    size = request.size_bytes
    if size is None:
        return state, Answer(request, False, "learn needs a size (size_bytes)")
    if not policy.min_size_bytes <= size <= policy.caps.max_size_bytes:
        bounds = f"{format_size(policy.min_size_bytes)} to {format_size(policy.caps.max_size_bytes)}"
        return state, Answer(request, False, f"a cache of {format_size(size)} is outside cache.*_size_gib ({bounds})")
    cycle = None if state.cycle is None else replace(state.cycle, is_lesson=False)
    state = replace(state, cycle=cycle, learned_size_bytes=size, lessons=())
    return state, Answer(request, True, f"the next cache gets {format_size(size)}")
