"""The state machine: a table, and `decide`, which makes every decision of the agent.

Theory of operation
-------------------

The agent owns at most one *cycle*, the life of one bought volume, and is in one of six phases::

    IDLE --boost wanted--> ATTACHING --cache attached--> BOOSTING --went quiet--> FLUSHING --drained--> DETACHING
     ^                        |                             ^                        |                     |   |
     |                        | abandoned, withdrawn        +------load returned-----+ <-----dirtied-------+   |
     |                        +----------------------------------------------------------> DETACHING           |
     +-------------------------------------released: the cloud shows no volume---------------------------------+

From every phase ENDANGERED leads to FAULTED, where nothing is released and only an operator, or the cache that comes
back, goes on.

`decide(state, observation, policy)` is pure: time comes in as `observation.now` and chance as `observation.jitter`, so
the same input gives the same decision and a journal can be replayed. It is called whenever something happened or
`wake_at` has come, and works in this order:

1. `update.fold` takes in what was observed: outcomes of calls, the scan of the kernel, a sample of throughput. Nothing
   is decided here.
2. After a start, `recovery.recover` reads the phase off the kernel. Until it can, nothing is done but scanning.
3. `detection` finds at most one event: a danger first, else what the phase waits for. The table gives the next phase.
4. `requests` carries out what operators asked for, each by an event of the table, and answers every request.
5. In IDLE, `boosting.wanted` decides whether to buy.
6. `planner.next_action` names at most one action: the next one that is safe. It is asked at every decision, so an
   action that failed, or whose answer was lost, needs no bookkeeping: what the next scan shows decides.
7. `invariants.check` tests the decision against the safety rules, with code of its own. A decision that breaks one is
   thrown away and the agent stops acting; `executor` tests the rules that can become false in between once more.

The order of acting is: acquire, then switch, then release. A volume is tagged dirty before it may hold data, the
journal and the mount guard are durable before the effect, the cache set leaves the backing device before the volume
leaves the machine, and a volume counts as gone only when a list of the cloud does not show it.

Rules of the table:

- A pair that is not in it is a bug: `InvariantError`, which ends in FAULTED, never in a crash loop.
- Nothing leads out of DETACHING but the proof that the volume is gone, or data that turned out to be dirty.
- The phase after a start, and after a repair, is read off the kernel, never remembered.
"""

from __future__ import annotations

from dataclasses import replace

from elastio.core import (
    boosting,
    detection,
    inhibition,
    invariants,
    learning,
    missing_cache,
    polling,
    requests,
    update,
    waste,
)
from elastio.core.cycle import Backoff, Cycle, Failure, FailureKind, Trigger
from elastio.core.detection import Detection, Event
from elastio.core.model import VolumeState
from elastio.core.observation import Answer, Decision, Observation
from elastio.core.planner import next_action
from elastio.core.policy import Policy
from elastio.core.recovery import cycle_of, recover
from elastio.core.state import AgentState, Fault, Phase
from elastio.errors import InvariantError

TRANSITIONS: dict[tuple[Phase, Event], Phase | None] = {
    (Phase.IDLE, Event.BOOST_WANTED): Phase.ATTACHING,
    (Phase.IDLE, Event.BOOST_CAPPED): Phase.IDLE,
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
    (Phase.FAULTED, Event.REPAIRED): None,  # read off the kernel, see `recovery`
}

# After a boost that failed the load is left alone for this long, and twice as long after each further one: what
# failed will fail again, and every volume that is bought is paid for.
FAILED_COOL_DOWN_S = 60.0
FAILED_COOL_DOWN_MOST_S = 900.0


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
    state, inhibited = inhibition.update(state, obs, policy)
    reason = inhibited or reason or _why_failed_clean(before, state)
    state = _with_fault_of_today(state, obs)
    state, detected = _moved(state, _detect(state, obs, policy), obs, policy)
    state, answers, ordered = _answer(state, obs, policy)
    reason = ordered or detected or reason
    if state.phase is Phase.IDLE and not ordered:
        state, wanted = _moved(state, boosting.wanted(state, obs, policy), obs, policy)
        reason = wanted or reason
    plan = next_action(state, obs, policy)
    if plan.waiting_for != state.waiting_for:
        state = replace(state, waiting_for=plan.waiting_for)
    actions = () if plan.action is None else (plan.action,)
    decision = Decision(state, actions, reason, _changed_cycles(before, folded, state, obs), answers, plan.wake_at)
    invariants.check(decision, obs, policy)
    return decision


def _why_failed_clean(before: AgentState, state: AgentState) -> str:
    """A record of its own: no scan after a boot shows it."""
    if state.failed_clean_set and state.failed_clean_set != before.failed_clean_set:
        return f"cache set {state.failed_clean_set} failed while it was clean: the device goes on without it"
    return ""


def _waiting_to_recover(state: AgentState, obs: Observation, policy: Policy) -> Decision:
    """Before the first clear look at the kernel nothing is done but looking."""
    answers = tuple(Answer(r, False, "the agent has just started and is still looking") for r in obs.requests)
    if obs.host is None or (obs.host.backing is None and not obs.host.unregistered_backing):
        text = "the backing device to be registered with bcache"
        return Decision(replace(state, waiting_for=text), answers=answers)
    lost_its_cache = obs.host.unregistered_backing and state.cycle is not None and state.cycle.is_in_front
    cycle = state.cycle if lost_its_cache else None
    plan = next_action(replace(state, cycle=cycle, listed_at=None), obs, policy)
    actions = () if plan.action is None else (plan.action,)
    return Decision(replace(state, waiting_for=plan.waiting_for), actions, answers=answers, wake_at=plan.wake_at)


# --- transitions -----------------------------------------------------------------------------------------


def _detect(state: AgentState, obs: Observation, policy: Policy) -> Detection | None:
    danger = None if state.phase is Phase.FAULTED else detection.danger(state, obs)
    return danger or detection.DETECTORS[state.phase](state, obs, policy)


def _with_fault_of_today(state: AgentState, obs: Observation) -> AgentState:
    """A fault says what is wrong now: what an operator, or the kernel, did meanwhile may have changed it."""
    if state.phase is not Phase.FAULTED or state.is_stopped:
        return state
    danger = detection.danger(state, obs)
    return state if danger is None else replace(state, fault=_fault(danger))


def _fault(danger: Detection) -> Fault:
    if danger.fault is None:
        raise InvariantError(f"{danger.event} without a kind of fault: {danger.reason}")
    return Fault(danger.fault, danger.reason)


def _moved(state: AgentState, detected: Detection | None, obs: Observation, policy: Policy) -> tuple[AgentState, str]:
    """The state after the event, by the table, and its reason; unchanged without one."""
    if detected is None:
        return state, ""
    if (state.phase, detected.event) not in TRANSITIONS:
        raise InvariantError(f"{detected.event} in phase {state.phase} is not in the table: {detected.reason}")
    return _transition(state, detected, obs, policy), detected.reason


def _transition(state: AgentState, detected: Detection, obs: Observation, policy: Policy) -> AgentState:
    phase = TRANSITIONS[state.phase, detected.event]
    if phase is None:
        repaired = recover(state, obs, policy, is_ordered=detected.is_ordered)
        return _after_change(repaired[0]) if repaired else state
    return _entered(_after_change(replace(state, phase=phase)), detected, obs, policy)


def _entered(state: AgentState, detected: Detection, obs: Observation, policy: Policy) -> AgentState:
    """What the event changes besides the phase."""
    match detected.event:
        case Event.BOOST_WANTED:
            return _begun(state, detected, obs, policy)
        case Event.BOOST_CAPPED:
            return replace(state, cool_until=obs.now + FAILED_COOL_DOWN_S)
        case Event.ENDANGERED:
            return replace(state, fault=_fault(detected))
        case Event.ORPHAN_FOUND:
            return replace(state, cycle=cycle_of(state.orphans[0], obs))
        case Event.BOOST_REFUSED:
            state = replace(state, cycle=None, failures=state.failures + 1)
            return replace(state, cool_until=obs.now + _cool_down_s(state, policy))
        case Event.RELEASED:
            return _released(state, obs, policy)
        case Event.BOOST_ABANDONED:
            state = replace(state, failures=state.failures + 1)
        case Event.CACHE_ATTACHED:
            state = replace(state, failures=0)
    if state.cycle is None:
        return state
    is_forced = detected.is_ordered or inhibition.wants_flush(state)
    return replace(state, cycle=_stamped(state.cycle, detected, obs, is_forced=is_forced))


def _begun(state: AgentState, detected: Detection, obs: Observation, policy: Policy) -> AgentState:
    if detected.plan is None:
        raise InvariantError(f"{detected.event} without a plan: {detected.reason}")
    return replace(state, cycle=boosting.new_cycle(detected.plan, state, obs, policy))


def _stamped(cycle: Cycle, detected: Detection, obs: Observation, *, is_forced: bool) -> Cycle:
    match detected.event:
        case Event.WENT_QUIET:
            dirty = obs.host.backing.dirty_bytes if obs.host and obs.host.backing else 0
            times = replace(cycle.times, quiet=obs.now, clean=None)
            return replace(cycle, times=times, forced=is_forced, flush_started_dirty_bytes=dirty)
        case Event.LOAD_RETURNED:
            return replace(cycle, forced=False, failure=None, times=replace(cycle.times, detaching=None))
        case Event.DRAINED:
            return cycle.stamped(clean=obs.now)
        case Event.CACHE_LEFT:
            return cycle.stamped(detached=obs.now)
        case Event.BOOST_ABANDONED | Event.BOOST_WITHDRAWN:
            kind = detected.failure or FailureKind.UNKNOWN
            return replace(cycle, failure=Failure(kind, detected.reason))
        case Event.DIRTIED:
            return replace(cycle, times=replace(cycle.times, clean=None))
    return cycle


def _released(state: AgentState, obs: Observation, policy: Policy) -> AgentState:
    cycle = state.cycle
    if cycle is not None:
        state = replace(_taught(state, cycle, policy), waste=waste.judged(state, cycle, obs.wall, policy))
    gone = cycle.volume_id if cycle else None
    return replace(
        state,
        cycle=None,
        cool_until=obs.now + _cool_down_s(state, policy),
        owned=tuple(v for v in state.owned or () if v.id != gone) if state.owned is not None else None,
        listed_at=None,  # look once more: the list, not the answer, proves that nothing is left
        list_backoff=Backoff(0, obs.now + polling.SETTLE_S),
    )


def _taught(state: AgentState, cycle: Cycle, policy: Policy) -> AgentState:
    """A boost that was given up, and whose cache was attached all the same, was never one. What was bought for nothing
    must not make the cache of those small that are bought for something."""
    updates_learned_size = cycle.updates_learned_size and cycle.times.boosted is not None and not cycle.failure
    lesson = learning.lesson_of(cycle, policy) if updates_learned_size and cycle.trigger is not Trigger.ORPHAN else None
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
    return state if state.cycle is None else replace(state, cycle=replace(state.cycle, backoffs={}))


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


# --- requests --------------------------------------------------------------------------------------------


def _answer(state: AgentState, obs: Observation, policy: Policy) -> tuple[AgentState, tuple[Answer, ...], str]:
    """Every request in its turn, and the sentence about the last one that was accepted."""

    def move(before: AgentState, detected: Detection) -> AgentState:
        return _moved(before, detected, obs, policy)[0]

    answers: list[Answer] = []
    reason = ""
    for request in obs.requests:
        state, answer = requests.answer(state, request, obs, policy, move)
        answers.append(answer)
        if answer.accepted:
            reason = f"an operator asked to {request.kind}: {answer.text}"
    return state, tuple(answers), reason
