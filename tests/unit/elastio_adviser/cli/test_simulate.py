"""`elastio simulate`: experiments and traces, as text and as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from elastio.control.exit_codes import Exit
from elastio_cli.main import main

Golden = Callable[[str, str], None]
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


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--faults", "create#1=nonsense"),
        ("--backing-mb-s", "0"),
        ("--size-gib", "0"),
        ("--cache-mb-s", "0"),
        ("--cache-mb-s", "2000"),  # no cloud sells it
    ],
)
def test_an_experiment_that_is_impossible_is_wrong_usage(option: str, value: str) -> None:
    assert CliRunner().invoke(main, [*QUICK, option, value]).exit_code == Exit.USAGE


def test_a_run_that_does_not_end_is_one_sentence() -> None:
    result = CliRunner().invoke(main, [*QUICK, "--faults", "detach#1+=refuse"])
    assert (result.exit_code, result.output.count("\n")) == (Exit.FAILED, 1)


# --- traces ----------------------------------------------------------------------------------------------------

TRACE = "seconds,read_mb_s,write_mb_s\n0,0,0.5\n60,0,90\n85,0,0.5\n185,0,0.5\n"


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    (tmp_path / "t.csv").write_text(TRACE)
    return tmp_path / "t.csv"


SLOW = ("--backing-mb-s", "33", "--cache-mb-s", "128")


def test_replays_a_trace_under_several_policies(trace: Path, golden: Golden) -> None:
    policies = ("--policy", "quick:inactivity_delay_s=5", "--policy", "small:initial_size_gib=2")
    result = CliRunner().invoke(main, ["simulate", "--trace", str(trace), *SLOW, *policies])
    assert result.exit_code == 0, result.output
    golden("simulate_trace.txt", result.output)


def test_the_price_of_an_hour_makes_the_answer_one_way(trace: Path, golden: Golden) -> None:
    options = (*SLOW, "--tariff", "agbs", "--hour-value", "500000", "--no-cold", "--modify-changes", "0")
    result = CliRunner().invoke(main, ["simulate", "--trace", str(trace), *options])
    assert result.exit_code == 0, result.output
    golden("simulate_hour_value.txt", result.output)


def test_prices_without_a_tariff_are_those_of_earlier_releases(trace: Path) -> None:
    given = ["simulate", "--trace", str(trace), *SLOW, "--per-gb-hour", "0.1", "--currency", "EUR", "--json"]
    found = json.loads(CliRunner().invoke(main, given).output)
    slow = found["static"][0]
    assert found["currency"] == "EUR"
    assert found["cold"] == []
    assert slow["per_month"] == pytest.approx(720 * (0.1 * 50 + 0.00006 * 33), rel=1e-3)


def test_two_prices_of_0_mean_agbs(trace: Path) -> None:
    given = ["simulate", "--trace", str(trace), *SLOW, "--per-gb-hour", "0", "--per-mb-s-hour", "0", "--json"]
    found = json.loads(CliRunner().invoke(main, given).output)
    assert found["currency"] == "AGBs"
    assert found["static"][0]["cost"] == pytest.approx(found["static"][0]["agbs"])


def test_two_types_of_volumes_have_two_tariffs_and_no_change_between_them(trace: Path, tmp_path: Path) -> None:
    for name, price in (("slow", 0.00005), ("fast", 0.0001)):
        (tmp_path / f"{name}.toml").write_text(f'currency = "EUR"\nper_gib_hour = {price}\n')
    kinds = ("--tariff", str(tmp_path / "slow.toml"), "--fast-tariff", str(tmp_path / "fast.toml"))
    found = json.loads(CliRunner().invoke(main, ["simulate", "--trace", str(trace), *SLOW, *kinds, "--json"]).output)
    slow, fast = found["static"]
    assert fast["per_month"] == pytest.approx(2 * slow["per_month"])


@pytest.mark.runs_programs  # matplotlib lists the fonts of a machine the first time that it draws there
def test_a_trace_is_drawn_and_printed_as_json(trace: Path, tmp_path: Path) -> None:
    given = ["simulate", "--trace", str(trace), "--json", "--png", str(tmp_path / "t.png")]
    found = json.loads(CliRunner().invoke(main, given).output)
    assert found["policies"][0]["name"] == "adaptive"
    assert isinstance(found["worth_it"], bool)
    assert (tmp_path / "t.png").stat().st_size > 5000


def test_a_picture_in_a_directory_that_is_missing_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    given = ["simulate", "--trace", str(tmp_path / "none.csv"), "--png", str(tmp_path / "deep" / "t.png")]
    result = CliRunner().invoke(main, given)
    assert (result.exit_code, result.stderr.count("\n"), "deep" in result.stderr) == (Exit.FAILED, 1, True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "code", "named"),
    [
        (["--policy", "x:colour=1"], 2, "--policy"),
        (["--policy", "x:trigger_delay_s"], 2, "--policy"),
        (["--policy", "x:trigger_delay_s=1,trigger_delay_s=2"], 2, "--policy"),
        (["--policy", "x:trigger_delay_s=1", "--policy", "x:"], 2, "--policy"),
        (["--policy", "x:utilization_threshold=50"], 2, "policy.utilization_threshold"),
        (["--policy", "x:initial_size_gib=1e300"], 2, "cache.initial_size_gib"),
        (["--faults", "create#1=throttle"], 2, "--faults"),
        (["--experiment", "cm1"], 2, "--experiment"),
        (["--device", "sda"], 1, "--device"),
        (["--interval", "5"], 1, "--interval"),
        (["--modify-gap-h", "1e308"], 2, "--modify-gap-h"),
        (["--per-gb-hour", "1e308"], 2, "--per-gb-hour"),
        (["--backing-mb-s", "1e-300"], 2, "--backing-mb-s"),
        (["--size-gib", "1e300"], 2, "--size-gib"),
        (["--initial-gib", "1e300"], 2, "--initial-gib"),
        (["--interval", "1e300"], 2, "--interval"),
        (["--tariff", "gp3", "--per-gb-hour", "1"], 2, "--tariff"),
        (["--tariff", "nonesuch"], 2, "--tariff"),
        (["--fast-tariff", "nonesuch"], 2, "--fast-tariff"),
        (["--cold", "gp3"], 2, "--cold"),
        (["--cold", "sc1", "--no-cold"], 2, "--no-cold"),
        (["--currency", "EUR", "--cold", "sc1"], 2, "USD"),
        (["--format", "fio"], 1, "fio"),
        (["--format", "iostat"], 1, "--device"),
    ],
)
def test_an_invalid_option_for_a_trace_is_named(options: list[str], code: int, named: str, trace: Path) -> None:
    result = CliRunner().invoke(main, ["simulate", "--trace", str(trace), *options])
    assert result.exit_code == code
    assert named in result.output.splitlines()[-1]


@pytest.mark.parametrize(
    "given",
    [
        ("--png", "x.png"),
        ("--policy", "a:trigger_delay_s=1"),
        ("--currency", "EUR"),
        ("--per-gb-hour", "1"),
        ("--per-mb-s-hour", "1"),
        ("--tariff", "gp3"),
        ("--fast-tariff", "gp3"),
        ("--cold", "sc1"),
        ("--hour-value", "1"),
        ("--modify-changes", "1"),
        ("--modify-window-h", "1"),
        ("--modify-gap-h", "1"),
        ("--format", "csv"),
        ("--device", "sda"),
        ("--interval", "1"),
        ("--saturated", "33"),
    ],
)
def test_an_option_for_traces_is_refused_without_one(given: tuple[str, str]) -> None:
    result = CliRunner().invoke(main, [*QUICK, *given])
    assert result.exit_code == Exit.USAGE
    assert given[0] in result.output.splitlines()[-1]


def test_a_trace_that_is_too_long_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("seconds,read_mb_s,write_mb_s\n0,0,1\n1e11,0,1\n")
    result = CliRunner().invoke(main, ["simulate", "--trace", str(tmp_path / "t.csv")])
    assert (result.exit_code, result.output.count("\n")) == (Exit.FAILED, 1)
