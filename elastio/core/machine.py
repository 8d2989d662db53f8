"""The state machine: a table of transitions, and `decide`, which makes every decision of the agent. Pure.

Theory of operation
-------------------

The agent owns at most one *cycle*, the life of one bought volume, and is in one of six phases::

    IDLE --boost wanted--> ATTACHING --cache attached--> BOOSTING --went quiet--> FLUSHING --drained--> DETACHING
     ^                        |                             ^                        |                     |   |
     |                        | abandoned, withdrawn        +------load returned-----+ <-----dirtied-------+   |
     |                        +----------------------------------------------------------> DETACHING           |
     +-------------------------------------released: the cloud shows no volume---------------------------------+

From every phase ENDANGERED leads to FAULTED. There nothing is released, and the agent goes on only when an operator
decides so or the missing cache is back.

`decide(state, observation, policy)` is pure: time comes in as `observation.now` and randomness as `observation.jitter`,
so the same input gives the same decision and a journal can be replayed. It is called whenever something happened or
`wake_at` has come, and works in this order:

1. `update.fold` takes in what was observed: outcomes of actions and the scan of the kernel. Nothing is decided here.
2. After a start, `recovery.recover` reads the phase from the kernel. Until it can, the agent only scans.
3. `strategy.review` is given a `Situation`, which is all that it sees. It takes it into its memory, and answers with a
   `Wish`: the bandwidths that hold now, whether the cache is to be released or to take writes again, what to buy if a
   boost may begin, the most that a flush may take, and what it says to each request. From the sample and the bandwidths
   follows the writeback rate.
4. `detection` finds at most one event: a danger first, else what the phase waits for. The table gives the next phase.
5. `requests` carries out what operators asked for, each by an event of the table, and answers every request.
6. In IDLE, what the strategy wants to buy is bought, if nothing else has happened.
7. `planner.next_action` returns at most one action: the next one that is safe. It is called at every decision, so an
   action that failed, or whose answer was lost, needs no bookkeeping: the next scan shows what is left to do.
8. `invariants.check` checks the decision against the safety rules, with code of its own. A decision that breaks one is
   discarded and the agent stops acting. `executor` repeats the checks whose result may have changed meanwhile.

The order of actions is: acquire, then switch, then release. A volume is tagged dirty before it may hold data. The
journal and the mount guard are durable before the effect. The cache set is detached from the backing device before the
volume is detached from the machine. A volume counts as gone only when the cloud no longer shows it.

Rules of the table:

- A pair that is not in it is a bug. It raises `InvariantError` and ends in FAULTED, never in a crash loop.
- DETACHING ends only with the proof that the volume is gone, or with data that turned out to be dirty.
- The phase after a start, and after a repair, is read from the kernel, never from memory.
"""

from __future__ import annotations

from dataclasses import replace

from elastio.core import boosting, detection, invariants, missing_cache, polling, requests, update
from elastio.core.cycle import Backoff, Cycle, Failure, FailureKind
from elastio.core.detection import Detection, Event
from elastio.core.model import RequestKind, VolumeState
from elastio.core.planner import next_action
from elastio.core.policy import Policy
from elastio.core.recovery import cycle_of, recover
from elastio.core.state import AgentState, Answer, Course, Decision, Fault, Observation, Order, Phase, Transition
from elastio.errors import InvariantError
from elastio.strategy.review import review
from elastio.strategy.situation import Wish

TRANSITIONS: dict[tuple[Phase, Event], Phase | None] = {
    (Phase.IDLE, Event.BOOST_WANTED): Phase.ATTACHING,
    (Phase.IDLE, Event.BOOST_CAPPED): Phase.IDLE,
    (Phase.IDLE, Event.BOOST_DECLINED): Phase.IDLE,
    (Phase.IDLE, Event.ORPHAN_FOUND): Phase.DETACHING,
    (Phase.ATTACHING, Event.CACHE_ATTACHED): Phase.BOOSTING,
    (Phase.ATTACHING, Event.BOOST_REFUSED): Phase.IDLE,
    (Phase.ATTACHING, Event.BOOST_CAPPED): Phase.IDLE,
    (Phase.ATTACHING, Event.BOOST_ABANDONED): Phase.DETACHING,
    (Phase.ATTACHING, Event.BOOST_WITHDRAWN): Phase.DETACHING,
    (Phase.BOOSTING, Event.WENT_QUIET): Phase.FLUSHING,
    (Phase.BOOSTING, Event.CAP_REACHED): Phase.FLUSHING,
    (Phase.BOOSTING, Event.FILLED_UP): Phase.FLUSHING,
    (Phase.BOOSTING, Event.CACHE_LEFT): Phase.DETACHING,
    (Phase.FLUSHING, Event.LOAD_RETURNED): Phase.BOOSTING,
    (Phase.FLUSHING, Event.CAP_REACHED): Phase.FLUSHING,
    (Phase.FLUSHING, Event.CACHE_LEFT): Phase.DETACHING,
    (Phase.FLUSHING, Event.DRAINED): Phase.DETACHING,
    (Phase.DETACHING, Event.DIRTIED): Phase.FLUSHING,
    (Phase.DETACHING, Event.RELEASED): Phase.IDLE,
    (Phase.IDLE, Event.ENDANGERED): Phase.FAULTED,
    (Phase.ATTACHING, Event.ENDANGERED): Phase.FAULTED,
    (Phase.BOOSTING, Event.ENDANGERED): Phase.FAULTED,
    (Phase.FLUSHING, Event.ENDANGERED): Phase.FAULTED,
    (Phase.DETACHING, Event.ENDANGERED): Phase.FAULTED,
    (Phase.FAULTED, Event.REPAIRED): None,  # read from the kernel, see `recovery`
}

# The cool-down after a boost that failed; it doubles with each further failure. The next try is likely to fail too,
# and every volume that is bought is billed.
FAILED_COOL_DOWN_S = 60.0
FAILED_COOL_DOWN_MOST_S = 900.0


def decide(state: AgentState, obs: Observation, policy: Policy) -> Decision:
    """The new state, at most one safe action, the answers and the reason.

    Raises InvariantError if the decision would break a safety rule, or if a transition is not in the table.
    """
    before = state
    state = folded = missing_cache.settle(update.fold(state, obs, policy), obs)
    reason, inhibited, seen = "", "", list[Transition]()
    if not state.recovered and (recovered := _recovered(state, obs)) is not None:
        state, reason = _without_backoffs(recovered[0]), recovered[1]
        if state.fault is not None:  # a start into FAULTED, which is not one of the table
            seen.append(Transition(Event.ENDANGERED, before.phase, state.phase, state.fault.text))
    if state.recovered:
        state, inhibited = requests.hold_for_notice(state, obs, policy)
    memory, wish = review(state.memory, boosting.situation_of(state, obs, policy))
    state = update.with_wish(state, memory, obs, wish)
    if not state.recovered:
        return _waiting_to_recover(state, obs, wish.policy)
    reason = inhibited or reason or _why_failed_clean(before, state) or wish.note
    state, new_fault = _with_current_fault(state, obs, seen)
    state, detected = _moved(state, _detect(state, obs, wish), obs, wish, seen)
    state, answers, ordered = _answer(state, obs, policy, wish, seen)
    reason = ordered or detected or new_fault or reason
    if state.phase is Phase.IDLE and not ordered and not detected:
        state, wanted = _moved(state, detection.wanted(wish), obs, wish, seen)
        reason = wanted or reason
    reason = "; ".join(text for text in (reason, wish.learned) if text)
    plan = next_action(state, obs, wish.policy)
    if plan.waiting_for != state.waiting_for:
        state = replace(state, waiting_for=plan.waiting_for)
    actions = () if plan.action is None else (plan.action,)
    changed = _changed_cycles(before, folded, state, obs)
    orders = tuple(Order(a.request.kind, a.text, a.request.asked_by) for a in answers if a.accepted)
    course = Course(tuple(seen), orders, changed[-1] if changed and state.cycle is None else None)
    decision = Decision(state, actions, reason, changed, answers, plan.wake_at, course)
    invariants.check(decision, obs, wish.policy)
    return decision


def _recovered(state: AgentState, obs: Observation) -> tuple[AgentState, str] | None:
    """What `recover` reads from the kernel; None while it cannot, or while a broken rule waits for an operator.

    The bug is still there after a start. So nothing is decided before `resume`, which the new state then answers.
    """
    is_resumed = any(r.kind is RequestKind.RESUME for r in obs.requests)
    return None if state.is_stopped and not is_resumed else recover(state, obs)


def _why_failed_clean(before: AgentState, state: AgentState) -> str:
    """Why a failed clean set has to be recorded now: no scan after the next boot shows it. Empty: none failed."""
    if state.failed_clean_set and state.failed_clean_set != before.failed_clean_set:
        return f"cache set {state.failed_clean_set} failed while it was clean: the device runs without it"
    return ""


def _waiting_to_recover(state: AgentState, obs: Observation, policy: Policy) -> Decision:
    """The decision before the first complete scan: nothing is done but what the scan itself needs."""
    if state.is_stopped:
        text, code = f"the agent is still faulted: {state.fault}", requests.FAULTED
    else:
        text, code = "the agent has just started: ask again in a moment", "agent.starting"
    answers = tuple(Answer(r, False, text, code) for r in obs.requests)
    if obs.host is None or (obs.host.backing is None and not obs.host.unregistered_backing):
        text = "an operator" if state.is_stopped else "the backing device to be registered with bcache"
        return Decision(replace(state, waiting_for=text), answers=answers)
    lost_its_cache = obs.host.unregistered_backing and state.cycle is not None and state.cycle.may_be_attached
    cycle = state.cycle if lost_its_cache else None
    plan = next_action(replace(state, cycle=cycle, listed=None), obs, policy)
    actions = () if plan.action is None else (plan.action,)
    return Decision(replace(state, waiting_for=plan.waiting_for), actions, answers=answers, wake_at=plan.wake_at)


# --- transitions -----------------------------------------------------------------------------------------


def _detect(state: AgentState, obs: Observation, wish: Wish) -> Detection | None:
    danger = None if state.phase is Phase.FAULTED else detection.danger(state, obs)
    return danger or detection.DETECTORS[state.phase](state, obs, wish)


def _with_current_fault(state: AgentState, obs: Observation, seen: list[Transition]) -> tuple[AgentState, str]:
    """The state with its fault brought up to date, and the reason if it is another one than before.

    An operator or the kernel may have changed what is wrong. Adds the transition to `seen`; it is not one of the table.
    """
    if state.phase is not Phase.FAULTED or state.is_stopped:
        return state, ""
    danger = detection.danger(state, obs)
    if danger is None or (fault := _fault(danger)) == state.fault:
        return state, ""
    seen.append(Transition(danger.event, state.phase, state.phase, danger.reason))
    return replace(state, fault=fault), danger.reason


def _fault(danger: Detection) -> Fault:
    if danger.fault is None:
        raise InvariantError(f"{danger.event} without a kind of fault: {danger.reason}", code="event.fault")
    return Fault(danger.fault, danger.reason)


def _moved(
    state: AgentState, detected: Detection | None, obs: Observation, wish: Wish, seen: list[Transition]
) -> tuple[AgentState, str]:
    """The state after the event, by the table, and the event's reason; the same state and "" without an event.

    Adds the transition to `seen`. Raises InvariantError for an event that the table does not have in this phase.
    """
    if detected is None:
        return state, ""
    if (state.phase, detected.event) not in TRANSITIONS:
        text = f"{detected.event} in phase {state.phase} is not in the table: {detected.reason}"
        raise InvariantError(text, code="event.transition")
    moved = _transition(state, detected, obs, wish)
    seen.append(Transition(detected.event, state.phase, moved.phase, detected.reason, detected.is_capped))
    return moved, detected.reason


def _transition(state: AgentState, detected: Detection, obs: Observation, wish: Wish) -> AgentState:
    phase = TRANSITIONS[state.phase, detected.event]
    if phase is None:
        repaired = recover(state, obs, is_ordered=detected.is_ordered)
        return _without_backoffs(repaired[0]) if repaired else state
    if detected.capped is not None:
        state = replace(state, memory=replace(state.memory, capped=detected.capped))
    if state.phase is Phase.FLUSHING and detected.event is Event.CAP_REACHED:
        # It is carried out to its end, whatever the load.
        return state if state.cycle is None else replace(state, cycle=replace(state.cycle, forced=True))
    return _entered(_without_backoffs(replace(state, phase=phase)), detected, obs, wish)


def _entered(state: AgentState, detected: Detection, obs: Observation, wish: Wish) -> AgentState:
    """What the event changes besides the phase."""
    match detected.event:
        case Event.BOOST_WANTED:
            return _begun(state, detected, obs, wish.policy)
        case Event.BOOST_CAPPED:
            return replace(state, cycle=None, cool_until=obs.now + FAILED_COOL_DOWN_S)
        case Event.ENDANGERED:
            return replace(state, fault=_fault(detected))
        case Event.ORPHAN_FOUND:
            return replace(state, cycle=cycle_of(state.orphans[0], obs))
        case Event.BOOST_REFUSED:
            state = replace(_unlisted(state, obs), cycle=None, failures=state.failures + 1)
            return replace(state, cool_until=obs.now + _cool_down_s(state, wish.policy))
        case Event.RELEASED:
            return _released(state, obs, wish)
        case Event.BOOST_ABANDONED:
            state = replace(state, failures=state.failures + 1)
        case Event.CACHE_ATTACHED:
            appear_s = state.appear_s if state.cycle is None else boosting.with_appear_time(state.appear_s, state.cycle)
            state = replace(state, appear_s=appear_s, failures=0)
        case _:
            pass  # changes at most the cycle
    return _with_stamps(state, detected, obs)


def _with_stamps(state: AgentState, detected: Detection, obs: Observation) -> AgentState:
    if state.cycle is None:
        return state
    is_filled = detected.event is Event.FILLED_UP
    is_forced = detected.is_ordered or is_filled or detected.capped is not None or state.wants_flush
    cycle = _stamped(state.cycle, detected, obs, is_forced=is_forced)
    memory = replace(state.memory, has_filled=True) if is_filled else state.memory
    return replace(state, cycle=cycle, memory=memory)


def _stamped(cycle: Cycle, detected: Detection, obs: Observation, *, is_forced: bool) -> Cycle:
    """The cycle with what the event changes in it; a scan shows the rest."""
    match detected.event:
        case Event.WENT_QUIET | Event.CAP_REACHED | Event.FILLED_UP:
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
            return replace(cycle, failure=Failure(detected.failure or FailureKind.UNKNOWN, detected.reason))
        case Event.DIRTIED:
            return replace(cycle, times=replace(cycle.times, clean=None), dirtied=cycle.dirtied + 1)
        case _:
            return cycle


def _begun(state: AgentState, detected: Detection, obs: Observation, policy: Policy) -> AgentState:
    """The state with the new cycle, of which the strategy knows this. Raises InvariantError without a plan."""
    if detected.plan is None:
        raise InvariantError(f"{detected.event} without a plan: {detected.reason}", code="event.plan")
    memory = replace(state.memory, boost=detected.plan.known)
    return replace(state, cycle=boosting.new_cycle(detected.plan, state, obs, policy), memory=memory)


def _released(state: AgentState, obs: Observation, wish: Wish) -> AgentState:
    """The state after the end of a cycle: its lesson, the cool-down, and a new list of the cloud."""
    gone = state.cycle.volume if state.cycle else None
    is_left = gone is not None and state.in_doubt((gone,)) != ()  # no boost before a list has shown it
    return replace(
        _unlisted(state, obs),
        cycle=None,
        memory=wish.released or state.memory,
        cool_until=obs.now + _cool_down_s(state, wish.policy),
        owned=None if is_left else state.owned and tuple(v for v in state.owned if gone is None or v.id != gone.id),
    )


def _unlisted(state: AgentState, obs: Observation) -> AgentState:
    """Only a new list, and neither the answer to a deletion nor a refusal, proves that nothing is left."""
    return replace(
        state, listed=None, backoffs={**state.backoffs, "ListVolumes": Backoff(0, obs.now + polling.SETTLE_S)}
    )


def _cool_down_s(state: AgentState, policy: Policy) -> float:
    """Seconds until the next boost may begin by itself."""
    if state.failures == 0:
        return policy.cool_down_s
    wait = min(FAILED_COOL_DOWN_S * 2.0 ** min(state.failures - 1, 10), FAILED_COOL_DOWN_MOST_S)
    return max(policy.cool_down_s, wait)


def _without_backoffs(state: AgentState) -> AgentState:
    """The state with the backoffs of its cycle cleared: a new phase does not wait because of the old one."""
    return state if state.cycle is None else replace(state, cycle=replace(state.cycle, backoffs={}))


def _changed_cycles(before: AgentState, folded: AgentState, after: AgentState, obs: Observation) -> tuple[Cycle, ...]:
    """Cycles whose ledger row has to be written: the phase or the bill changed, or the cycle has just ended.

    A volume that was given up and left to the operator is billed until a list no longer shows it.
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


def _answer(
    state: AgentState, obs: Observation, policy: Policy, wish: Wish, seen: list[Transition]
) -> tuple[AgentState, tuple[Answer, ...], str]:
    """The state after every request, one answer for each, and a sentence about the last one that was accepted."""

    def move(before: AgentState, detected: Detection) -> AgentState:
        return _moved(before, detected, obs, wish, seen)[0]

    answers: list[Answer] = []
    reason = ""
    for request, reply in zip(obs.requests, wish.replies, strict=True):
        state, answer = requests.answer(state, request, reply, obs, policy, move)
        answers.append(answer)
        if answer.accepted:
            reason = f"an operator asked to {request.kind}: {answer.text}"
    return state, tuple(answers), reason
