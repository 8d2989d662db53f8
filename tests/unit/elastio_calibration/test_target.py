"""Measuring on the simulator: results, and the state of agent and record after a failed or interrupted run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from elastio.accounting.rows import CycleRow
from elastio.units import GB, GIB
from elastio_adviser.checkpointing import Checkpointing, Profile
from elastio_calibration.errors import CalibrationError
from elastio_calibration.measurement import Setup
from elastio_calibration.record import RecordFile, SavedState, read
from elastio_calibration.schedule import Point, Preset, Schedule, schedule
from elastio_calibration.simulated import SimulatedTarget, machine
from elastio_calibration.target import LedgerPosition, calibrate, measure, notes_of
from elastio_sim.workload import Workload
from tests.fixtures.errors import refused

LIMIT_S = 3600.0


MACHINE = machine(20.0, 80.0, 10 * GB, 4 * GIB, 4.0)


@pytest.fixture
def target() -> SimulatedTarget:
    return SimulatedTarget(MACHINE)


def test_measures_a_dataset_with_the_cache_that_was_asked_for(target: SimulatedTarget) -> None:
    made = measure(target, Point(GB, 2 * GIB), LIMIT_S)
    assert made.cache_bytes == 2 * GIB
    assert 20 < made.throughput_mb_s < 80
    assert made.held_s > made.attached_s > GB / 1e6 / 80
    assert 0 < made.boost_s < made.seconds
    assert made.learned_bytes == target.agent().learned_bytes


def test_a_cache_that_is_too_small_is_slower(target: SimulatedTarget) -> None:
    small, large = (measure(target, Point(2 * GB, size), LIMIT_S) for size in (GIB, 4 * GIB))
    assert small.throughput_mb_s < 0.8 * large.throughput_mb_s
    assert small.written_through_bytes > 0 == large.written_through_bytes


def test_refuses_a_dataset_that_is_written_before_its_cache_is_attached(target: SimulatedTarget) -> None:
    with refused(CalibrationError, "dataset.too_small"):
        measure(target, Point(20 * 10**6, GIB), LIMIT_S)


@pytest.mark.parametrize("learned_bytes", [3 * GIB, None])
@pytest.mark.parametrize("is_paused", [True, False])
def test_restores_the_learned_size_and_the_pause(
    learned_bytes: int | None, is_paused: bool, target: SimulatedTarget, tmp_path: Path
) -> None:
    if learned_bytes is not None:
        target.learn(learned_bytes)
    if is_paused:
        target.set_paused(True)
    file = RecordFile(tmp_path / "r")
    calibrate(target, schedule(Preset((1,), (2 * GIB / GB,), 1)), file, lambda _: None)
    # An agent that had learned nothing buys its initial size again.
    assert target.agent() == SavedState(learned_bytes or 4 * GIB, is_paused)
    assert [m.setup for m in read(file.path).measurements()] == [Setup.ADAPTIVE, Setup.STATIC_SLOW]


def test_refuses_sizes_that_the_agent_would_not_buy(target: SimulatedTarget) -> None:
    with pytest.raises(CalibrationError):
        target.check([Point(GB, GB // 2)])
    target.check([Point(GB, 2 * GB)])


class Failed(SimulatedTarget):
    """A target whose boosts fail."""

    def boosts_since(self, position: LedgerPosition) -> tuple[CycleRow, ...]:
        return tuple(replace(boost, failure="no capacity") for boost in super().boosts_since(position))


def test_refuses_the_time_of_a_failed_boost() -> None:
    with refused(CalibrationError, "boost.failed"):
        measure(Failed(MACHINE), Point(GB, 2 * GIB), LIMIT_S)


class Broken(SimulatedTarget):
    """A target without a boost from the call `fail_at` on."""

    asked, fail_at = 0, 2

    def boosts_since(self, position: LedgerPosition) -> tuple[CycleRow, ...]:
        self.asked += 1
        return () if self.asked >= self.fail_at else super().boosts_since(position)


def test_a_point_that_fails_twice_ends_the_run_and_keeps_the_others(tmp_path: Path) -> None:
    target = Broken(MACHINE)
    target.learn(3 * GIB)
    plan, file = schedule(Preset((1,), (2 * GIB / GB, 4 * GIB / GB), 1), static=False), RecordFile(tmp_path / "r")
    with pytest.raises(CalibrationError):
        calibrate(target, plan, file, lambda _: None)
    record = read(file.path)
    assert [e.measurement is not None for e in record.entries] == [True, False, False]
    assert target.agent().learned_bytes == 3 * GIB
    target.fail_at = 1000
    calibrate(target, plan, file, lambda _: None)
    assert len(read(file.path).measurements()) == 2


class Stopped(SimulatedTarget):
    """A target that is interrupted while it writes; afterwards the methods in `fails` raise."""

    fails: tuple[str, ...] = ()
    writes = 0

    def _fail(self, name: str) -> None:
        if self.writes and name in self.fails:
            raise CalibrationError("that does not work")

    def learn(self, size_bytes: int | None) -> None:
        self._fail("learn")
        super().learn(size_bytes)

    def wait_idle(self, limit_s: float) -> None:
        self._fail("rest")
        super().wait_idle(limit_s)

    def clean(self) -> None:
        self._fail("clean")
        super().clean()

    def write(self, point: Point) -> float:
        self.writes += 1
        self.world.workload = endless()
        self.simulation.run_for(20)
        raise KeyboardInterrupt


ADAPTIVE = schedule(Preset((1,), (2 * GIB / GB,), 1), static=False)
STATIC = Schedule((Point(GB),), 1)


def test_an_interrupted_run_restores_the_learned_size(tmp_path: Path) -> None:
    target = Stopped(MACHINE)
    target.learn(3 * GIB)
    with pytest.raises(KeyboardInterrupt):
        calibrate(target, ADAPTIVE, RecordFile(tmp_path / "r"), lambda _: None)
    assert target.simulation.state.cycle is not None
    target.wait_idle(LIMIT_S)
    assert [c.provisioned.size_bytes for c in target.recorder.rows.values()] == [2 * GIB]
    assert target.agent().learned_bytes == 3 * GIB


@pytest.mark.parametrize("plan", [ADAPTIVE, STATIC])
@pytest.mark.parametrize("fails", [(), ("clean",), ("rest", "clean")])
def test_nothing_is_tried_again_after_an_interruption(plan: Schedule, fails: tuple[str, ...], tmp_path: Path) -> None:
    target, file = Stopped(MACHINE), RecordFile(tmp_path / "r")
    target.learn(3 * GIB)
    target.fails = fails
    with pytest.raises(KeyboardInterrupt) as caught:
        calibrate(target, plan, file, lambda _: None)
    assert target.writes == 1
    assert target.agent() == SavedState(3 * GIB, False)
    assert read(file.path).saved is None
    assert bool(notes_of(caught.value)) == bool(fails)


def test_a_state_that_was_not_restored_is_reported_and_kept_in_the_record(tmp_path: Path) -> None:
    target, file = Stopped(MACHINE), RecordFile(tmp_path / "r")
    target.learn(3 * GIB)
    target.set_paused(True)
    target.fails = ("learn",)
    with pytest.raises(KeyboardInterrupt) as caught:
        calibrate(target, ADAPTIVE, file, lambda _: None)
    assert len(notes_of(caught.value)) == 1
    assert target.agent() == SavedState(2 * GIB, True)
    assert read(file.path).saved == SavedState(3 * GIB, True)


def test_two_runs_do_not_measure_at_once(target: SimulatedTarget, tmp_path: Path) -> None:
    file = RecordFile(tmp_path / "r")
    with file.locked(), refused(CalibrationError, "locked"):
        calibrate(target, ADAPTIVE, RecordFile(file.path), lambda _: None)
    assert file.path.read_bytes() == b""
    calibrate(target, ADAPTIVE, file, lambda _: None)
    assert len(read(file.path).measurements()) == 1


def test_the_next_run_restores_the_state_of_a_killed_one(target: SimulatedTarget, tmp_path: Path) -> None:
    file = RecordFile(tmp_path / "r")
    file.begin(target.header())
    file.keep(SavedState(3 * GIB, False))
    target.learn(2 * GIB)
    target.set_paused(True)
    calibrate(target, ADAPTIVE, file, lambda _: None)
    assert (target.agent().learned_bytes, target.agent().paused) == (3 * GIB, False)
    assert read(file.path).saved is None


def endless() -> Workload:
    return Checkpointing(Profile(0.0, 100 * GB, 1), 10 * GB)
