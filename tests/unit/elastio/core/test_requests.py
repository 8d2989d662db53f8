"""Requests that hold boosts: for a snapshot, a stop, a shutdown; and the end that the cloud announced."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elastio.core import requests
from elastio.core.detection import Detection
from elastio.core.machine import decide
from elastio.core.model import Notice, Request, RequestKind
from elastio.core.policy import Policy
from elastio.core.state import AgentState, Answer, Fault, FaultKind, Inhibition, InhibitionReason, Observation, Phase
from elastio.strategy.situation import Reply
from tests.values import HIGH, NOW, POLICY, WALL, busy_sample, cached, cycle, host, present, seen, state

SNAPSHOT = Inhibition(InhibitionReason.SNAPSHOT, NOW + 60)


def asked(before: AgentState, request: Request, obs: Observation, policy: Policy) -> tuple[AgentState, Answer]:
    return requests.answer(before, request, Reply(), obs, policy, unmoved)


def unmoved(before: AgentState, detected: Detection) -> AgentState:
    raise AssertionError(f"{detected.event} in {before.phase}")


def test_an_inhibition_ends_when_its_time_is_over_and_not_before() -> None:
    held = state(Phase.IDLE, inhibition=SNAPSHOT)
    assert requests.hold_for_notice(held, seen(), POLICY) == (held, "")
    ended, why = requests.hold_for_notice(held, seen(now=NOW + 60), POLICY)
    assert ended.inhibition is None
    assert why


def test_a_notice_inhibits_beyond_its_time_and_no_longer_than_it_stands() -> None:
    noticed = state(Phase.BOOSTING, cycle(), notice=Notice("terminate", WALL + 120))
    held, why = requests.hold_for_notice(noticed, seen(), POLICY)
    assert held.inhibition is not None
    assert (held.inhibition.reason, held.inhibition.flush) == (InhibitionReason.NOTICE, True)
    assert held.inhibition.until > NOW + 120
    assert why
    assert requests.hold_for_notice(held, seen(now=NOW + 1), POLICY) == (held, "")
    assert requests.hold_for_notice(replace(held, notice=None), seen(), POLICY)[0].inhibition is None


def test_a_notice_may_leave_the_cache_where_it_is() -> None:
    noticed = state(Phase.BOOSTING, cycle(), notice=Notice("stop", WALL + 120))
    held, _ = requests.hold_for_notice(noticed, seen(), replace(POLICY, notice_flush=False))
    assert held.inhibition is not None
    assert not held.wants_flush


@pytest.mark.parametrize("reason", [InhibitionReason.SNAPSHOT, InhibitionReason.STOP, InhibitionReason.SHUTDOWN])
def test_a_notice_cancels_no_flush_and_the_inhibition_below_it_returns(reason: InhibitionReason) -> None:
    before = Inhibition(reason, NOW + 60)
    noticed = state(Phase.FLUSHING, cycle(), inhibition=before, notice=Notice("stop", WALL + 120))
    held, _ = requests.hold_for_notice(noticed, seen(), replace(POLICY, notice_flush=False))
    assert held.inhibition is not None
    assert (held.inhibition.reason, held.inhibition.flush) == (InhibitionReason.NOTICE, True)
    withdrawn = replace(held, notice=None)
    assert requests.hold_for_notice(withdrawn, seen(), POLICY)[0].inhibition == before
    assert requests.hold_for_notice(withdrawn, seen(now=NOW + 60), POLICY)[0].inhibition is None


@pytest.mark.parametrize("kind", [RequestKind.STOP, RequestKind.SHUTDOWN])
def test_the_inhibition_of_a_snapshot_is_in_force_again_after_a_stop_that_did_not_happen(kind: RequestKind) -> None:
    snapshot = replace(SNAPSHOT, until=NOW + 9000)
    held = state(Phase.IDLE, inhibition=snapshot)
    for _ in range(3):  # asked for again and again: nothing piles up
        held, answer = asked(held, Request(kind), seen(), POLICY)
        assert answer.accepted
        assert present(held.inhibition).under == snapshot
    assert requests.hold_for_notice(held, seen(now=NOW + 8000), POLICY)[0].inhibition == snapshot


def test_a_script_can_end_its_inhibition_under_another_one() -> None:
    stop = Inhibition(InhibitionReason.STOP, NOW + 60, under=SNAPSHOT)
    notice = Inhibition(InhibitionReason.NOTICE, NOW + 600, under=stop)
    after, answer = asked(state(Phase.IDLE, inhibition=notice), Request(RequestKind.UNQUIESCE), seen(), POLICY)
    assert answer.accepted
    assert after.inhibition == replace(notice, under=replace(stop, under=None))


CANCEL = Request(RequestKind.SHUTDOWN, cancels=True)


def test_the_hold_of_a_shutdown_that_does_not_happen_can_be_ended() -> None:
    held, _ = asked(state(Phase.IDLE, inhibition=SNAPSHOT), Request(RequestKind.SHUTDOWN), seen(), POLICY)
    after, answer = asked(held, CANCEL, seen(), POLICY)
    assert answer.accepted
    assert after.inhibition == SNAPSHOT  # a copy may still be made
    _, paused = asked(replace(held, paused=True), CANCEL, seen(), POLICY)
    assert (paused.accepted, paused.text != answer.text) == (True, True)
    free, answer = asked(replace(after, inhibition=replace(SNAPSHOT, under=None)), CANCEL, seen(), POLICY)
    assert (free.inhibition, answer.accepted, answer.code) == (SNAPSHOT, False, "hold.none")


def test_cancelling_a_shutdown_ends_no_notice_of_the_cloud() -> None:
    notice = Inhibition(InhibitionReason.NOTICE, NOW + 600, under=Inhibition(InhibitionReason.SHUTDOWN, NOW + 60))
    after, answer = asked(state(Phase.IDLE, inhibition=notice), CANCEL, seen(), POLICY)
    assert answer.accepted
    assert after.inhibition == replace(notice, under=None)


@pytest.mark.parametrize("reason", list(InhibitionReason))
def test_resume_says_that_no_boost_begins_yet_and_how_to_end_that(reason: InhibitionReason) -> None:
    held = state(Phase.IDLE, inhibition=Inhibition(reason, NOW + 600), paused=True)
    after, answer = asked(held, Request(RequestKind.RESUME), seen(), POLICY)
    assert (answer.accepted, after.paused, after.inhibition) == (True, False, held.inhibition)
    assert str(reason) in answer.text
    assert requests.ENDS.get(reason, "") in answer.text
    _, unheld = asked(replace(held, inhibition=None), Request(RequestKind.RESUME), seen(), POLICY)
    assert answer.text != unheld.text


def test_a_script_learns_that_its_inhibition_was_over() -> None:
    _, answer = asked(state(Phase.IDLE), Request(RequestKind.UNQUIESCE), seen(), POLICY)
    assert not answer.accepted
    _, answer = asked(state(Phase.IDLE, inhibition=SNAPSHOT), Request(RequestKind.UNQUIESCE), seen(), POLICY)
    assert answer.accepted


ENDING = [Inhibition(reason, NOW + 60) for reason in InhibitionReason if reason is not InhibitionReason.SNAPSHOT]


@pytest.mark.parametrize(
    "before",
    [
        *(state(Phase.BOOSTING, cycle(), inhibition=inhibition) for inhibition in ENDING),
        state(Phase.FAULTED, fault=Fault(FaultKind.INCONSISTENT, "x")),
    ],
)
def test_nothing_is_quiesced_while_the_machine_ends_or_the_agent_is_faulted(before: AgentState) -> None:
    after, answer = asked(before, Request(RequestKind.QUIESCE, seconds=60), seen(), POLICY)
    assert not answer.accepted
    assert after == before


@pytest.mark.parametrize(("seconds", "until"), [(5.0, SNAPSHOT.until), (1e6, NOW + 1e6)])
def test_a_second_quiesce_never_shortens_the_first(seconds: float, until: float) -> None:
    before = state(Phase.IDLE, inhibition=SNAPSHOT)
    after, answer = asked(before, Request(RequestKind.QUIESCE, seconds=seconds), seen(), POLICY)
    assert answer.accepted
    assert after.inhibition == Inhibition(InhibitionReason.SNAPSHOT, until)


@pytest.mark.parametrize("asked", [(), (Request(RequestKind.BOOST),)])
def test_neither_the_load_nor_an_operator_reverses_an_inhibited_flush(asked: tuple[Request, ...]) -> None:
    under_load = seen(host(cached(flush_full_speed=True)), sample=busy_sample(), requests=asked)
    free = state(Phase.FLUSHING, cycle(), load=HIGH)
    assert decide(free, under_load, POLICY).state.phase is Phase.BOOSTING
    assert decide(replace(free, inhibition=SNAPSHOT), under_load, POLICY).state.phase is Phase.FLUSHING
