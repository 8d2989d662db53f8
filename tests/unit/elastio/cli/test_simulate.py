"""`elastio simulate`: the three-way comparison as text and as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from elastio.cli.main import main

QUICK = ["simulate", "--experiment", "demo", "--initial-gib", "4"]


def test_compares_three_setups_and_lists_the_phases() -> None:
    result = CliRunner().invoke(main, QUICK)
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert [line.split()[0] for line in lines[1:4]] == ["static-slow", "static-fast", "adaptive"]
    assert sum(1 for line in lines if " GiB " in line and line.endswith("AGBs")) == 4


def test_prints_one_json_document_with_the_timeline() -> None:
    result = CliRunner().invoke(main, [*QUICK, "--json"])
    found = json.loads(result.output)
    assert found["adaptive"]["completion_s"] < found["slow"]["completion_s"]
    assert found["phases"][0]["size_bytes"] == 4 * 2**30
    assert found["timeline"][0]["phase"] == "idle"
    assert found["lost_blocks"] == 0


def test_a_story_that_is_none_is_wrong_usage() -> None:
    result = CliRunner().invoke(main, [*QUICK, "--faults", "create#1=nonsense"])
    assert result.exit_code == 2
    assert "nonsense cannot happen here" in result.output


@pytest.mark.parametrize("option", ["--backing-mb-s", "--size-gib", "--cache-mb-s"])
def test_a_volume_of_no_size_is_wrong_usage(option: str) -> None:
    assert CliRunner().invoke(main, ["simulate", option, "0"]).exit_code == 2


def test_a_run_that_does_not_end_is_one_sentence() -> None:
    result = CliRunner().invoke(main, [*QUICK, "--faults", "detach#1+=refuse"])
    assert result.exit_code == 1
    assert result.output.count("\n") == 1
    assert "did not end" in result.output


# --- traces ----------------------------------------------------------------------------------------------------

TRACE = "seconds,read_mb_s,write_mb_s\n0,0,0.5\n60,0,90\n85,0,0.5\n185,0,0.5\n"


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    (tmp_path / "t.csv").write_text(TRACE)
    return tmp_path / "t.csv"


def test_replays_a_trace_under_several_policies_and_says_whether_it_is_worth_it(trace: Path) -> None:
    policies = ("--policy", "quick:inactivity_delay_s=5", "--policy", "small:initial_size_gib=2")
    result = CliRunner().invoke(main, ["simulate", "--trace", str(trace), *policies])
    assert result.exit_code == 0, result.output
    names = [line.split()[0] for line in result.output.splitlines()[1:6]]
    assert names == ["static-slow", "static-fast", "modify-volume", "quick", "small"]
    assert result.output.splitlines()[-1].startswith("The agent is ")


def test_a_trace_is_drawn_and_printed_as_json(trace: Path, tmp_path: Path) -> None:
    given = ["simulate", "--trace", str(trace), "--json", "--png", str(tmp_path / "t.png")]
    found = json.loads(CliRunner().invoke(main, given).output)
    assert found["policies"][0]["name"] == "adaptive"
    assert isinstance(found["worth_it"], bool)
    assert (tmp_path / "t.png").stat().st_size > 5000


@pytest.mark.parametrize(
    ("options", "code", "sentence"),
    [
        (["--policy", "x:colour=1"], 2, "colour is no setting of a policy"),
        (["--policy", "x:hold_s"], 2, "write NAME:key=number"),
        (["--format", "fio"], 1, "is no line of a fio bandwidth log"),
        (["--format", "iostat"], 1, "name the device with --device"),
    ],
)
def test_a_wrong_question_about_a_trace_is_one_sentence(
    options: list[str], code: int, sentence: str, trace: Path
) -> None:
    result = CliRunner().invoke(main, ["simulate", "--trace", str(trace), *options])
    assert result.exit_code == code
    assert sentence in result.output
