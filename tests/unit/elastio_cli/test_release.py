"""`elastio device release`: of a device that was made blank, and what both kinds have in common."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from elastio.agent.journal import Journal, Owner
from elastio.agent.mount_guard import MountGuard
from elastio.config.paths import JOURNAL
from elastio.control.exit_codes import Exit
from elastio.core.state import AgentState, Phase
from elastio.errors import LockedError
from elastio.host import locks
from elastio.host.sysfs import Sysfs
from elastio_setup import adopt, release_created
from tests.fixtures.least_configuration import LEAST_TOML
from tests.fixtures.least_configuration import UUID as DEVICE_UUID
from tests.unit.elastio_setup.adopt_machine import UUID, AdoptMachine
from tests.unit.elastio_setup.created_machine import BACKING, CreatedMachine
from tests.values import cycle

from .conftest import Shell


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CreatedMachine:
    found = CreatedMachine(tmp_path / "root")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(release_created.Releaser.__init__, "__defaults__", (found.wait, found.show))
    monkeypatch.setattr(release_created.register, "__defaults__", (found.wait, found.show))
    return found


@pytest.fixture
def shell(elastio: Shell, machine: CreatedMachine) -> Shell:
    return Shell(replace(elastio.app, root=machine.root, run=machine.run))


def node(machine: AdoptMachine) -> str:
    return str(machine.sysfs.path("dev/vdb"))


def test_a_dry_run_and_a_no_change_nothing_and_a_yes_releases(shell: Shell, machine: CreatedMachine) -> None:
    assert shell("device", "release", node(machine), "--dry-run").exit_code == Exit.OK
    assert shell("device", "release", node(machine), stdin="n\n").exit_code == Exit.FAILED
    assert (machine.is_as_before, machine.changes, machine.runs) == (True, 0, True)
    result = shell("device", "release", node(machine), stdin="y\n")
    assert (result.exit_code, "/dev/vdb1" in result.stdout) == (Exit.OK, True)
    assert machine.is_released


@pytest.mark.parametrize("target", [BACKING, "data"])
def test_it_is_named_by_its_uuid_or_its_mount_point(shell: Shell, machine: CreatedMachine, target: str) -> None:
    if target == "data":
        machine.mount("252:0")
        target = str(machine.place)
    assert shell("device", "release", target, "--yes").exit_code == Exit.OK
    assert machine.is_released


def test_a_dry_run_starts_nothing_and_the_command_starts_what_was_stopped(
    shell: Shell, machine: CreatedMachine
) -> None:
    machine.stop()
    assert shell("device", "release", node(machine), "--dry-run").exit_code == Exit.CONFIG
    assert not machine.runs
    assert shell("device", "release", node(machine), "--yes").exit_code == Exit.OK
    assert machine.is_released


def configured(elastio: Shell, machine: AdoptMachine, tmp_path: Path) -> tuple[Shell, Path]:
    text = f'{LEAST_TOML}[agent]\nstate_dir = "{tmp_path / "state"}"\n'
    (tmp_path / "elastio.toml").write_text(text)
    app = replace(elastio.app, root=machine.root, run=machine.run, directory=tmp_path, socket=None)
    return Shell(app), tmp_path / "state"


@pytest.mark.parametrize(("owner", "code"), [(BACKING, Exit.FAILED), ("", Exit.FAILED), (UUID, Exit.OK)])
def test_an_open_cycle_of_this_device_refuses_it_whatever_the_kernel_shows(
    elastio: Shell, machine: CreatedMachine, tmp_path: Path, owner: str, code: Exit
) -> None:
    shell, state_dir = configured(elastio, machine, tmp_path)
    journal = Journal(state_dir / JOURNAL, "boot", Owner(owner))
    journal.open()
    journal.decision(Phase.IDLE, AgentState(phase=Phase.BOOSTING, cycle=cycle()), "because", now=1.0, wall=1.0)
    journal.close()
    assert shell("device", "release", node(machine), "--yes").exit_code == code
    assert machine.is_released == (code == Exit.OK)


@pytest.mark.parametrize("wanted", [None, "elastio"])
def test_an_agent_that_is_faulted_refuses_it_although_no_cycle_is_open(
    elastio: Shell, machine: CreatedMachine, tmp_path: Path, wanted: str | None
) -> None:
    """Whichever device was named before the command, and wherever its agent keeps its state."""
    shell, _ = configured(elastio, machine, tmp_path)
    state_dir = tmp_path / "elsewhere"
    text = LEAST_TOML.replace(DEVICE_UUID, BACKING)
    (tmp_path / "second.toml").write_text(f'{text}[agent]\nstate_dir = "{state_dir}"\n')
    journal = Journal(state_dir / JOURNAL, "boot", Owner(BACKING))
    journal.open()
    for before, after in ((Phase.FLUSHING, Phase.IDLE), (Phase.IDLE, Phase.FAULTED)):
        journal.decision(before, AgentState(phase=after), "because", now=1.0, wall=1.0)
    journal.close()
    shell = Shell(replace(shell.app, wanted=wanted))
    assert shell("device", "release", node(machine), "--yes").exit_code == Exit.FAILED
    assert machine.is_as_before


def test_an_agent_that_runs_refuses_it(shell: Shell, machine: CreatedMachine) -> None:
    lock = locks.lock_device(machine.sysfs.path("run/elastio"), BACKING)
    for options in (("--yes",), ("--dry-run",)):
        assert shell("device", "release", node(machine), *options).exit_code == Exit.FAILED
        assert (machine.is_as_before, machine.runs) == (True, True)
    os.close(lock)
    assert shell("device", "release", node(machine), "--yes").exit_code == Exit.OK


def test_no_agent_can_start_meanwhile(shell: Shell, machine: CreatedMachine) -> None:
    refusals = list[LockedError]()

    def start() -> None:
        with pytest.raises(LockedError) as refused:
            locks.lock_device(machine.sysfs.path("run/elastio"), BACKING)
        refusals.append(refused.value)

    machine.on_settle = start
    assert shell("device", "release", node(machine), "--yes").exit_code == Exit.OK
    assert refusals
    os.close(locks.lock_device(machine.sysfs.path("run/elastio"), BACKING))


def test_a_no_leaves_no_table_of_an_interrupted_release(shell: Shell, machine: CreatedMachine) -> None:
    machine.put(0, machine.planned().table)
    machine.power_off()
    assert shell("device", "release", node(machine), stdin="n\n").exit_code == Exit.FAILED
    assert (machine.is_as_before, machine.runs) == (True, True)


@pytest.mark.parametrize("guarded", [BACKING, UUID])
def test_a_mount_guard_of_this_device_refuses_it(
    elastio: Shell, machine: CreatedMachine, tmp_path: Path, guarded: str
) -> None:
    shell, state_dir = configured(elastio, machine, tmp_path)
    MountGuard(state_dir, guarded).put("volume")
    assert shell("device", "release", node(machine), "--yes").exit_code == (Exit.FAILED, Exit.OK)[guarded != BACKING]
    assert machine.is_released == (guarded != BACKING)


def test_a_configuration_that_cannot_be_used_refuses_it(
    elastio: Shell, machine: CreatedMachine, tmp_path: Path
) -> None:
    shell, _ = configured(elastio, machine, tmp_path)
    (tmp_path / "elastio.toml").write_text("[[[")
    assert shell("device", "release", node(machine), "--yes").exit_code == Exit.CONFIG
    assert machine.is_as_before


def test_an_adopted_volume_has_a_dry_run_and_the_same_refusal(
    elastio: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    machine = AdoptMachine(tmp_path / "adopted")
    monkeypatch.setattr(Sysfs, "control", lambda _, *request: machine.sysfs.control(*request))
    monkeypatch.setattr(adopt.Adopter.__init__, "__defaults__", (machine.wait, machine.slept.append, False))
    shell, state_dir = configured(elastio, machine, tmp_path)
    plan = machine.plan()
    machine.adopter().adopt(plan)
    done = machine.changes
    assert shell("device", "release", UUID, "--dry-run").exit_code == Exit.OK
    machine.mount("252:0")
    assert shell("device", "release", UUID, "--dry-run").exit_code == Exit.FAILED
    assert shell("device", "release", str(machine.place), "--dry-run").exit_code == Exit.OK
    MountGuard(state_dir, plan.head.backing_uuid).put("volume")
    for option in ("--dry-run", "--yes"):
        assert shell("device", "release", str(machine.place), option).exit_code == Exit.FAILED
    assert (machine.records, machine.changes, machine.is_mounted) == (["composed"], done, True)
