"""A decision that would have broken a safety rule: nothing but an operator's `resume` ends it."""

from __future__ import annotations

import pytest

from elastio.agent.status_builder import RuntimeInfo, status_of
from elastio.core.machine import decide
from elastio.core.model import RequestKind
from elastio.core.state import Decision, Fault, FaultKind, Phase
from elastio.errors import InvariantError
from elastio_sim.run import Simulation
from tests.simulated import BURST, assert_at_rest, in_phase, machine
from tests.values import FORMATTED, POLICY, asked, boosted, cached, host, present, seen, state


def break_rule(sim: Simulation) -> None:
    def broken(*_: object) -> Decision:
        raise InvariantError("this must never happen")

    present(sim.agent).decide = broken
    sim.step()


@pytest.mark.parametrize("ends", ["killed", "power cut", "killed twice"])
@pytest.mark.parametrize("phase", [Phase.BOOSTING, Phase.FLUSHING, Phase.DETACHING])
def test_a_broken_rule_is_not_forgotten_by_a_start(phase: Phase, ends: str) -> None:
    sim = machine()
    in_phase(sim, phase)
    break_rule(sim)
    for _ in range(2 if ends == "killed twice" else 1):
        sim.power_cut() if ends == "power cut" else sim.start_agent()
        sim.run_for(60)
    assert (sim.phase, sim.state.is_stopped, sim.world.volumes_left()) == (Phase.FAULTED, True, 1)
    for kind in (RequestKind.BOOST, RequestKind.FLUSH, RequestKind.RECOVER):
        assert sim.ask(kind, accepts_loss=kind is RequestKind.RECOVER).code == "agent.faulted"
    assert status_of(sim.state, present(sim.agent).snapshot(), sim.policy, RuntimeInfo("0.1.0", 0.0)).recovered
    assert sim.ask(RequestKind.RESUME).accepted
    sim.start_agent()
    assert_at_rest(sim)


def test_a_broken_rule_that_could_not_be_recorded_is_recorded_later() -> None:
    sim = machine(BURST, "@dirty=disk_full:20")
    sim.run_until(lambda: bool(sim.world.happened), 60)
    break_rule(sim)
    present(sim.agent).decide = decide
    sim.run_for(30)
    sim.start_agent()
    sim.run_for(30)
    assert (sim.phase, sim.state.is_stopped, sim.world.volumes_left()) == (Phase.FAULTED, True, 1)


def test_a_broken_rule_before_the_first_scan_ends_with_resume_alone() -> None:
    fault = Fault(FaultKind.RULE_BROKEN, "a rule")
    before = state(Phase.FAULTED, boosted(), recovered=False, fault=fault)
    view = host(cached(), FORMATTED)
    assert decide(before, seen(view), POLICY).state.is_stopped
    assert decide(before, seen(None, requests=asked(RequestKind.RESUME)), POLICY).state.is_stopped
    resumed = decide(before, seen(view, requests=asked(RequestKind.RESUME)), POLICY)
    assert (resumed.state.phase, resumed.state.fault, resumed.answers[0].accepted) == (Phase.BOOSTING, None, True)
