"""`elastio state`: whether the agent may be removed, without an agent."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from elastio.agent.journal import Journal
from elastio.config.paths import ADOPTED, AT_BOOT, DEFAULT_STATE_DIR, JOURNAL
from elastio.control.exit_codes import Exit
from elastio.core.model import VolumeId
from elastio.core.state import AgentState, Phase
from elastio.host.composed import KEEPING_PREFIX, UUID_PREFIX
from tests.values import cycle

from .conftest import Golden, Shell


def configure(folder: Path) -> Path:
    """A configuration with the state directory of this test."""
    state_dir = folder / "state"
    (folder / "elastio.toml").write_text(
        '[device]\nbacking_uuid = "01234567-89ab-cdef-0123-456789abcdef"\nbandwidth_mb_s = 60\n'
        '[cache]\nbandwidth_mb_s = 128\n[provider]\nname = "sim"\n'
        f'[agent]\nstate_dir = "{state_dir}"\n'
    )
    return state_dir


def test_without_an_open_cycle_it_may_be_removed(elastio: Shell, tmp_path: Path) -> None:
    configure(tmp_path)
    assert elastio("state").exit_code == Exit.OK


def test_an_open_cycle_refuses_and_says_what_to_do(elastio: Shell, tmp_path: Path, golden: Golden) -> None:
    open_boost(configure(tmp_path))
    result = elastio("state")
    assert (result.exit_code, result.stdout) == (Exit.REFUSED, "")
    golden("state_open.txt", result.stderr)


def test_a_faulted_agent_refuses_and_a_volume_that_was_given_up_is_named(elastio: Shell, tmp_path: Path) -> None:
    state_dir = configure(tmp_path)
    write(state_dir, AgentState(phase=Phase.FAULTED))
    faulted = elastio("state")
    assert (faulted.exit_code, faulted.stdout) == (Exit.REFUSED, "")
    assert "elastio recover" in faulted.stderr
    write(state_dir, AgentState(given_up=(VolumeId("vol-7"),)))
    left = elastio("state")
    assert left.exit_code == Exit.OK
    assert "vol-7" in left.stderr


def test_a_journal_that_cannot_be_read_is_a_failure(elastio: Shell, tmp_path: Path) -> None:
    (configure(tmp_path) / JOURNAL).mkdir(parents=True)
    assert elastio("state").exit_code == Exit.FAILED


# --- configurations that are there and cannot be used --------------------------------------------------------


def unknown_key(file: Path) -> None:
    file.write_text(f"{file.read_text()}typing_error = 1\n")


def bad_value(file: Path) -> None:
    file.write_text(file.read_text().replace("= 60", "= -1"))


def no_toml(file: Path) -> None:
    file.write_text(f"{file.read_text()}[[[")


def writable_by_others(file: Path) -> None:
    file.chmod(0o666)


def directory(file: Path) -> None:
    file.unlink()
    file.mkdir()


def link_to_nothing(file: Path) -> None:
    file.unlink()
    file.symlink_to("nothing")


def drop_ins_alone(file: Path) -> None:
    folder = file.with_name(f"{file.name}.d")
    folder.mkdir()
    file.rename(folder / "a.toml")


BREAK = (unknown_key, bad_value, no_toml, writable_by_others, directory, link_to_nothing, drop_ins_alone)
Break = Callable[[Path], None]


def write(state_dir: Path, state: AgentState) -> None:
    journal = Journal(state_dir / JOURNAL, "boot")
    journal.open()
    journal.decision(Phase.IDLE, state, "because", now=1.0, wall=1.0)
    journal.close()


def open_boost(state_dir: Path) -> None:
    write(state_dir, AgentState(phase=Phase.BOOSTING, cycle=cycle()))


@pytest.fixture
def machine(elastio: Shell, tmp_path: Path) -> Shell:
    """All devices of the directory are meant, as for the package; no device keeps its state at the default place."""
    return Shell(replace(elastio.app, directory=tmp_path, socket=None))


@pytest.mark.parametrize("how", BREAK)
@pytest.mark.parametrize("is_open", [False, True])
def test_a_configuration_that_cannot_be_used_forbids_the_removal(
    how: Break, is_open: bool, machine: Shell, tmp_path: Path
) -> None:
    state_dir = configure(tmp_path)
    if is_open:
        open_boost(state_dir)
    how(tmp_path / "elastio.toml")
    result = machine("state")
    assert (result.exit_code, "not known" in result.stderr) == (Exit.CONFIG, True)


@pytest.mark.parametrize("how", [unknown_key, bad_value])
def test_an_open_cycle_is_found_in_spite_of_an_error_elsewhere_in_the_file(
    how: Break, machine: Shell, tmp_path: Path
) -> None:
    open_boost(configure(tmp_path))
    how(tmp_path / "elastio.toml")
    result = machine("state")
    assert (result.exit_code, "is not released" in result.stderr) == (Exit.CONFIG, True)


def test_a_further_device_counts_as_well(machine: Shell, tmp_path: Path) -> None:
    configure(tmp_path)
    (tmp_path / "scratch.toml").write_text('[agent]\nstate_dir = "/srv/scratch"\n')
    result = machine("state")
    assert (result.exit_code, str(tmp_path / "state") in result.stdout) == (Exit.CONFIG, True)


def test_without_any_configuration_the_default_directory_is_looked_into(machine: Shell) -> None:
    assert str(DEFAULT_STATE_DIR) in machine("state").output


@pytest.mark.runs_programs
@pytest.mark.parametrize("code", [Exit.FAILED, Exit.CONFIG, Exit.REFUSED])
def test_the_package_is_not_removed_after_any_other_answer(code: Exit, tmp_path: Path) -> None:
    for name, body in (("elastio", f"exit {int(code)}"), ("systemctl", "exit 99"), ("cat", "exec /bin/cat")):
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!/bin/sh\n{body}\n")
        program.chmod(0o755)
    script = Path(__file__).parents[3] / "debian/elastio.prerm"
    done = subprocess.run(
        ["/bin/sh", str(script), "remove"],
        env={"PATH": str(tmp_path / "bin")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, "not removed" in done.stderr) == (1, True)


@pytest.mark.runs_programs
@pytest.mark.parametrize("environment", [{}, {"ELASTIO_REMOVE": "anyway"}])
@pytest.mark.parametrize(
    ("mapped", "record", "said"),
    [
        ("LVM-another", None, ""),
        ("LVM-another", "6d0c4a57", "device release 6d0c4a57"),
        (f"{UUID_PREFIX}head", "6d0c4a57", "device release 6d0c4a57"),
        (f"{UUID_PREFIX}head", None, "device compose --head"),
        (f"{KEEPING_PREFIX}head", None, "device compose --head"),
    ],
)
def test_the_package_is_not_removed_while_a_volume_has_its_record_or_is_composed(
    environment: dict[str, str], mapped: str, record: str | None, said: str, tmp_path: Path
) -> None:
    """The record may have been removed by hand."""
    for number, uuid in enumerate(("CRYPT-LUKS2-safe", mapped)):
        (tmp_path / f"sys/block/dm-{number}/dm").mkdir(parents=True)
        (tmp_path / f"sys/block/dm-{number}/dm/uuid").write_text(f"{uuid}\n")
    (tmp_path / AT_BOOT).mkdir(parents=True)
    if record:
        (tmp_path / ADOPTED).mkdir()
        (tmp_path / ADOPTED / record).touch()
    (tmp_path / "elastio").write_text("#!/bin/sh\n")
    (tmp_path / "elastio").chmod(0o755)
    script = (Path(__file__).parents[3] / "debian/elastio.prerm").read_text()
    for folder in ("/etc/", "/sys/", "/run/", "/var/"):
        script = script.replace(f" {folder}", f" {tmp_path}{folder}")
        assert not re.search(rf"(?<!{tmp_path}){folder}", script), "it would change this machine"
    done = subprocess.run(
        ["/bin/sh", "-s", "remove"],
        input=script,
        env={"PATH": f"{tmp_path}:/usr/bin:/bin", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    is_refused = said != "" and not environment
    assert done.returncode == is_refused
    assert (said in done.stderr) if is_refused else (done.stderr == "")
    assert (tmp_path / AT_BOOT).exists() == is_refused, "nothing is adopted that was asked for before"
