"""What the log says of whole boosts, faults and orders on the simulated machine, and that the journal says the same."""

from __future__ import annotations

import pytest

from elastio.agent.log_events import EventKind, Priority
from elastio.agent.narration import KINDS, Moment, narrate
from elastio.core.detection import Event
from elastio.core.machine import decide
from elastio.core.model import RequestKind
from elastio.core.policy import Policy
from elastio.core.state import AgentState, Course, Decision, Observation, Phase, Transition
from elastio.errors import InvariantError, JournalError
from elastio.strategy.spending import Caps
from elastio_sim.workload import Segment
from tests.simulated import BURST, POLICY, QUIET, STEADY, in_phase, machine
from tests.values import BOOSTED, NOW, UNBOUGHT, VOLUME_ID, WALL, cycle, faulted, host, present, seen

from .event_logs import Told, assert_the_same, kinds, read

WHOLE = [
    "boost-wanted",
    "volume-created",
    "volume-attached",
    "cache-attached",
    "flush-begun",
    "flush-over",
    "volume-detached",
    "volume-deleted",
    "boost-over",
]


@pytest.fixture
def told() -> Told:
    return Told()


def test_a_boost_for_a_load_tells_each_step_once_and_one_summary(told: Told) -> None:
    sim = machine(reporter=told)
    in_phase(sim, Phase.BOOSTING)
    sim.run_until_settled()
    assert kinds(told.events) == ["decided", *WHOLE]
    (over,) = told.of(EventKind.BOOST_OVER)
    (created,) = told.of(EventKind.VOLUME_CREATED)
    assert (over.gib, over.mb_s, over.currency, over.trigger, over.asked_by) == (2.0, 80.0, "USD", "load", "agent")
    assert over.volume == created.volume is not None
    assert present(over.price_per_hour) > 0
    hours = max(60.0, present(over.billed_s)) / 3600
    assert over.cost == pytest.approx(present(over.price_per_hour) * hours, abs=1e-6)
    assert {e.cycle for e in told.events[1:]} == {over.cycle}


def test_every_event_of_the_table_is_told() -> None:
    """By its kind; those without one by what the cycle shows, beside another, or by the phase that follows."""
    elsewhere = {Event.RELEASED, Event.CACHE_ATTACHED, Event.BOOST_CAPPED, Event.CAP_REACHED, Event.ENDANGERED}
    assert set(Event) - set(KINDS) == elsewhere


def test_the_journal_tells_the_same_afterwards(told: Told) -> None:
    sim = machine((*BURST[:-1], Segment(60, 0), *BURST[1:-1], QUIET), reporter=told)
    in_phase(sim, Phase.BOOSTING)
    sim.ask(RequestKind.FLUSH, asked_by=1000)
    sim.run_until_settled()
    sim.run_for(120)
    assert kinds(told.events).count("boost-over") == 2
    assert_the_same(told.events, read(sim))


def test_a_boost_that_somebody_asked_for_names_who_in_every_record(told: Told) -> None:
    sim = machine((QUIET,), reporter=told)
    sim.run_for(5)
    assert sim.ask(RequestKind.BOOST, asked_by=1000).accepted
    sim.run_until_settled()
    assert kinds(told.events) == ["decided", "order", *WHOLE]
    assert {e.asked_by for e in told.events[1:]} == {"1000"}
    assert told.of(EventKind.ORDER)[0].order == "boost"


def test_an_order_that_is_refused_is_not_told(told: Told) -> None:
    sim = machine((QUIET,), reporter=told)
    sim.run_for(5)
    assert not sim.ask(RequestKind.UNQUIESCE, asked_by=1000).accepted
    assert told.of(EventKind.ORDER) == []


def test_a_restart_tells_nothing_twice_and_misses_nothing(told: Told) -> None:
    sim = machine(reporter=told)
    for phase in (Phase.ATTACHING, Phase.BOOSTING, Phase.FLUSHING, Phase.DETACHING):
        in_phase(sim, phase)
        sim.start_agent()
    sim.run_until_settled()
    assert [kind for kind in kinds(told.events) if kind != "decided"].count("boost-over") == 1
    for step in ("volume-created", "volume-attached", "cache-attached", "volume-deleted"):
        assert kinds(told.events).count(step) == 1, step


def test_a_cap_that_ends_a_boost_is_a_warning_beside_the_flush(told: Told) -> None:
    load = Segment(2, 0), Segment(30, 60), QUIET
    sim = machine(load, caps=Caps(max_agbs_per_day=17_000.0), reporter=told)
    in_phase(sim, Phase.FLUSHING)
    (capped,) = told.of(EventKind.BOOST_CAPPED)
    assert "caps.max_agbs_per_day" in present(capped.reason)
    assert len(told.of(EventKind.FLUSH_BEGUN)) == 1


def test_a_cap_that_forbids_a_boost_is_a_warning(told: Told) -> None:
    sim = machine(STEADY, caps=Caps(max_boosts_per_day=0), reporter=told)
    sim.run_for(30)
    (capped,) = told.of(EventKind.BOOST_CAPPED)
    assert (capped.volume, capped.kind.priority) == (None, Priority.WARNING)


def test_a_boost_that_lost_the_race_for_a_shared_cap_is_capped_and_is_not_said_to_end() -> None:
    lost = Transition(Event.BOOST_CAPPED, Phase.ATTACHING, Phase.IDLE, "no room", is_capped=True)
    course = Course((lost,), ended=UNBOUGHT)
    (event,) = narrate(UNBOUGHT, None, Phase.IDLE, lost.reason, course, Moment(NOW, WALL, "device"))
    assert (event.kind, event.message, event.volume) == (EventKind.BOOST_CAPPED, lost.reason, None)


def test_a_purchase_that_is_refused_is_told_without_a_bill(told: Told) -> None:
    sim = machine(faults="create#1x1=quota", reporter=told)
    sim.run_for(20)
    assert kinds(told.events)[:4] == ["decided", "boost-wanted", "error", "boost-refused"]
    assert told.of(EventKind.BOOST_OVER) == []


def test_a_fault_is_an_error_and_its_end_is_told(told: Told) -> None:
    sim = machine(STEADY, "attach#2x3=throttle", reporter=told)
    in_phase(sim, Phase.BOOSTING)
    sim.run_for(5)
    sim.world.vanish()
    in_phase(sim, Phase.FAULTED)
    (fault,) = told.of(EventKind.FAULT)
    assert (fault.kind.priority, fault.phase) == (Priority.ERR, "faulted")
    assert fault.volume is not None
    sim.run_until(lambda: sim.phase is not Phase.FAULTED, 300)
    assert len(told.of(EventKind.RECOVERED)) == 1
    assert_the_same(
        told.of(EventKind.FAULT, EventKind.RECOVERED),
        [e for e in read(sim) if e.kind in (EventKind.FAULT, EventKind.RECOVERED)],
    )


def test_a_start_into_a_fault_tells_it_again(told: Told) -> None:
    sim = machine(STEADY, "attach#2+=throttle", reporter=told)
    in_phase(sim, Phase.BOOSTING)
    sim.run_for(5)
    sim.world.vanish()
    in_phase(sim, Phase.FAULTED)
    sim.start_agent()
    sim.run_for(10)
    assert len(told.of(EventKind.FAULT)) == 2


def test_a_fault_that_becomes_another_is_told_once_more(told: Told) -> None:
    before, view = faulted(cycle(times=BOOSTED)), seen(host(None))
    decision = decide(before, view, POLICY)
    told.decided(before, decision, now=NOW, wall=WALL)
    (fault,) = told.of(EventKind.FAULT)
    assert (fault.reason, fault.volume) == (present(decision.state.fault).text, VOLUME_ID)
    again = decide(decision.state, view, POLICY)
    assert (again.reason, again.course.transitions) == ("", ())


def test_a_broken_rule_is_a_fault(told: Told) -> None:
    sim = machine((QUIET,), reporter=told)
    sim.run_for(5)

    def broken(state: AgentState, obs: Observation, policy: Policy) -> Decision:
        raise InvariantError("a rule")

    present(sim.agent).decide = broken
    sim.step()
    assert kinds(told.of(EventKind.FAULT)) == ["fault"]


def test_what_cannot_be_recorded_is_told_all_the_same(told: Told) -> None:
    def full(point: str) -> None:
        if point.startswith("before decision"):
            raise JournalError("cannot write the journal: the disk is full", code="ENOSPC")

    sim = machine(STEADY, point=full, reporter=told)
    in_phase(sim, Phase.BOOSTING)
    assert {"error", "boost-wanted", "volume-created", "cache-attached"} <= set(kinds(told.events))


# --- errors --------------------------------------------------------------------------------------------------


def test_an_error_ends_when_the_same_action_works(told: Told) -> None:
    sim = machine(STEADY, "attach#1x1=throttle", reporter=told)
    sim.run_until(lambda: present(sim.agent).last_error != "", 60)
    in_phase(sim, Phase.BOOSTING)
    assert present(sim.agent).last_error == ""
    assert kinds(told.of(EventKind.ERROR, EventKind.ERROR_OVER)) == ["error", "error-over"]
    assert_the_same(
        told.of(EventKind.ERROR, EventKind.ERROR_OVER),
        [e for e in read(sim) if e.kind in (EventKind.ERROR, EventKind.ERROR_OVER)],
    )


def test_a_boost_that_failed_is_an_error_until_one_succeeds(told: Told) -> None:
    sim = machine((Segment(2, 0), Segment(200, 60), QUIET), "create#1x1=quota", reporter=told)
    sim.run_until(lambda: EventKind.BOOST_REFUSED in {e.kind for e in told.events}, 60)
    sim.run_for(20)
    assert present(sim.agent).last_error
    in_phase(sim, Phase.BOOSTING)
    assert present(sim.agent).last_error == ""


def test_a_flush_that_waits_for_its_instant_is_no_error(told: Told) -> None:
    sim = machine(STEADY, reporter=told)
    in_phase(sim, Phase.BOOSTING)
    sim.run_for(5)
    sim.ask(RequestKind.PAUSE)
    sim.run_until_settled()
    failed = [r for r in sim.journal.records() if r["kind"] == "outcome" and r["code"] == "device.not_drained"]
    assert failed, "the simulator lets no flush end at once"
    assert told.of(EventKind.ERROR) == []
    assert present(sim.agent).last_error == ""
