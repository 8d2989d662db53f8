"""Measuring: on the simulator itself, and through the control socket of a simulated daemon."""

from __future__ import annotations

import json
import queue
import re
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from elastio.config import parse
from elastio.control_client import ControlClient
from elastio.model import VolumeMark, VolumeSpec
from elastio.protocol import UnreachableError
from elastio.report import CycleRow, Steps
from elastio.sim.daemon import SimDaemon
from elastio.sim.kernel import KernelSettings
from elastio.sim.workload import Checkpointing, Profile, Workload
from elastio.status import Status
from elastio.units import GB, GIB
from elastio_calibration.errors import CalibrationError
from elastio_calibration.fio import Fio
from elastio_calibration.folder import Folder
from elastio_calibration.live import Labels, LiveStation, Ports
from elastio_calibration.measurement import Measurement, Setup
from elastio_calibration.record import Before, RecordFile, read
from elastio_calibration.schedule import Preset, Schedule, Wanted, schedule
from elastio_calibration.simulated import SimulatedStation
from elastio_calibration.simulated import machine as simulated_machine
from elastio_calibration.station import Boost, Mark, calibrate, measure, notes_of
from elastio_calibration.writer import Writer

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
    assert small.evicted_bytes > 0 == large.evicted_bytes


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
        self.inner.world.workload = _endless()
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
    assert [c.sold.size_bytes for c in station.books.rows.values()] == [2 * GIB]
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


# --- through the control socket ------------------------------------------------------------------------------


class Machine:
    """`elastiod --sim` in a thread; its time moves only when the station sleeps or writes."""

    def __init__(self, socket: Path) -> None:
        config = parse(
            {
                "device": {"backing_uuid": KernelSettings().backing_uuid, "bandwidth_mb_s": 20.0},
                "cache": {"bandwidth_mb_s": 80.0, "initial_size_gib": 4.0},
                "policy": {"inactivity_delay_s": 4.0},
                "caps": {"max_boosts_per_day": 3},
                "agent": {"socket": str(socket), "socket_group": ""},
                "provider": {"name": "sim"},
            }
        )
        self.config = config
        self.daemon = SimDaemon(config, socket)
        self.daemon.simulation.world.workload = Workload()
        self._jobs: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while not self._stop.is_set():
            self.daemon.turn(0.002, 0.05)
            while not self._jobs.empty():
                self._jobs.get()()

    def do(self, job: Callable[[], None]) -> None:
        done = threading.Event()

        def run() -> None:
            try:
                job()
            finally:
                done.set()

        self._jobs.put(run)
        assert done.wait(60)

    def sleep(self, seconds: float) -> None:
        self.do(lambda: self.daemon.turn(0, seconds))

    def write(self, dataset_bytes: int) -> float:
        load = Checkpointing(Profile(0.0, dataset_bytes, 1), 10 * GB)

        def run() -> None:
            self.daemon.simulation.world.workload = load
            # Small steps: the daemon replaces a workload that is done by its own.
            self.daemon.simulation.run_until(lambda: load.done, LIMIT_S)
            self.daemon.simulation.world.workload = Workload()

        self.do(run)
        return load.stats.dumps[0].seconds

    def wall(self) -> float:
        return self.daemon.simulation.world.clock.wall()

    def cycles(self, since: float, until: float) -> tuple[CycleRow, ...]:
        return tuple(
            CycleRow(
                c.token, "", c.trigger, c.volume_id, c.spec.size_bytes, c.sold.size_bytes, c.sold.bandwidth_mb_s,
                c.started_wall, c.opened_wall, c.closed_wall,
                steps=Steps(boost_s=(c.marks.boosted or 0) - c.started_at, attached_s=1.0),
                peak_in_use_percent=c.peak_in_use_percent,
            )
            for c in self.daemon.simulation.books.rows.values()  # type: ignore[attr-defined]
        )  # fmt: skip

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        self.daemon.close()


class SimulatedWriter(Writer):
    """Writes to the simulated device instead of a folder; what is checked is the real folder."""

    def __init__(self, directory: Path, machine: Machine) -> None:
        super().__init__(directory, 1)
        self._machine = machine

    def write(self, dataset_bytes: int) -> float:
        return self._machine.write(dataset_bytes)

    def written_bytes(self, dataset_bytes: int) -> int:
        return dataset_bytes


class SimulatedFio(Fio):
    """Writes to the simulated device, whatever is asked; what it printed is what fio prints."""

    def __init__(self, directory: Path, machine: Machine) -> None:
        super().__init__(directory, 1, self._moved)
        self._machine = machine
        self.asked: list[str] = []

    def _moved(self, argv: Sequence[str], *, timeout_s: float) -> str:
        given = dict(word.removeprefix("--").split("=", 1) for word in argv if "=" in word)
        self.asked.append(given["rw"])
        (Path(given["directory"]) / "dataset.0.0").touch()
        seconds = self._machine.write(int(given["size"]))
        row = {"error": 0, "job_runtime": seconds * 1000, "read": {"io_bytes": 0}, "write": {"io_bytes": given["size"]}}
        return json.dumps({"jobs": [row]})


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path / "sim.sock")
    yield made
    made.close()


@pytest.fixture
def live(machine: Machine, tmp_path: Path) -> LiveStation:
    ports = Ports(
        SimulatedWriter(tmp_path, machine),
        SimulatedFio(tmp_path, machine),
        machine.cycles,
        machine.wall,
        machine.wall,
        machine.sleep,
    )
    client = ControlClient(machine.config.agent.socket)
    return LiveStation(client, machine.config, Labels("gp3", "gp3"), ports)


def test_a_live_station_measures_through_the_control_socket(live: LiveStation) -> None:
    made = measure(live, Wanted(GB, 2 * GIB), LIMIT_S)
    assert made.cache_bytes == 2 * GIB
    assert 20 < made.throughput_mb_s < 80
    assert made.held_s > GB / 1e6 / 80
    slow = measure(live, Wanted(GB), LIMIT_S)
    assert slow.throughput_mb_s == pytest.approx(20, rel=0.02)


def test_two_runs_do_not_use_one_directory(live: LiveStation, tmp_path: Path) -> None:
    with Folder(tmp_path).claimed(), pytest.raises(CalibrationError, match="another calibration uses"):
        calibrate(live, ADAPTIVE, RecordFile(tmp_path / "r"), lambda _: None)
    assert (tmp_path / "r").read_bytes() == b""


@pytest.mark.parametrize("set_by_s", [-1000.0, 30.0])
def test_a_clock_that_is_set_meanwhile_makes_a_measurement_worthless(
    set_by_s: float, live: LiveStation, machine: Machine
) -> None:
    live.rest(LIMIT_S)
    mark = live.mark()
    live._ports = replace(live._ports, wall=lambda: machine.wall() + set_by_s)
    with pytest.raises(CalibrationError, match=re.escape(f"the clock was set by {set_by_s:+.1f} s")):
        live.boosts_since(mark)


@pytest.mark.parametrize("set_by_s", [-0.4, 0.4])
def test_a_clock_that_is_corrected_a_little_loses_no_boost(
    set_by_s: float, live: LiveStation, machine: Machine
) -> None:
    live.rest(LIMIT_S)
    live._client.ask("learn", size_bytes=2 * GIB)
    mark = live.mark()
    live._client.ask("boost")
    machine.sleep(0.1)
    (row,) = machine.cycles(0, 0)
    moved = replace(row, started_wall=row.started_wall + set_by_s, opened_wall=row.started_wall + set_by_s)
    wall, cycles = machine.wall() + set_by_s, (replace(row, token="before", started_wall=mark.at - 5.0), moved)
    live._ports = replace(live._ports, wall=lambda: wall, cycles=lambda since, until: cycles)
    assert len(live.boosts_since(mark)) == 1


def test_a_live_station_knows_its_conditions(live: LiveStation) -> None:
    live.rest(LIMIT_S)
    header = live.header()
    assert (header.conditions.backing_mb_s, header.conditions.cache_mb_s) == (20.0, 80.0)
    assert (header.conditions.cloud, header.conditions.backing_type) == ("sim", "gp3")
    assert header.backing_bytes == KernelSettings().backing_bytes
    assert header.prices is None


def test_a_live_station_asks_what_the_volumes_cost(live: LiveStation, machine: Machine) -> None:
    live.rest(LIMIT_S)
    quotes = machine.daemon.simulation.world.provider
    live.quote = quotes.quote
    live.quoted_bytes = (2 * GIB, 4 * GIB)
    prices = live.header().prices
    assert prices is not None
    assert [p.size_bytes for p in prices.caches] == [2 * GIB, 4 * GIB]
    assert prices.caches[0].per_hour == quotes.quote(VolumeSpec(2 * GIB, 100.0)).price_per_hour  # with what drains
    assert prices.fast_per_hour is not None
    assert prices.slow_per_hour is not None
    assert prices.fast_per_hour > prices.slow_per_hour


def test_a_live_station_counts_the_boosts_that_are_left_today(live: LiveStation) -> None:
    live.rest(LIMIT_S)
    point = Wanted(10**6, 2 * GB)
    live.check([point, point, point, Wanted(10**6)])
    with pytest.raises(CalibrationError, match="4 boosts are needed and the cap leaves 3 today"):
        live.check([point, point, point, point])


def test_an_unknown_pattern_cannot_be_measured(live: LiveStation) -> None:
    with pytest.raises(CalibrationError, match="rewind is no pattern that can be measured: write, read"):
        live.write(Wanted(GB, GIB, "rewind"))


def test_what_is_read_is_laid_out_without_a_boost_before_anything_is_measured(live: LiveStation) -> None:
    made = measure(live, Wanted(GB, 2 * GIB, "mixed"), LIMIT_S)
    fio = live._ports.fio
    assert isinstance(fio, SimulatedFio)
    assert not fio.folder.path.exists()
    assert fio.asked == ["write", "readwrite"]
    assert (made.pattern, made.cache_bytes) == ("mixed", 2 * GIB)
    assert 20 < made.throughput_mb_s < 80
    assert not live.is_paused()


def test_a_device_that_somebody_else_uses_never_comes_to_rest(live: LiveStation, machine: Machine) -> None:
    machine.do(lambda: setattr(machine.daemon.simulation.world, "workload", _endless()))
    machine.sleep(5.0)
    with pytest.raises(Exception, match="nothing else may use it during a calibration"):
        live.rest(20.0)


def test_a_volume_that_is_kept_for_an_operator_keeps_nothing_from_resting(live: LiveStation, machine: Machine) -> None:
    def forget_a_dirty_one() -> None:
        cloud = machine.daemon.simulation.world.provider
        cloud.mark(cloud.create("forgotten", VolumeSpec(GIB, 80), {}).id, VolumeMark.DIRTY)

    live.rest(LIMIT_S)
    machine.do(forget_a_dirty_one)
    machine.sleep(10.0)
    live._client.ask("gc")
    machine.sleep(10.0)
    status = live._client.status()
    assert status.owned is not None
    assert [v.kept for v in status.owned] == [True]
    live.rest(LIMIT_S)


class Late(ControlClient):
    """An agent whose first answers come too late."""

    late = 0

    def status(self) -> Status:
        if self.late:
            self.late -= 1
            raise UnreachableError("the agent did not answer")
        return super().status()


def test_an_answer_that_comes_late_ends_no_measurement(live: LiveStation, machine: Machine) -> None:
    live._client = client = Late(machine.config.agent.socket)
    client.late = 3
    live.rest(LIMIT_S)
    assert client.late == 0
    client.late = 1000
    with pytest.raises(UnreachableError):
        live.rest(LIMIT_S)
    assert client.late > 900


def test_a_calibration_is_refused_at_once_while_no_boost_may_begin(live: LiveStation) -> None:
    live.rest(LIMIT_S)
    live._client.ask("quiesce", seconds=6000)
    with pytest.raises(CalibrationError, match=r"the agent is held \(snapshot\) .* begins no boost"):
        live.rest(LIMIT_S)


def _endless() -> Workload:
    return Checkpointing(Profile(0.0, 100 * GB, 1), 10 * GB)


# --- the writer ----------------------------------------------------------------------------------------------


def test_writes_whole_blocks_and_removes_them(tmp_path: Path) -> None:
    writer = Writer(tmp_path, 2, block_bytes=4096)
    assert writer.write(10 * 4096) > 0
    files = sorted((tmp_path / "elastio-calibration").iterdir())
    assert [f.stat().st_size for f in files] == [5 * 4096, 5 * 4096]
    assert writer.written_bytes(10 * 4096 + 100) == 10 * 4096
    writer.folder.clean()
    assert list(tmp_path.iterdir()) == []
    writer.folder.clean()


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(CalibrationError, match="cannot be written"):
        Writer(tmp_path / "missing", 1).write(1)


def test_measurements_say_what_they_are() -> None:
    made = Measurement(Setup.ADAPTIVE, 4 * GB, 40.0, cache_bytes=6 * GB, held_s=100.0)
    assert str(made) == "adaptive, write of 4 GB with a cache of 6 GB"
    assert replace(made, setup=Setup.STATIC_SLOW, cache_bytes=0).throughput_mb_s == 100.0


class Time:
    """Stands still but for who sleeps."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds


def test_writes_no_faster_than_the_application_makes_its_data(tmp_path: Path) -> None:
    clock = Time()
    writer = Writer(tmp_path, 1, block_bytes=1_000_000, pace_mb_s=4.0, now=clock.now, sleep=clock.sleep)
    assert writer.write(10_000_000) == pytest.approx(2.5)


def test_writers_share_the_pace(tmp_path: Path) -> None:
    clock = Time()
    writer = Writer(tmp_path, 2, block_bytes=1_000_000, pace_mb_s=4.0, now=clock.now, sleep=lambda s: None)
    assert writer._block_s == pytest.approx(0.5)
    assert Writer(tmp_path, 2)._block_s == 0.0


class Interrupted:
    """Interrupts the thread that waits for the writers, once they have written some blocks."""

    def __init__(self, after_blocks: int) -> None:
        self.after_blocks, self.blocks = after_blocks, 0

    def sleep(self, _seconds: float) -> None:
        self.blocks += 1
        if self.blocks == self.after_blocks:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


def test_an_interrupted_write_ends_with_the_block_that_is_being_written(tmp_path: Path) -> None:
    asked = Interrupted(after_blocks=10)
    writer = Writer(tmp_path, 1, block_bytes=4096, pace_mb_s=1.0, now=lambda: 0.0, sleep=asked.sleep)
    with pytest.raises(KeyboardInterrupt):
        writer.write(4096 * 50_000)
    assert 10 <= asked.blocks < 50_000
    writer.folder.clean()
    assert list(tmp_path.iterdir()) == []


def test_one_writer_that_fails_ends_the_others(tmp_path: Path) -> None:
    (tmp_path / "elastio-calibration").mkdir()
    (tmp_path / "elastio-calibration" / "writer-1").touch()
    blocks: list[float] = []
    writer = Writer(tmp_path, 2, block_bytes=4096, pace_mb_s=1.0, now=lambda: 0.0, sleep=blocks.append)
    with pytest.raises(CalibrationError, match="cannot be written: File exists"):
        writer.write(2 * 4096 * 50_000)
    assert len(blocks) < 50_000
