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


def test_a_cache_that_no_cloud_sells_is_wrong_usage() -> None:
    result = CliRunner().invoke(main, [*QUICK, "--cache-mb-s", "2000"])
    assert result.exit_code == 2
    assert "a cache of 2033 MB/s, to write and to flush together, is not sold; allowed: 1 to 1000 MB/s" in result.output


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


@pytest.mark.runs_programs  # matplotlib lists the fonts of a machine the first time that it draws there
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
        (["--policy", "x:trigger_delay_s"], 2, "write NAME:key=number"),
        (["--policy", "x:trigger_delay_s=1,trigger_delay_s=2"], 2, "names a setting twice"),
        (["--policy", "x:trigger_delay_s=1", "--policy", "x:"], 2, "x is given twice"),
        (["--policy", "x:utilization_threshold=50"], 2, "policy.utilization_threshold is 50.0; allowed"),
        (["--policy", "x:initial_size_gib=1e300"], 2, "cache.initial_size_gib is 1e+300; allowed"),
        (["--faults", "create#1=throttle"], 2, "--faults is for experiments, not for a trace"),
        (["--experiment", "cm1"], 2, "--experiment is for experiments, not for a trace"),
        (["--device", "sda"], 1, "names no devices: leave --device out"),
        (["--interval", "5"], 1, "leave --interval out"),
        (["--modify-gap-h", "1e308"], 2, "--modify-gap-h"),
        (["--per-gb-hour", "1e308"], 2, "--per-gb-hour"),
        (["--backing-mb-s", "1e-300"], 2, "--backing-mb-s"),
        (["--size-gib", "1e300"], 2, "--size-gib"),
        (["--initial-gib", "1e300"], 2, "--initial-gib"),
        (["--interval", "1e300"], 2, "--interval"),
        (["--format", "fio"], 1, "fio bandwidth log"),
        (["--format", "iostat"], 1, "name the device with --device"),
    ],
)
def test_a_wrong_question_about_a_trace_is_one_sentence(
    options: list[str], code: int, sentence: str, trace: Path
) -> None:
    result = CliRunner().invoke(main, ["simulate", "--trace", str(trace), *options])
    assert result.exit_code == code
    assert sentence in result.output


@pytest.mark.parametrize(
    "given",
    [
        ("--png", "x.png"),
        ("--policy", "a:trigger_delay_s=1"),
        ("--currency", "EUR"),
        ("--per-gb-hour", "1"),
        ("--per-mb-s-hour", "1"),
        ("--modify-gap-h", "1"),
        ("--format", "csv"),
        ("--device", "sda"),
        ("--interval", "1"),
        ("--saturated", "33"),
    ],
)
def test_what_only_a_trace_needs_is_refused_without_one(given: tuple[str, str]) -> None:
    result = CliRunner().invoke(main, [*QUICK, *given])
    assert result.exit_code == 2
    assert f"{given[0]} is for --trace" in result.output


def test_a_trace_that_would_run_for_ever_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("seconds,read_mb_s,write_mb_s\n0,0,1\n1e11,0,1\n")
    result = CliRunner().invoke(main, ["simulate", "--trace", str(tmp_path / "t.csv")])
    assert result.exit_code == 1
    assert result.output.count("\n") == 1
    assert "at most 31 days are replayed" in result.output
