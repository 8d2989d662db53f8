"""Measuring through the control socket of a simulated daemon."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from elastio.accounting.rows import CycleRow, StepDurations, row_of
from elastio.config.schema import parse
from elastio.control.client import ControlClient
from elastio.control.protocol import UnreachableError
from elastio.control.status import Status
from elastio.core.model import VolumeId, VolumeSpec, VolumeTag
from elastio.errors import ElastioError
from elastio.units import GB, GIB
from elastio_adviser.checkpointing import Checkpointing, Profile
from elastio_calibration.errors import CalibrationError
from elastio_calibration.fio import Fio
from elastio_calibration.live import LiveTarget, Ports
from elastio_calibration.measurement import Setup
from elastio_calibration.record import RecordFile
from elastio_calibration.schedule import Point
from elastio_calibration.target import Labels, calibrate, measure
from elastio_calibration.work_dir import WorkDir
from elastio_calibration.writer import Writer
from elastio_sim.daemon import SimDaemon
from elastio_sim.kernel import KernelSettings
from elastio_sim.records import MemoryRecorder
from elastio_sim.workload import Workload
from tests.fixtures.errors import refused
from tests.values import present

from .test_target import ADAPTIVE, LIMIT_S, endless


class Machine:
    """`elastiod --sim` in a thread; its time moves only when the target sleeps or writes."""

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
            # In one job: the daemon replaces a finished workload by its own.
            self.daemon.simulation.run_until(lambda: load.done, LIMIT_S)
            self.daemon.simulation.world.workload = Workload()

        self.do(run)
        return load.stats.dumps[0].seconds

    def wall(self) -> float:
        return self.daemon.simulation.world.clock.wall()

    def cycles(self, since: float, until: float) -> tuple[CycleRow, ...]:
        recorder = self.daemon.simulation.recorder
        assert isinstance(recorder, MemoryRecorder)
        return tuple(
            replace(row_of(c), steps=StepDurations(boost_s=(c.times.boosted or 0) - c.started_at, attached_s=1.0))
            for c in recorder.rows.values()
        )

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        self.daemon.close()


class SimulatedWriter(Writer):
    """Writes to the simulated device; the working directory is real."""

    def __init__(self, directory: Path, machine: Machine) -> None:
        super().__init__(directory, 1)
        self._machine = machine

    def write(self, dataset_bytes: int) -> float:
        return self._machine.write(dataset_bytes)

    def written_bytes(self, dataset_bytes: int) -> int:
        return dataset_bytes


class SimulatedFio(Fio):
    """Runs every pattern as writes to the simulated device, and prints as fio does."""

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
def live(machine: Machine, tmp_path: Path) -> LiveTarget:
    ports = Ports(
        SimulatedWriter(tmp_path, machine),
        SimulatedFio(tmp_path, machine),
        machine.cycles,
        machine.wall,
        machine.wall,
        machine.sleep,
    )
    client = ControlClient(machine.config.agent.socket)
    return LiveTarget(client, machine.config, Labels("gp3", "gp3"), ports)


def test_a_live_target_measures_through_the_control_socket(live: LiveTarget) -> None:
    made = measure(live, Point(GB, 2 * GIB), LIMIT_S)
    assert made.cache_bytes == 2 * GIB
    assert 20 < made.throughput_mb_s < 80
    assert made.held_s > GB / 1e6 / 80
    slow = measure(live, Point(GB), LIMIT_S)
    assert (slow.setup, live.agent().paused) == (Setup.STATIC_SLOW, False)
    assert slow.throughput_mb_s == pytest.approx(20, rel=0.02)


def test_two_runs_do_not_use_one_directory(live: LiveTarget, tmp_path: Path) -> None:
    with WorkDir(tmp_path).locked(), refused(CalibrationError, "locked"):
        calibrate(live, ADAPTIVE, RecordFile(tmp_path / "r"), lambda _: None)
    assert (tmp_path / "r").read_bytes() == b""


@pytest.mark.parametrize("set_by_s", [-1000.0, 30.0])
def test_refuses_boosts_while_the_clock_was_set(set_by_s: float, live: LiveTarget, machine: Machine) -> None:
    live.wait_idle(LIMIT_S)
    position = live.position()
    moved = replace(live, ports=replace(live.ports, wall=lambda: machine.wall() + set_by_s))
    with refused(CalibrationError, "clock.set"):
        moved.boosts_since(position)


@pytest.mark.parametrize("set_by_s", [-0.4, 0.4])
def test_finds_a_boost_after_a_small_clock_correction(set_by_s: float, live: LiveTarget, machine: Machine) -> None:
    live.wait_idle(LIMIT_S)
    live.client.ask("learn", size_bytes=2 * GIB)
    position = live.position()
    live.client.ask("boost")
    machine.sleep(0.1)
    (row,) = machine.cycles(0, 0)
    moved = replace(row, started_wall=row.started_wall + set_by_s, opened_wall=row.started_wall + set_by_s)
    wall, cycles = machine.wall() + set_by_s, (replace(row, token="before", started_wall=position.wall_s - 5.0), moved)
    later = replace(live, ports=replace(live.ports, wall=lambda: wall, cycles=lambda since, until: cycles))
    assert len(later.boosts_since(position)) == 1


def test_a_live_target_knows_its_conditions_and_asks_for_prices(live: LiveTarget, machine: Machine) -> None:
    live.wait_idle(LIMIT_S)
    header = live.header()
    assert (header.conditions.backing_mb_s, header.conditions.cache_mb_s) == (20.0, 80.0)
    assert (header.conditions.cloud, header.conditions.backing_type) == ("sim", "gp3")
    assert (header.backing_bytes, header.prices) == (KernelSettings().backing_bytes, None)
    quotes = machine.daemon.simulation.world.provider
    asking = replace(live.ports, quote=quotes.quote, quoted_bytes=(2 * GIB, 4 * GIB))
    prices = present(replace(live, ports=asking).header().prices)
    assert [p.size_bytes for p in prices.caches] == [2 * GIB, 4 * GIB]
    assert prices.caches[0].per_hour == quotes.quote(VolumeSpec(2 * GIB, 100.0)).price_per_hour  # with what drains
    assert present(prices.fast_per_hour) > present(prices.slow_per_hour)


def test_a_live_target_counts_the_remaining_boosts_of_the_day(live: LiveTarget) -> None:
    live.wait_idle(LIMIT_S)
    point = Point(10**6, 2 * GB)
    live.check([point, point, point, Point(10**6)])
    with refused(CalibrationError, "caps.max_boosts_per_day"):
        live.check([point, point, point, point])


def test_an_unknown_pattern_cannot_be_measured(live: LiveTarget) -> None:
    with refused(CalibrationError, "pattern"):
        measure(live, Point(GB, GIB, "rewind"), LIMIT_S)


def test_files_to_read_are_laid_out_without_a_boost(live: LiveTarget) -> None:
    made = measure(live, Point(GB, 2 * GIB, "mixed"), LIMIT_S)
    fio = live.ports.fio
    assert isinstance(fio, SimulatedFio)
    assert not fio.work_dir.path.exists()
    assert fio.asked == ["write", "readwrite"]
    assert (made.pattern, made.cache_bytes) == ("mixed", 2 * GIB)
    assert 20 < made.throughput_mb_s < 80
    assert not live.agent().paused


def test_a_device_in_use_does_not_become_idle(live: LiveTarget, machine: Machine) -> None:
    machine.do(lambda: setattr(machine.daemon.simulation.world, "workload", endless()))
    machine.sleep(5.0)
    with refused(ElastioError, "not_idle"):
        live.wait_idle(20.0)


def test_a_volume_that_may_hold_data_of_the_device_is_in_the_way_until_it_is_given_up(
    live: LiveTarget, machine: Machine
) -> None:
    made: list[VolumeId] = []

    def forget_a_dirty_one() -> None:
        cloud = machine.daemon.simulation.world.provider
        made.append(cloud.create("forgotten", VolumeSpec(GIB, 80), {}).id)
        cloud.tag(made[0], VolumeTag.DIRTY)

    live.wait_idle(LIMIT_S)
    machine.do(forget_a_dirty_one)
    machine.sleep(10.0)
    live.client.ask("gc")
    machine.sleep(10.0)
    assert [v.kept for v in present(live.client.status().owned)] == [True]
    with pytest.raises(ElastioError):
        live.wait_idle(LIMIT_S)
    live.client.ask("recover", volume_id=made[0], accepts_loss=1)
    machine.sleep(10.0)
    live.wait_idle(LIMIT_S)


class Late(ControlClient):
    """An agent whose first replies time out."""

    late = 0

    def status(self) -> Status:
        if self.late:
            self.late -= 1
            raise UnreachableError("the agent did not answer")
        return super().status()


def test_a_late_reply_does_not_end_a_measurement(live: LiveTarget, machine: Machine) -> None:
    client = Late(machine.config.agent.socket)
    live = replace(live, client=client)
    client.late = 3
    live.wait_idle(LIMIT_S)
    assert client.late == 0
    client.late = 1000
    with pytest.raises(UnreachableError):
        live.wait_idle(LIMIT_S)
    assert client.late > 900


def test_fails_at_once_while_an_inhibition_holds_back_boosts(live: LiveTarget) -> None:
    live.wait_idle(LIMIT_S)
    live.client.ask("quiesce", seconds=6000)
    with refused(CalibrationError, "inhibited"):
        live.wait_idle(LIMIT_S)
