"""Measuring on the simulator itself: what a run leaves behind, however it ends."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from elastio.sim.workload import Checkpointing, Profile, Workload
from elastio.units import GB, GIB
from elastio_calibration.errors import CalibrationError
from elastio_calibration.measurement import Measurement, Setup
from elastio_calibration.record import Before, RecordFile, read
from elastio_calibration.schedule import Preset, Schedule, Wanted, schedule
from elastio_calibration.simulated import SimulatedStation
from elastio_calibration.simulated import machine as simulated_machine
from elastio_calibration.station import Boost, Mark, calibrate, measure, notes_of

LIMIT_S = 3600.0


@pytest.fixture
def station() -> SimulatedStation:
    return SimulatedStation(simulated_machine(20.0, 80.0, 10 * GB, 4 * GIB, 4.0))


def test_measures_a_dataset_with_the_cache_that_was_asked_for(station: SimulatedStation) -> None:
    made = measure(station, Wanted(GB, 2 * GIB), LIMIT_S)
    assert made.cache_bytes == 2 * GIB
    assert 20 < made.throughput_mb_s < 80
    assert made.held_s > made.attached_s > GB / 1e6 / 80
    assert 0 < made.boost_s < made.seconds
    assert made.learned_bytes == station.learned_bytes()


def test_measures_the_slow_volume_with_the_agent_paused(station: SimulatedStation) -> None:
    made = measure(station, Wanted(GB), LIMIT_S)
    assert made.setup is Setup.STATIC_SLOW
    assert made.throughput_mb_s == pytest.approx(20, rel=0.02)
    assert not station.is_paused()
    assert station.books.rows == {}


def test_a_cache_that_is_too_small_is_slower(station: SimulatedStation) -> None:
    small, large = (measure(station, Wanted(2 * GB, size), LIMIT_S) for size in (GIB, 4 * GIB))
    assert small.throughput_mb_s < 0.8 * large.throughput_mb_s
    assert small.written_through_bytes > 0 == large.written_through_bytes


def test_a_dataset_that_is_written_before_its_cache_is_there_is_refused(station: SimulatedStation) -> None:
    with pytest.raises(CalibrationError, match=r"before the cache was there .*: it is too small"):
        measure(station, Wanted(20 * 10**6, GIB), LIMIT_S)


def test_the_agent_gets_back_what_it_had_learned(station: SimulatedStation, tmp_path: Path) -> None:
    station.learn(3 * GIB)
    file = RecordFile(tmp_path / "r")
    calibrate(station, schedule(Preset((1,), (2 * GIB / GB,), 1)), file, lambda _: None)
    assert station.learned_bytes() == 3 * GIB
    assert [m.setup for m in read(file.path).measurements()] == [Setup.ADAPTIVE, Setup.STATIC_SLOW]


def test_an_agent_that_was_paused_is_paused_again(station: SimulatedStation, tmp_path: Path) -> None:
    station.pause()
    calibrate(station, schedule(Preset((1,), (2 * GIB / GB,), 1)), RecordFile(tmp_path / "r"), lambda _: None)
    assert station.is_paused()


def test_an_agent_that_had_learned_nothing_buys_its_initial_size_again(
    station: SimulatedStation, tmp_path: Path
) -> None:
    assert station.learned_bytes() is None
    calibrate(station, schedule(Preset((1,), (2 * GIB / GB,), 1)), RecordFile(tmp_path / "r"), lambda _: None)
    assert station.learned_bytes() == 4 * GIB


def test_nothing_is_left_of_a_write_that_failed_without_a_cache(station: SimulatedStation) -> None:
    broken = Unwritable(station)
    with pytest.raises(CalibrationError, match="no space left"):
        measure(broken, Wanted(GB), LIMIT_S)
    assert broken.cleaned >= 1
    assert not station.is_paused()


def test_refuses_sizes_that_the_agent_would_not_buy(station: SimulatedStation) -> None:
    with pytest.raises(CalibrationError, match=r"the configuration allows caches of 1.07 to 107 GB"):
        station.check([Wanted(GB, GB // 2)])
    station.check([Wanted(GB, 2 * GB)])


@dataclass
class Unwritable:
    """A station whose filesystem is full."""

    inner: SimulatedStation
    cleaned: int = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def write(self, wanted: Wanted) -> float:
        raise CalibrationError("no space left")

    def clean(self) -> None:
        self.cleaned += 1


@dataclass
class Broken:
    """A station whose second boost never comes; what it would measure is made up."""

    inner: SimulatedStation
    fail_at: int = 2
    asked: int = 0
    told: list[str] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def boosts_since(self, mark: Mark) -> tuple[Boost, ...]:
        self.asked += 1
        return () if self.asked >= self.fail_at else self.inner.boosts_since(mark)


def test_a_point_that_fails_twice_ends_the_run_and_keeps_the_others(station: SimulatedStation, tmp_path: Path) -> None:
    station.learn(3 * GIB)
    plan, file = schedule(Preset((1,), (2 * GIB / GB, 4 * GIB / GB), 1), static=False), RecordFile(tmp_path / "r")
    with pytest.raises(CalibrationError, match="could not be measured: 0 caches were bought"):
        calibrate(Broken(station), plan, file, lambda _: None)
    record = read(file.path)
    assert [e.measurement is not None for e in record.entries] == [True, False, False]
    assert station.learned_bytes() == 3 * GIB
    calibrate(station, plan, file, lambda _: None)
    assert len(read(file.path).measurements()) == 2


@dataclass
class Stopped:
    """A station that is interrupted while it writes; then it cannot do what `fails` names."""

    inner: SimulatedStation
    fails: tuple[str, ...] = ()
    writes: int = 0

    def __getattr__(self, name: str) -> Any:
        done = getattr(self.inner, name)

        def refused(*given: object) -> Any:
            if self.writes:
                raise CalibrationError("that does not work")
            return done(*given)

        return refused if name in self.fails else done

    def write(self, wanted: Wanted) -> float:
        self.writes += 1
        self.inner.world.workload = endless()
        self.inner.simulation.run_for(20)
        raise KeyboardInterrupt


ADAPTIVE = schedule(Preset((1,), (2 * GIB / GB,), 1), static=False)
STATIC = Schedule((Wanted(GB),), 1)


def test_an_interrupted_run_gives_the_agent_its_size_back_for_good(station: SimulatedStation, tmp_path: Path) -> None:
    station.learn(3 * GIB)
    with pytest.raises(KeyboardInterrupt):
        calibrate(Stopped(station), ADAPTIVE, RecordFile(tmp_path / "r"), lambda _: None)
    assert station.simulation.state.cycle is not None
    station.rest(LIMIT_S)
    assert [c.provisioned.size_bytes for c in station.books.rows.values()] == [2 * GIB]
    assert station.learned_bytes() == 3 * GIB


@pytest.mark.parametrize("plan", [ADAPTIVE, STATIC])
@pytest.mark.parametrize("fails", [(), ("clean",), ("rest", "clean")])
def test_nothing_is_tried_again_after_an_interruption(
    plan: Schedule, fails: tuple[str, ...], station: SimulatedStation, tmp_path: Path
) -> None:
    station.learn(3 * GIB)
    stopped, file = Stopped(station, fails), RecordFile(tmp_path / "r")
    with pytest.raises(KeyboardInterrupt) as caught:
        calibrate(stopped, plan, file, lambda _: None)
    assert stopped.writes == 1
    assert (station.learned_bytes(), station.is_paused()) == (3 * GIB, False)
    assert read(file.path).before is None
    assert ("that does not work" in notes_of(caught.value)) == bool(fails)


def test_what_the_agent_did_not_get_back_is_told_and_kept_in_the_record(
    station: SimulatedStation, tmp_path: Path
) -> None:
    station.learn(3 * GIB)
    station.pause()
    file = RecordFile(tmp_path / "r")
    with pytest.raises(KeyboardInterrupt) as caught:
        calibrate(Stopped(station, ("learn",)), ADAPTIVE, file, lambda _: None)
    (told,) = notes_of(caught.value)
    assert "did not get back its learned size and its pause (that does not work)" in told
    assert (station.learned_bytes(), station.is_paused()) == (2 * GIB, True)
    assert read(file.path).before == Before(3 * GIB, True)


def test_two_runs_do_not_measure_at_once(station: SimulatedStation, tmp_path: Path) -> None:
    file = RecordFile(tmp_path / "deep" / "r")
    with file.claimed(), pytest.raises(CalibrationError, match="another calibration uses"):
        calibrate(station, ADAPTIVE, RecordFile(file.path), lambda _: None)
    assert file.path.read_bytes() == b""
    calibrate(station, ADAPTIVE, file, lambda _: None)
    assert len(read(file.path).measurements()) == 1


def test_a_run_that_was_killed_is_made_good_by_the_next_one(station: SimulatedStation, tmp_path: Path) -> None:
    file, said = RecordFile(tmp_path / "r"), list[str]()
    file.begin(station.header())
    file.keep(Before(3 * GIB, False))
    station.learn(2 * GIB)
    station.pause()
    calibrate(station, ADAPTIVE, file, said.append)
    assert said[0].startswith("an earlier run was cut off")
    assert (station.learned_bytes(), station.is_paused()) == (3 * GIB, False)
    assert read(file.path).before is None


def test_measurements_say_what_they_are() -> None:
    made = Measurement(Setup.ADAPTIVE, 4 * GB, 40.0, cache_bytes=6 * GB, held_s=100.0)
    assert str(made) == "adaptive, write of 4 GB with a cache of 6 GB"
    assert replace(made, setup=Setup.STATIC_SLOW, cache_bytes=0).throughput_mb_s == 100.0


def endless() -> Workload:
    return Checkpointing(Profile(0.0, 100 * GB, 1), 10 * GB)
