"""Orders that the journal could not record: the operator was told so, and no later start may find them there."""

from __future__ import annotations

from typing import Any

import pytest

from elastio.core.model import RequestKind
from elastio.core.state import Phase
from elastio_sim.faults import FaultMode, FaultPlan, ScheduledFault
from elastio_sim.run import Simulation
from tests.scenario.test_missing_cache import dirty_and_quiet
from tests.simulated import QUIET, in_phase, intents, machine
from tests.values import present

JOURNAL = ("journal",)


def without_its_cache() -> Simulation:
    """Faulted: the disk of a dirty cache has disappeared, and the cloud cannot attach it again for now."""
    sim = dirty_and_quiet()
    sim.world.faults.arm(FaultMode.STUCK, ["attach"], seconds=1e6)
    sim.world.vanish()
    in_phase(sim, Phase.FAULTED)
    sim.power_cut()
    sim.run_for(60)
    assert (sim.phase, sim.world.kernel.bcache.running) == (Phase.FAULTED, False)
    return sim


@pytest.mark.parametrize("kind", [FaultMode.NO_SPACE, FaultMode.UNSYNCED])
def test_a_loss_whose_acceptance_was_refused_is_not_accepted_by_the_next_start(kind: FaultMode) -> None:
    sim = without_its_cache()
    sim.world.faults.arm(kind, JOURNAL)
    volume = present(sim.state.cycle).volume_id
    answer = sim.ask(RequestKind.RECOVER, accepts_loss=True, volume_id=volume)
    assert (answer.accepted, answer.code) == (False, "journal.unwritable")
    sim.start_agent()
    sim.run_for(60)
    assert (intents(sim, "StartWithoutCache"), list(sim.world.lost())) == (0, [])
    assert sim.ask(RequestKind.RECOVER, accepts_loss=True, volume_id=volume).accepted


@pytest.mark.parametrize(
    ("kind", "with_", "is_paused"),
    [(RequestKind.PAUSE, {}, False), (RequestKind.RESUME, {}, True), (RequestKind.EXPECT, {"seconds": 300.0}, False)],
)
def test_what_was_refused_is_as_it_was_after_a_restart(
    kind: RequestKind, with_: dict[str, Any], is_paused: bool
) -> None:
    sim = machine((QUIET,))
    sim.run_for(5)
    if is_paused:
        assert sim.ask(RequestKind.PAUSE).accepted
    sim.world.faults.arm(FaultMode.UNSYNCED, JOURNAL)
    assert sim.ask(kind, **with_).code == "journal.unwritable"
    sim.start_agent()
    sim.run_for(5)
    assert (sim.state.paused, sim.state.memory.expected) == (is_paused, ())


def test_where_it_cannot_be_taken_back_either_the_answer_says_so_and_it_is_taken_back_later() -> None:
    sim = machine((QUIET,))
    sim.run_for(5)
    sim.world.faults.begin(FaultPlan.parse("journal#1x2=unsynced"))
    assert sim.ask(RequestKind.PAUSE).code == "journal.uncertain"
    assert sim.state.paused is False
    sim.run_for(5)
    sim.start_agent()
    assert sim.state.paused is False


def test_what_happened_while_nothing_could_be_recorded_is_recorded_as_soon_as_that_is_possible() -> None:
    sim = machine((QUIET,))
    sim.run_for(5)
    assert sim.ask(RequestKind.PAUSE).accepted
    sim.happen(ScheduledFault("0", FaultMode.DISK_FULL, 30.0))
    assert sim.ask(RequestKind.RESUME).code == "journal.unwritable"
    lines = len(sim.lines)
    sim.run_for(40)
    assert len(sim.lines) == lines + 1, "once, and not again"


def test_a_disk_that_fails_is_not_tried_in_each_decision() -> None:
    """Each try is a whole record, which would push the others out of the file: one in ten seconds."""
    sim = machine((QUIET,))
    sim.run_for(5)
    sim.world.faults.begin(FaultPlan.parse("journal#1+=unsynced"))
    assert sim.ask(RequestKind.PAUSE).code == "journal.uncertain"
    lines = len(sim.lines)
    sim.run_for(100)
    assert 9 <= len(sim.lines) - lines <= 11
