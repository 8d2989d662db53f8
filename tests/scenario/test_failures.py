"""The whole agent on a simulated machine when things fail: the cloud, the kernel, its own files and clocks."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import pytest

from elastio.core.cycle import FailureKind
from elastio.core.model import RequestKind, VolumeState
from elastio.core.state import FaultKind, Phase
from elastio.errors import JournalError
from elastio.units import GIB
from elastio_sim.faults import FaultMode, ScheduledFault
from elastio_sim.records import MemoryRecorder
from elastio_sim.run import Simulation
from elastio_sim.workload import Segment
from tests.simulated import QUIET, STEADY, assert_at_rest, bought, failures, in_phase, intents, machine, path
from tests.values import present

# --- a cloud that fails ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["quota", "expired"])
def test_a_purchase_that_is_refused_ends_in_idle_and_is_not_repeated_at_once(kind: str) -> None:
    sim = machine(STEADY, f"create#1+={kind}")
    sim.run_for(50)
    assert path(sim) == ["idle", "attaching", "idle"]
    assert intents(sim, "CreateVolume") == 1
    sim.run_for(1800)
    assert 2 <= intents(sim, "CreateVolume") <= 8, "each refusal waits longer than the one before"
    assert bought(sim) == []


def test_resume_tries_at_once_what_was_refused_before() -> None:
    sim = machine(STEADY, "create#1x2=quota")
    sim.run_until(lambda: sim.state.failures == 2, 200)
    assert sim.state.cool_until > sim.world.clock.now() + 60
    sim.ask(RequestKind.RESUME)
    sim.run_for(5)
    assert intents(sim, "CreateVolume") == 3
    in_phase(sim, Phase.BOOSTING)


def test_a_boost_that_succeeds_forgets_earlier_failures() -> None:
    sim = machine(STEADY, "create#1=quota")
    in_phase(sim, Phase.BOOSTING)
    assert sim.state.failures == 0


def test_caches_that_cannot_be_used_are_bought_ever_more_seldom() -> None:
    sim = machine(STEADY, "attach#1+=wrong_size")
    sim.run_for(3600)
    assert 2 <= len(bought(sim)) <= 9
    assert sim.world.volumes_left() <= 1


@pytest.mark.parametrize("boots_in_the_past", [False, True])
def test_a_stuck_attach_is_given_up_at_the_deadline_and_the_volume_released(*, boots_in_the_past: bool) -> None:
    sim = machine(STEADY, "attach#1=stuck:5000", attach_timeout_s=60)
    in_phase(sim, Phase.ATTACHING)
    sim.run_for(10)
    if boots_in_the_past:
        sim.world.clock.jump_wall(-1e9)
        sim.power_cut()
    in_phase(sim, Phase.DETACHING, 75)
    assert failures(sim) == {FailureKind.TIMED_OUT}
    in_phase(sim, Phase.IDLE)
    assert sim.world.volumes_left() == 0


def test_a_volume_that_ends_in_error_is_deleted() -> None:
    sim = machine((Segment(2, 0), Segment(20, 60), QUIET), "create#1=volume_error")
    sim.run_for(22)
    assert_at_rest(sim)
    assert failures(sim) == {FailureKind.LOST}


def test_a_volume_that_fails_while_it_is_attached_is_released() -> None:
    sim = machine(STEADY, "release_cache_disk#1x3=busy")
    in_phase(sim, Phase.BOOSTING)
    sim.ask(RequestKind.FLUSH)
    in_phase(sim, Phase.DETACHING)
    for volume in sim.world.provider.existing():
        volume.state = VolumeState.ERROR
        volume.changes += 1
    sim.run_until(lambda: intents(sim, "ReleaseCacheDisk") > 1, 60)
    assert sim.phase is Phase.DETACHING
    assert not sim.world.lost()


def test_a_volume_that_the_cloud_does_not_know_any_more_is_released_when_it_does_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its disk is there: the agent got the credentials of another project, and nobody else would delete the volume."""
    sim = machine((Segment(2, 0), Segment(100, 60), QUIET))
    in_phase(sim, Phase.BOOSTING)
    with monkeypatch.context() as other:
        other.setattr(sim.world.provider, "describe", lambda _: None)
        other.setattr(sim.world.provider, "list_owned", lambda: ())
        other.setattr(sim.world.provider, "tag", lambda *_: None)
        sim.run_for(3000)
        assert (sim.phase, sim.world.volumes_left()) == (Phase.DETACHING, 1)
    sim.run_for(120)
    assert_at_rest(sim)


@pytest.mark.parametrize("fault", ["lose_reply", "late_success:5", "late_success:30", "hang"])
def test_a_purchase_without_an_answer_leaves_exactly_one_volume(fault: str) -> None:
    sim = machine((Segment(2, 0), Segment(100, 60), QUIET), f"create#1={fault}")
    sim.on_step = lambda: check_one(sim)
    in_phase(sim, Phase.BOOSTING)
    assert len(bought(sim)) == 1
    sim.run_for(60)
    assert_at_rest(sim)


@pytest.mark.parametrize("fault", ["late_success:5", "late_success:50", "lose_reply", "hang"])
def test_a_boost_that_is_withdrawn_while_it_is_bought_leaves_nothing(fault: str) -> None:
    sim = machine((Segment(2, 0), Segment(2, 60), Segment(30, 0), Segment(60, 60), QUIET), f"create#1={fault}")
    sim.on_step = lambda: check_one(sim)
    sim.run_for(100)
    assert_at_rest(sim)


def check_one(sim: Simulation) -> None:
    assert sim.world.volumes_left() <= 1, sim.standing()


def test_while_the_cloud_is_down_at_the_start_no_boost_begins() -> None:
    sim = machine(STEADY, "list_owned#1x8=throttle")
    sim.run_for(8)
    assert not sim.ask(RequestKind.BOOST).accepted
    assert (sim.state.owned, bool(sim.state.waiting_for)) == (None, True)
    assert intents(sim, "CreateVolume") == 0
    in_phase(sim, Phase.BOOSTING)


def test_a_hanging_cloud_delays_no_sample() -> None:
    sim = machine(STEADY, "create#1=hang")
    seen: list[float] = []
    sim.on_step = lambda: seen.append(sim.world.clock.elapsed()) if is_new(sim, seen) else None
    sim.run_for(50)
    assert sim.phase is Phase.ATTACHING
    assert len(seen) >= 48


def is_new(sim: Simulation, seen: list[float]) -> bool:
    sample = sim.agent.last_sample if sim.agent else None
    return sample is not None and (not seen or sample.at - 1000.0 > seen[-1])


def test_a_cloud_that_is_down_for_hours_is_asked_ever_more_seldom() -> None:
    points: Counter[str] = Counter()
    sim = machine((QUIET,), "list_owned#1+=throttle", point=lambda name: points.update([name]))
    sim.run_for(4 * 3600)
    assert 200 <= points["before ListVolumes"] <= 300
    assert (sim.state.owned, bool(sim.state.waiting_for)) == (None, True)


@pytest.mark.parametrize(("after_s", "phase"), [(None, Phase.DETACHING), (10.0, Phase.IDLE)])
def test_a_detach_without_an_instant_of_rest_starves_until_it_is_helped(after_s: float | None, phase: Phase) -> None:
    sim = machine(detach_throttle_after_s=after_s)
    in_phase(sim, Phase.BOOSTING)
    sim.world.kernel.always_busy = True
    in_phase(sim, Phase.DETACHING)
    sim.run_for(120)
    is_left = phase is Phase.DETACHING
    assert (sim.phase, sim.world.volumes_left(), intents(sim, "HelpDetach")) == (phase, is_left, not is_left)
    sim.world.kernel.always_busy = False
    assert_at_rest(sim)


# --- volumes that nobody remembers -----------------------------------------------------------------------------


def test_a_volume_in_use_is_taken_up_again_when_the_journal_is_lost() -> None:
    sim = machine(STEADY)
    in_phase(sim, Phase.BOOSTING)
    sim.run_for(5)
    sim.lines.clear()
    sim.start_agent()
    sim.run_until(lambda: sim.state.recovered, 30)
    assert sim.phase is Phase.BOOSTING
    assert present(sim.state.cycle).trigger == "orphan"
    sim.ask(RequestKind.PAUSE)
    assert_at_rest(sim)


def test_a_volume_of_somebody_else_is_never_touched() -> None:
    sim = machine()
    foreign = sim.world.provider.add_foreign_volume()
    sim.run_for(20)
    assert_at_rest(sim)
    sim.run_for(1300)
    assert sim.world.provider.volumes[foreign].deleted_at is None
    assert sim.world.provider.volumes[foreign].state is VolumeState.AVAILABLE


# --- a cache that is missing -----------------------------------------------------------------------------------


def dirty_cache_vanishes(faults: str) -> Simulation:
    sim = machine(STEADY, faults)
    in_phase(sim, Phase.BOOSTING)
    sim.run_for(5)
    sim.world.vanish()
    in_phase(sim, Phase.FAULTED)
    return sim


def test_a_dirty_cache_that_disappears_is_kept_and_said_to_be_missing() -> None:
    sim = dirty_cache_vanishes("attach#2+=throttle")
    sim.run_for(600)
    assert sim.phase is Phase.FAULTED
    assert sim.world.volumes_left() == 1
    assert not sim.world.lost()
    assert present(sim.state.fault).kind is FaultKind.CACHE_MISSING
    assert not sim.ask(RequestKind.FLUSH).accepted
    assert not sim.ask(RequestKind.BOOST).accepted
    assert not sim.ask(RequestKind.RESUME).accepted
    assert 2 < intents(sim, "AttachVolume") <= 25, "asking again and again helps nobody"
    for action in ("DetachVolume", "DeleteVolume", "ReleaseCacheDisk"):
        assert intents(sim, action) == 0


def test_a_power_cut_while_the_cache_is_missing_does_not_keep_it_away() -> None:
    sim = dirty_cache_vanishes("attach#2x3=throttle")
    sim.power_cut()
    sim.run_until(lambda: sim.phase in (Phase.BOOSTING, Phase.FLUSHING), 300)
    sim.ask(RequestKind.PAUSE)
    assert_at_rest(sim)


def test_a_missing_cache_that_nobody_remembers_is_taken_up_when_it_is_back() -> None:
    sim = dirty_cache_vanishes("nothing")
    sim.lines.clear()
    sim.power_cut()
    in_phase(sim, Phase.FAULTED)
    sim.run_for(5)
    assert sim.state.cycle is None
    for volume in sim.world.provider.existing():
        sim.world.provider.attach(volume.id)
    sim.run_until(lambda: sim.phase in (Phase.BOOSTING, Phase.FLUSHING), 300)
    sim.ask(RequestKind.PAUSE)
    assert_at_rest(sim)


# --- the agent's own files and clocks --------------------------------------------------------------------------


@dataclass
class FullDisk:
    """No record of this kind can be written while the disk is full."""

    kind: str
    is_full: bool = True

    def __call__(self, point: str) -> None:
        if self.is_full and point.startswith(f"before {self.kind}"):
            raise JournalError("cannot write the journal: the disk is full", code="ENOSPC")


def test_without_a_journal_no_effect_starts() -> None:
    disk = FullDisk("intent")
    sim = machine(STEADY, point=disk)
    sim.run_for(60)
    assert bought(sim) == []
    assert not sim.world.kernel.bcache.tuned
    assert present(sim.agent).last_error
    disk.is_full = False
    in_phase(sim, Phase.BOOSTING)


def test_a_cycle_is_recorded_even_if_its_decision_is_not_in_the_journal() -> None:
    sim = machine(STEADY, point=FullDisk("decision"))
    in_phase(sim, Phase.ATTACHING)
    assert isinstance(sim.recorder, MemoryRecorder)
    assert list(sim.recorder.rows) == [sim.state.cycle.token if sim.state.cycle else ""]


@pytest.mark.parametrize("kind", [RequestKind.PAUSE, RequestKind.QUIESCE, RequestKind.EXPECT])
def test_what_has_to_last_is_refused_while_it_cannot_be_written_down(kind: RequestKind) -> None:
    disk = FullDisk("decision")
    sim = machine((QUIET,), point=disk)
    sim.run_until(lambda: sim.state.recovered, 30)
    assert not sim.ask(kind, seconds=600.0).accepted
    assert not sim.state.paused
    assert sim.state.inhibition is None
    assert sim.state.memory.expected == ()
    disk.is_full = False
    assert sim.ask(kind, seconds=600.0).accepted
    sim.start_agent()
    sim.run_until(lambda: sim.state.recovered, 30)
    assert sim.state.paused == (kind is RequestKind.PAUSE)
    assert (sim.state.inhibition is not None) == (kind is RequestKind.QUIESCE)
    assert bool(sim.state.memory.expected) == (kind is RequestKind.EXPECT)


def test_a_request_that_need_not_last_is_carried_out_beside_one_that_is_refused() -> None:
    sim = machine((QUIET,), point=FullDisk("decision"))
    sim.run_until(lambda: sim.state.recovered and sim.state.owned is not None, 30)
    answers = [sim.request(RequestKind.LEARN, GIB), sim.request(RequestKind.PAUSE), sim.request(RequestKind.FLUSH)]
    sim.run_until(lambda: all(answers), 30)
    learn, pause, flush = (one[0] for one in answers)
    assert (learn.request.kind, pause.request.kind, flush.request.kind) == ("learn", "pause", "flush")
    assert (learn.accepted, pause.accepted, flush.accepted) == (True, False, True)
    assert sim.state.memory.learned_size_bytes == GIB
    assert not sim.state.paused


def test_a_settings_call_that_always_fails_keeps_no_volume() -> None:
    sim = machine(STEADY, "tune_backing#2+=refuse")
    in_phase(sim, Phase.BOOSTING)
    sim.run_for(5)
    sim.power_cut()
    sim.run_for(5)
    sim.ask(RequestKind.PAUSE)
    assert_at_rest(sim)


def test_the_cloud_is_asked_once_more_after_a_release_whether_anything_is_left() -> None:
    points: Counter[str] = Counter()
    sim = machine(point=lambda name: points.update([name]))
    in_phase(sim, Phase.DETACHING)
    before = points["before ListVolumes"]
    in_phase(sim, Phase.IDLE)
    sim.run_for(10)
    assert points["before ListVolumes"] == before + 1


@pytest.mark.parametrize(("load_s", "purchases"), [(40.0, 0), (300.0, 1)])
def test_an_agent_that_was_stopped_buys_for_a_load_only_if_it_is_still_there(load_s: float, purchases: int) -> None:
    sim = machine((Segment(2, 0), Segment(load_s, 60), QUIET))
    sim.run_for(1.5)
    sim.world.happen(ScheduledFault("0", FaultMode.STOP, 90.0))
    sim.run_for(120)
    assert len(bought(sim)) == purchases
