"""`elastio simulate`: the three-way comparison as text and as JSON."""

from __future__ import annotations

import json

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
