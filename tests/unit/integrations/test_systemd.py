"""The example units are valid, and what they run is a command of elastio that tells what they say it tells."""

from __future__ import annotations

import configparser
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.sim_agent import SimAgent

FOLDER = Path(__file__).parents[3] / "integrations/systemd"
UNITS = sorted(path for path in FOLDER.rglob("*") if path.is_file())


def commands(unit: str) -> list[list[str]]:
    lines = re.findall(r"^ExecStart=-?(.+)$", (FOLDER / unit).read_text(), re.MULTILINE)
    return [shlex.split(line) for line in lines]


@pytest.mark.runs_programs
def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    program = shutil.which("systemd-analyze")
    assert program is not None, "systemd is missing: run `make setup`"
    for path in FOLDER.glob("elastio-*"):
        text = path.read_text().replace("/usr/bin/elastio ", "/bin/true ").replace("/usr/bin/logger ", "/bin/true ")
        (tmp_path / path.name.replace("@.", "@elastio-check.")).write_text(text)
    names = [str(path) for path in tmp_path.iterdir()]
    done = subprocess.run([program, "verify", "--man=no", *names], capture_output=True, text=True, check=False)
    assert [line for line in (done.stdout + done.stderr).splitlines() if "elastio" in line] == []


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_every_failure_leads_to_the_alert(path: Path) -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None, allow_no_value=True)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(path.read_text())
    if "OnFailure" in unit["Unit"]:
        assert unit["Unit"]["OnFailure"] == "elastio-alert@%N.service"
        assert (FOLDER / "elastio-alert@.service").exists()


def test_a_check_and_the_agent_lead_to_the_alert() -> None:
    assert [path.name for path in UNITS if "\nOnFailure=" in path.read_text()] == [
        "elastio-check.service",
        "alert.conf",
    ]


def test_the_check_succeeds_while_nothing_needs_attention(agent: SimAgent) -> None:
    ((_, *arguments),) = commands("elastio-check.service")
    assert agent.run("elastio", *arguments).returncode == 0
    assert agent.run("elastio", "--socket", "/nowhere", *arguments).returncode == 4


def test_the_alert_runs_commands_that_exist(agent: SimAgent) -> None:
    asked = [words for words in commands("elastio-alert@.service") if words[0] == "/usr/bin/elastio"]
    assert len(asked) == 3
    assert [agent.run("elastio", *words[1:]).returncode for words in asked] == [0, 0, 0]
