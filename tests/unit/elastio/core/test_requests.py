"""Requests that come in the same moment as an event: none is forgotten, and none is lost with a broken rule."""

from __future__ import annotations

import pytest

from elastio.core.machine import decide
from elastio.core.model import RequestKind
from elastio.core.observation import Answer, Decision
from elastio.core.state import FaultKind, Phase
from elastio.errors import InvariantError
from tests.simulated import BURST, machine
from tests.values import (
    FORMATTED,
    HIGH,
    POLICY,
    asked,
    at_full_speed,
    busy_sample,
    cached,
    cycle,
    host,
    present,
    seen,
    state,
)


@pytest.mark.parametrize("kind", [RequestKind.FLUSH, RequestKind.PAUSE])
def test_an_order_that_comes_with_the_end_of_an_attach_is_carried_out(kind: RequestKind) -> None:
    attached = seen(host(cached(), FORMATTED), requests=asked(kind))
    decision = decide(state(Phase.ATTACHING, cycle()), attached, POLICY)
    assert decision.answers[0].accepted
    assert decision.state.phase is Phase.FLUSHING
    assert present(decision.state.cycle).forced


def test_an_order_to_flush_outweighs_a_load_that_returns_in_the_same_moment() -> None:
    returned = seen(host(at_full_speed(), FORMATTED), sample=busy_sample(), requests=asked(RequestKind.FLUSH))
    decision = decide(state(Phase.FLUSHING, cycle(), load=HIGH), returned, POLICY)
    assert decision.state.phase is Phase.FLUSHING
    assert present(decision.state.cycle).forced


def test_two_requests_of_one_moment_are_carried_out_in_their_order() -> None:
    both = (*asked(RequestKind.PAUSE), *asked(RequestKind.RESUME))
    decision = decide(state(Phase.BOOSTING, cycle()), seen(host(cached(), FORMATTED), requests=both), POLICY)
    assert [answer.accepted for answer in decision.answers] == [True, True]
    assert (decision.state.phase, decision.state.paused) == (Phase.FLUSHING, False)


def test_a_request_is_answered_though_the_decision_was_thrown_away() -> None:
    sim = machine(BURST)
    sim.run_until(lambda: sim.phase is Phase.BOOSTING, 60)

    def broken(*_: object) -> Decision:
        raise InvariantError("this must never happen")

    present(sim.agent).decide = broken
    answers: list[Answer] = sim.request(RequestKind.FLUSH)
    sim.run_for(2)
    assert [answer.accepted for answer in answers] == [False]
    assert present(sim.state.fault).kind is FaultKind.RULE_BROKEN
