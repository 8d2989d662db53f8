"""`elastio device adopt` and `release`: what they print, ask and change."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from elastio.control.exit_codes import Exit
from elastio.host.sysfs import Sysfs
from elastio_cli.doctor import examine
from elastio_setup import adopt as steps
from elastio_setup import at_boot
from tests.unit.elastio_setup.adopt_machine import UUID, AdoptMachine
from tests.unit.elastio_setup.lvm_machine import LvmMachine
from tests.unit.elastio_setup.test_at_boot import planned

from .conftest import Shell


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AdoptMachine:
    found = AdoptMachine(tmp_path / "root")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(Sysfs, "control", lambda _, *request: found.sysfs.control(*request))
    monkeypatch.setattr(steps.Adopter.__init__, "__defaults__", (found.wait, found.slept.append, False))
    return found


@pytest.fixture
def shell(elastio: Shell, machine: AdoptMachine) -> Shell:
    return Shell(replace(elastio.app, root=machine.root, run=machine.run))


def adopt(shell: Shell, machine: AdoptMachine, *options: str, stdin: str = "") -> int:
    nodes = [str(machine.sysfs.path(f"dev/{name}")) for name in ("vdb", "vdh")]
    result = shell("device", "adopt", nodes[0], "--head", nodes[1], *options, stdin=stdin)
    assert UUID in result.stdout, result.output
    return result.exit_code


def test_a_dry_run_and_a_no_change_nothing(shell: Shell, machine: AdoptMachine) -> None:
    assert adopt(shell, machine, "--dry-run") == Exit.OK
    assert adopt(shell, machine, stdin="n\n") == Exit.FAILED
    assert machine.is_as_before
    assert machine.changes == 0


def test_a_logical_volume_needs_no_head(shell: Shell, tmp_path: Path) -> None:
    found = LvmMachine(tmp_path / "group")
    elastio = Shell(replace(shell.app, root=found.root, run=found.run))
    result = elastio("device", "adopt", "group/data", "--dry-run")
    assert result.exit_code == Exit.OK
    assert "group/elastio-head-" in result.stdout
    assert (found.changes, found.is_as_before) == (0, True)


def test_a_yes_adopts_doctor_shows_it_and_its_uuid_releases_it(shell: Shell, machine: AdoptMachine) -> None:
    assert adopt(shell, machine, stdin="y\n") == Exit.OK
    assert machine.records == ["composed"]
    found = next(result for result in examine(shell.app) if result.name == "adopted volume")
    assert (found.verdict, "bcache0" in found.sentence) == ("ok", True)
    assert f"adopted       {UUID} is on /dev/bcache0" in shell("status").stdout, "no agent answers"
    assert not Shell(replace(shell.app, is_simulated=True))("status").stdout, "a simulated machine has none"
    assert shell("device", "release", UUID, stdin="n\n").exit_code == Exit.FAILED
    assert shell("device", "release", UUID, "--yes").exit_code == Exit.OK
    assert machine.is_as_before
    assert not [result for result in examine(shell.app) if result.name == "adopted volume"]


def test_doctor_shows_what_is_not_composed(shell: Shell, machine: AdoptMachine) -> None:
    assert adopt(shell, machine, "--yes") == Exit.OK
    machine.found.clear()
    with pytest.raises(Exception, match="not there"):
        machine.boot()
    found = next(result for result in examine(shell.app) if result.name == "adopted volume")
    assert (found.verdict, found.code) == ("fail", "not_composed")
    machine.lay(f"etc/elastio/adopted/{UUID}", "{")
    found = next(result for result in examine(shell.app) if result.name == "adopted volume")
    assert (found.verdict, found.code) == ("fail", "record.unreadable")


def test_a_damaged_record_of_another_volume_holds_up_no_release_by_uuid(shell: Shell, machine: AdoptMachine) -> None:
    machine.adopter().adopt(machine.plan())
    machine.lay("etc/elastio/adopted/another", "")
    assert shell("device", "release", UUID, "--yes").exit_code == Exit.OK
    assert not machine.is_composed


def test_by_its_mount_point_it_is_released_and_mounted_again(shell: Shell, machine: AdoptMachine) -> None:
    machine.mount()
    head = str(machine.sysfs.path("dev/vdh"))
    assert shell("device", "adopt", str(machine.place), "--head", head, "--yes").exit_code == Exit.OK
    assert shell("device", "release", str(machine.place), "--yes").exit_code == Exit.OK
    assert (machine.is_mounted, machine.is_as_before) == (True, True)


@pytest.mark.parametrize("target", ["/dev/null", "nothing", "/"])
def test_what_is_not_adopted_is_not_released(target: str, shell: Shell, machine: AdoptMachine) -> None:
    assert adopt(shell, machine, "--yes") == Exit.OK
    assert shell("device", "release", target, "--yes").exit_code == Exit.CONFIG
    assert machine.records == ["composed"]


def test_at_boot_it_is_asked_for_once_shown_and_taken_back(shell: Shell, machine: AdoptMachine) -> None:
    machine.mount()
    ask = ["device", "adopt", str(machine.place), "--head", str(machine.sysfs.path("dev/vdh")), "--at-boot"]
    assert shell(*ask, "--dry-run").exit_code == Exit.OK
    assert shell(*ask, stdin="n\n").exit_code == Exit.FAILED
    assert not machine.sysfs.exists("etc/elastio/at-boot")
    assert "as was asked" not in shell(*ask, "--yes").stdout
    assert "as was asked" in shell(*ask, "--yes").stdout
    assert f"adopted       {UUID} at {machine.place} is adopted at the next boot" in shell("status").stdout
    assert "no adopted volume" in shell("device", "compose", UUID).stdout, "not in this boot"
    assert shell("device", "adopt", "nothing", "--cancel").exit_code == Exit.CONFIG
    assert shell("device", "adopt", str(machine.place), "--cancel").exit_code == Exit.OK
    assert shell("device", "adopt", str(machine.place), "--cancel").exit_code == Exit.CONFIG
    assert (machine.is_as_before, machine.is_mounted, shell("status").stdout) == (True, True, "")


def test_what_is_asked_for_at_boot_and_adopted_before_is_not_adopted_twice(shell: Shell, machine: AdoptMachine) -> None:
    machine.mount()
    at_boot.ask(machine.adopter(), planned(machine))
    machine.power_off()
    assert adopt(shell, machine, "--yes") == Exit.OK
    assert not machine.sysfs.exists("etc/elastio/at-boot")


def test_doctor_says_why_it_was_not_adopted_at_boot_and_its_uuid_forgets_it(
    shell: Shell, machine: AdoptMachine
) -> None:
    machine.mount()
    at_boot.ask(machine.adopter(), planned(machine))
    machine.power_off()
    machine.failing.add("e2fsck")
    assert shell("device", "compose", UUID).exit_code == Exit.FAILED
    found = next(result for result in examine(shell.app) if result.name == "adopted volume")
    assert (found.verdict, found.code) == ("warn", "at_boot")
    assert all(text in found.sentence for text in (UUID, str(machine.place), "damaged"))
    assert shell("device", "adopt", UUID, "--cancel").exit_code == Exit.OK
    assert not [result for result in examine(shell.app) if result.name == "adopted volume"]


def test_only_root_adopts_and_releases(shell: Shell, machine: AdoptMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert shell("device", "adopt", str(machine.sysfs.path("dev/vdb"))).exit_code == Exit.FAILED
    assert shell("device", "release", UUID).exit_code == Exit.FAILED
    assert machine.is_as_before


def test_free_resumes_what_an_agent_left_suspended(shell: Shell, machine: AdoptMachine) -> None:
    assert adopt(shell, machine, "--yes") == Exit.OK
    machine.lay("sys/block/dm-0/dm/suspended", "1")
    assert "dm-0" in shell("free").stdout
    assert machine.sysfs.read("sys/block/dm-0/dm/suspended") == "0"
    assert "dm-0" not in shell("free").stdout


def test_the_unit_composes_and_without_a_record_it_does_nothing(shell: Shell, machine: AdoptMachine) -> None:
    assert adopt(shell, machine, "--yes") == Exit.OK
    assert "bcache0" in shell("device", "compose", UUID).stdout
    assert shell("device", "compose", UUID[::-1]).exit_code == Exit.OK
    assert isinstance(shell.app.sysfs(), Sysfs)


@pytest.mark.parametrize(
    ("uuid", "code"),
    [
        (UUID.upper(), Exit.OK),
        ("qOmxgA-4yz3-hRtV-8kLm-Nn0p-2bQr-Zx9cWd", Exit.OK),  # as LVM has them
        ("xyz", Exit.USAGE),
        (UUID[:-1], Exit.USAGE),
        (f"{UUID}0", Exit.USAGE),
        (f"../{UUID}", Exit.USAGE),
    ],
)
def test_only_a_uuid_can_be_composed(uuid: str, code: Exit, shell: Shell) -> None:
    assert shell("device", "compose", uuid).exit_code == code


def test_a_lost_record_is_written_again_from_the_head_by_root(
    shell: Shell, machine: AdoptMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert adopt(shell, machine, "--yes") == Exit.OK
    record = machine.sysfs.path(f"etc/elastio/adopted/{UUID}")
    before, head = record.read_text(), str(machine.sysfs.path("dev/vdh"))
    record.unlink()
    for wrong in ((), (UUID, "--head", head)):
        assert shell("device", "compose", *wrong).exit_code == Exit.USAGE
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert shell("device", "compose", "--head", head).exit_code == Exit.FAILED
    assert machine.records == []
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert "bcache0" in shell("device", "compose", "--head", head).stdout
    assert record.read_text() == before
