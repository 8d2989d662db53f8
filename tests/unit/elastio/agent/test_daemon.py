"""The door to the cloud, as the daemon opens it in a worker."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from elastio.accounting.recorder import CostRecorder
from elastio.agent import daemon, elastiod
from elastio.agent.daemon import ChildRest, Daemon, LazyProvider, lost_on
from elastio.agent.executor import lost
from elastio.agent.loop import Agent, Workers
from elastio.agent.market import UNKNOWN
from elastio.agent.memory import with_cutoff
from elastio.agent.narration import EventLog
from elastio.agent.worker import ForkWorker
from elastio.config.schema import Config, parse
from elastio.control.exit_codes import Exit
from elastio.core.actions import (
    Action,
    BypassCache,
    DetachCacheSet,
    HelpDetach,
    InstallCache,
    LimitWrites,
    ListVolumes,
    Outcome,
    RemoveTombstone,
    TuneBacking,
    WriteTombstone,
)
from elastio.core.model import CacheSetUuid, Serial
from elastio.core.shares import ALL_MAY, BoostRights
from elastio.core.state import Phase
from elastio.errors import ConfigError, HostError, LockedError
from elastio.host import cgroups, guard, throttle
from elastio.host.counters import DiskCounters
from elastio.host.guard import LimitRemovers
from elastio.host.sysfs import Sysfs
from elastio.strategy.spending import Caps
from elastio_sim.kernel import KernelSettings
from elastio_sim.workload import Segment
from tests.fixtures.errors import refused
from tests.fixtures.least_configuration import least
from tests.fixtures.other_agent import other_agent
from tests.simulated import POLICY, QUIET, in_phase, machine

LONG_S = 30.0
UNPRICED = f"""
[device]
backing_uuid = "{KernelSettings().backing_uuid}"
bandwidth_mb_s = 60
[cache]
bandwidth_mb_s = 190
[policy]
model = "money"
[value]
hour = 0.8
[provider]
name = "openstack"
[provider.openstack.types]
fast = {{ bandwidth_mb_s = 250 }}
"""


def config(provider: str) -> Config:
    return parse(least(provider, uuid=KernelSettings().backing_uuid, initial_size_gib=4.0))


def test_a_provider_is_opened_once() -> None:
    door = LazyProvider(config("sim"))
    door.warm_up()
    assert door() is door()


def test_a_provider_that_cannot_be_opened_is_an_error_of_the_configuration() -> None:
    with pytest.raises(ConfigError):
        LazyProvider(config("nowhere")).warm_up()


def test_a_daemon_that_decides_by_money_does_not_start_without_prices(tmp_path: Path) -> None:
    path = tmp_path / "elastio.toml"
    path.write_text(UNPRICED)
    with pytest.raises(ConfigError) as refused:
        Daemon(path)
    assert refused.value.code == UNKNOWN


def test_a_cap_that_ends_a_boost_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    load = Segment(2, 0), Segment(30, 60), QUIET
    sim = machine(load, caps=Caps(max_agbs_per_day=17_000.0), reporter=EventLog(POLICY.backing_uuid))
    in_phase(sim, Phase.BOOSTING)
    assert "caps.max_agbs_per_day" not in caplog.text
    in_phase(sim, Phase.FLUSHING)
    in_phase(sim, Phase.IDLE)
    logged = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert sum("caps.max_agbs_per_day" in line for line in logged) == 1


@pytest.fixture
def held_back(tmp_path: Path) -> Path:
    """The limit of a predecessor that was killed while it held applications back."""
    limit = tmp_path / cgroups.CGROUPS / "user.slice/io.max"
    limit.parent.mkdir(parents=True)
    limit.write_text("250:0 rbps=2 wbps=2 riops=max wiops=max\n")
    return limit


@pytest.mark.parametrize("written", ["misspelt_cap = 3", ""])
def test_whatever_keeps_the_agent_from_starting_io_limits_are_cleared(
    held_back: Path, written: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elastiod, "Sysfs", lambda owner: Sysfs(tmp_path, owner))
    path = tmp_path / "elastio.toml"
    path.write_text(written)
    assert CliRunner().invoke(elastiod.main, ["--config", str(path)]).exit_code == Exit.CONFIG
    assert held_back.read_text().startswith(f"250:0 {cgroups.FREE}")


class Ended(Daemon):
    """A daemon that is stopped as soon as it would look for events."""

    def _run(self, *_: object) -> None:
        raise HostError("stopped")


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Writes the configuration of a device on this machine; all of them have one state directory."""
    monkeypatch.setattr(daemon, "RUNTIME_DIR", tmp_path / "run")
    monkeypatch.setattr(daemon, "Sysfs", lambda owner: Sysfs(tmp_path, owner))
    monkeypatch.setattr(daemon, "stay_in_memory", lambda: None)
    monkeypatch.setattr(daemon, "run", lambda argv, *, timeout_s: "")

    def write(uuid: str) -> Path:
        folder = tmp_path / uuid
        folder.mkdir()
        path = folder / "elastio.toml"
        document = f'[device]\nbacking_uuid = "{uuid}"\nbandwidth_mb_s = 33\n[cache]\nbandwidth_mb_s = 128\n'
        path.write_text(f'{document}[agent]\nstate_dir = "{tmp_path}/state"\n[provider]\nname = "sim"\n')
        return path

    return write


def test_a_second_agent_with_the_same_state_directory_does_not_start(alone: Callable[[str], Path]) -> None:
    """Two would write one journal."""
    first = Daemon(alone("01234567-89ab-cdef-0123-456789abcdef"))
    with pytest.raises(LockedError):
        Daemon(alone("11234567-89ab-cdef-0123-456789abcdef"))
    assert first.config.device.backing_uuid.startswith("0")


UUID = "01234567-89ab-cdef-0123-456789abcdef"


def start(path: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """The exit code of an agent that ends as soon as it would look for events."""
    monkeypatch.setattr(elastiod, "Sysfs", lambda owner: Sysfs(root, owner))
    monkeypatch.setattr(elastiod, "Daemon", Ended)
    return CliRunner().invoke(elastiod.main, ["--config", str(path)]).exit_code


def test_a_second_agent_leaves_the_limits_of_the_one_that_runs(
    alone: Callable[[str], Path], held_back: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = alone(UUID)
    with other_agent(tmp_path / "run", UUID) as agent:
        assert start(path, tmp_path, monkeypatch) == Exit.FAILED
        assert not held_back.read_text().startswith(f"250:0 {cgroups.FREE}")
        agent.kill()
        assert start(path, tmp_path, monkeypatch) == Exit.FAILED, "its worker hangs"
        assert held_back.read_text().startswith(f"250:0 {cgroups.FREE}")


def test_an_agent_of_another_device_keeps_nobody_held_back(
    alone: Callable[[str], Path], held_back: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its state directory: the second one has the lock of its device, and does not start."""
    path = alone(UUID)
    first = Daemon(alone("11234567-89ab-cdef-0123-456789abcdef"))
    held_back.write_text("250:0 rbps=2 wbps=2 riops=max wiops=max\n")
    assert start(path, tmp_path, monkeypatch) == Exit.FAILED
    assert held_back.read_text().startswith(f"250:0 {cgroups.FREE}")
    assert first.config.device.backing_uuid.startswith("1")


def test_an_agent_that_has_its_locks_lifts_what_was_left_behind(alone: Callable[[str], Path], held_back: Path) -> None:
    made = Daemon(alone(UUID))
    assert held_back.read_text().startswith(f"250:0 {cgroups.FREE}")
    assert made.config.device.backing_uuid == UUID


class Assembled(Daemon):
    """A daemon that ends when its agent is put together, and keeps it."""

    agent: Agent

    def _run(self, recorder: CostRecorder, workers: Workers, *_: object) -> None:
        self.agent = self._agent(recorder, workers)


def test_whose_load_counts_is_what_is_in_force(alone: Callable[[str], Path]) -> None:
    path = alone("01234567-89ab-cdef-0123-456789abcdef")
    path.write_text(f'{path.read_text()}[share]\nno_boost = ["backup.service"]\n')
    made = Assembled(path)
    made.run()
    counters = made.agent._counters
    assert isinstance(counters, DiskCounters)
    assert counters._load is not None
    assert counters._load.rights() == BoostRights(no=("backup.service",))
    made.agent.policy = replace(made.agent.policy, boost_rights=ALL_MAY)
    assert counters._load.rights().is_everybody, "a reload changes the policy"


@pytest.mark.parametrize(
    ("options", "percent"),
    [
        ("options bcache bch_cutoff_writeback=70 bch_cutoff_writeback_sync=70", 70),
        ("options other bch_cutoff_writeback=70", 40),
        ("options bcache bch_cutoff_writeback=0", None),
        ("options bcache bch_cutoff_writeback=much", None),
        (None, None),
    ],
)
def test_before_the_first_cache_the_cutoff_is_that_of_the_modules_options(
    options: str | None, percent: int | None, alone: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def modprobe(_: object, *, timeout_s: float) -> str:
        if options is None:
            raise HostError("modprobe is not installed")
        return f"# {timeout_s:g}\n{options}\n"

    monkeypatch.setattr(daemon, "run", modprobe)
    made = Assembled(alone("01234567-89ab-cdef-0123-456789abcdef"))
    made.run()
    memory = made.agent.state.memory
    assert memory.cutoff_percent == percent
    shown = replace(made.agent.state, memory=replace(memory, cutoff_percent=55))
    assert with_cutoff(shown, 70).memory.cutoff_percent == 55, "the kernel's own, from the journal"


def test_an_agent_that_ends_leaves_nobody_held_back(alone: Callable[[str], Path], held_back: Path) -> None:
    limited = held_back.read_text()
    agent = Ended(alone("01234567-89ab-cdef-0123-456789abcdef"))
    held_back.write_text(limited)
    with pytest.raises(HostError):
        agent.run()
    assert held_back.read_text().startswith(f"250:0 {cgroups.FREE}")


def is_there(worker: ForkWorker[Action, Outcome]) -> bool:
    return bool([child for child in multiprocessing.active_children() if child.name == f"elastio-{worker.name}"])


@pytest.fixture
def cloud() -> Iterator[ForkWorker[Action, Outcome]]:
    """A worker of the cloud whose child has just been started."""
    worker: ForkWorker[Action, Outcome] = ForkWorker("cloud", lambda action: lost(action, 0.0), lost)
    worker.start()
    yield worker
    worker.close(0.0)


def test_the_child_with_the_sdk_ends_while_nothing_is_bought_and_is_back_when_a_load_begins(
    cloud: ForkWorker[Action, Outcome],
) -> None:
    rest = ChildRest(cloud, until=60.0)
    seen = []
    for now, is_near in ((60.0, False), (61.0, False), (62.0, True), (122.0, False), (123.0, False)):
        rest.tend(now, is_near=is_near, is_boosting=False)
        seen.append(is_there(cloud))
    assert seen == [True, False, True, True, False]


@pytest.mark.parametrize("is_boosting", [True, False])
def test_the_child_with_the_sdk_stays_while_bursts_follow_one_another(
    is_boosting: bool, cloud: ForkWorker[Action, Outcome]
) -> None:
    rest = ChildRest(cloud, until=60.0)
    rest.tend(60.0, is_near=True, is_boosting=is_boosting)
    rest.tend(600.0, is_near=False, is_boosting=False)
    assert is_there(cloud) is is_boosting


def test_a_child_with_a_job_does_not_rest(cloud: ForkWorker[Action, Outcome]) -> None:
    cloud.submit(ListVolumes(), LONG_S)
    ChildRest(cloud, until=0.0).tend(1000.0, is_near=False, is_boosting=False)
    assert is_there(cloud)


INSTALL = InstallCache(Serial("vol-1"), 1, flush_mb_s=None)
DETACH = DetachCacheSet(CacheSetUuid("set"))


@pytest.mark.parametrize("held", sorted(throttle.MOMENTARY))
@pytest.mark.parametrize(
    ("action", "freed"),
    [
        (INSTALL, True),
        (BypassCache(), True),
        (DETACH, True),
        (HelpDetach(), True),
        (LimitWrites(8.0), True),
        (WriteTombstone(), True),
        (RemoveTombstone(), True),
        (TuneBacking(), False),
    ],
)
def test_an_action_that_was_lost_leaves_no_application_held_back(
    action: Action, freed: bool, held: str, tmp_path: Path
) -> None:
    limit = tmp_path / cgroups.CGROUPS / "system.slice/io.max"
    limit.parent.mkdir(parents=True)
    limit.write_text(f"250:0 {held}\n")
    outcome = lost_on(Sysfs(tmp_path), LimitRemovers())(action, 30.0)
    assert outcome == lost(action, 30.0)
    for helper in multiprocessing.active_children():
        helper.join(LONG_S)
    assert limit.read_text().startswith(f"250:0 {cgroups.FREE}") is freed


def test_no_limit_is_set_before_that_of_a_lost_action_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = tmp_path / cgroups.CGROUPS / "system.slice/io.max"
    limits.parent.mkdir(parents=True)
    os.mkfifo(limits)  # whoever reads it waits for this test
    watch = guard.Guard(lambda: None)
    lost_on(Sysfs(tmp_path), watch.removers)(BypassCache(), 30.0)
    with monkeypatch.context() as patch, refused(HostError, "limit.removers"):
        patch.setattr(guard, "ANSWER_S", 0.1)
        watch.begin_lease()
    limits.write_text("")
    for helper in multiprocessing.active_children():
        helper.join(LONG_S)
    watch.begin_lease()
    watch.dismiss()
