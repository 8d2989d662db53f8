"""What the workflow took at each bandwidth, what one profile predicts of it, and which bars that meets."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from elastio_testbed.bars import missed
from elastio_testbed.bars_report import section, to_text
from elastio_testbed.cli import main
from elastio_testbed.files import json_text
from elastio_testbed.montage import evaluation
from elastio_testbed.montage.evaluation import (
    BEST,
    DATA_OVER_COMPUTING_MBIT_S,
    DOUBLED,
    LOWEST,
    PROFILED,
    PUBLISHED_MBIT_S,
    Adaptive,
    Burst,
    Found,
    Run,
    bars,
    compute_s,
    curve_of,
    figures,
    mb_s,
    run_of_json,
    staged_bytes,
)

COMPUTING_S = 20.0


def seconds(mbit_s: int) -> float:
    """As the published proportion has it."""
    return COMPUTING_S * (1 + DATA_OVER_COMPUTING_MBIT_S / mbit_s)


def run(mbit_s: int) -> Run:
    took_s = seconds(mbit_s)
    predicted_s = None if mbit_s == PROFILED else took_s
    return Run(mbit_s, mb_s(mbit_s, 0.5), took_s, predicted_s, 0.0, (took_s, *(0.0,) * 9), "cafe", took_s - 0.3)


ALL_RUNS = tuple(run(mbit_s) for mbit_s in PUBLISHED_MBIT_S)
# The first burst learns nothing yet, and is slower.
BURSTS = (Burst(8.0, 2 * seconds(BEST), "cafe"), Burst(11.3, seconds(BEST), "cafe"))
ADAPTIVE = Adaptive(BURSTS, 11.3, 200.0, 350.0, 1000.0)
WHOLE = Found(ALL_RUNS, 15.0, {"seconds": 35.0}, ADAPTIVE)


def changed(mbit_s: int, **fields: Any) -> Found:
    return replace(WHOLE, runs=tuple(replace(r, **fields) if r.mbit_s == mbit_s else r for r in ALL_RUNS))


def names_missed(found: Found) -> list[str]:
    return [bar.name for bar in missed(bars(found))]


# --- sizes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("scale", "bandwidth"), [(1.0, 0.5), (0.2, 1.0), (2.0, 0.1)])
def test_data_and_computing_have_the_published_proportion_at_every_scale(scale: float, bandwidth: float) -> None:
    computing_s = sum(compute_s(scale, bandwidth).values())
    assert evaluation.LONGER * staged_bytes(scale, bandwidth) / 1e6 / computing_s == pytest.approx(
        mb_s(DATA_OVER_COMPUTING_MBIT_S, bandwidth), rel=1e-3
    )
    assert computing_s == pytest.approx(scale * sum(compute_s(1.0, 0.5).values()), rel=0.03)


def test_that_proportion_gives_both_published_figures() -> None:
    found = figures(WHOLE)
    assert found["lowest_over_best"] == pytest.approx(4.0, abs=0.01)
    assert found["doubling_saves_pct"] == pytest.approx(7.9, abs=0.1)


def test_a_small_scale_leaves_images_that_overlap() -> None:
    assert evaluation.pixels(0.01, 0.01) == evaluation.LEAST_PIXELS


# --- the prediction ------------------------------------------------------------------------------------------


def profile(at_mb_s: float, rest_s: float, moved_mb: float) -> dict[str, Any]:
    """Part of the document of `elastio profile --json`."""
    waited_s = moved_mb / at_mb_s
    return {
        "measured_mb_s": at_mb_s,
        "waited_s": {"least": 0.9 * waited_s, "likely": waited_s, "most": 1.1 * waited_s},
        "curve": [{"mb_s": at_mb_s, "time_s": rest_s + waited_s, "least_s": 0.0, "most_s": 0.0}],
    }


def test_the_curve_of_a_profile_is_computing_and_data_over_bandwidth() -> None:
    curve = curve_of(profile(4.0, 20.0, 60.0))
    assert curve is not None
    assert [curve.time_s(each) for each in (1.0, 4.0, 30.0)] == pytest.approx([80.0, 35.0, 22.0])


@pytest.mark.parametrize("absent", [{"measured_mb_s": None}, {"curve": []}])
def test_where_nothing_waited_for_bandwidth_there_is_no_curve(absent: dict[str, Any]) -> None:
    assert curve_of({**profile(4.0, 20.0, 60.0), **absent}) is None


# --- bars ----------------------------------------------------------------------------------------------------


def test_all_bars_are_met_where_everything_is_as_it_has_to_be() -> None:
    assert names_missed(WHOLE) == []


@pytest.mark.parametrize(
    ("mbit_s", "fields", "name"),
    [
        (LOWEST, {"seconds": 3.4 * seconds(BEST), "predicted_s": 3.4 * seconds(BEST)}, "time at 100 over 2000 Mb/s"),
        (DOUBLED, {"seconds": 0.91 * seconds(BEST)}, "saved from 2000 to 4000 Mb/s, %"),
        (300, {"predicted_s": 1.06 * seconds(300)}, "worst prediction from 500 Mb/s, %"),
        (300, {"predicted_s": 0.94 * seconds(300)}, "worst prediction from 500 Mb/s, %"),
        (900, {"mosaic": "beef"}, "different mosaics"),
    ],
)
def test_a_bar_is_missed(mbit_s: int, fields: dict[str, Any], name: str) -> None:
    assert name in names_missed(changed(mbit_s, **fields))


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"learned_mb_s": 10.5}, "learned bandwidth over the inflection"),
        ({"learned_mb_s": 21.3}, "learned bandwidth over the inflection"),
        ({"cache_agbs": 251.0}, "adaptive, AGBs more than static at 2000 Mb/s, %"),
        ({"backing_agbs": 401.0}, "adaptive, AGBs more than static at 2000 Mb/s, %"),
        (
            {"bursts": (BURSTS[1], Burst(11.3, 1.04 * seconds(BEST), "cafe"))},
            "adaptive, time more than static at 2000 Mb/s, %",
        ),
        ({"bursts": (replace(BURSTS[0], mosaic="beef"), BURSTS[1])}, "different mosaics"),
    ],
)
def test_a_bar_of_the_adaptive_set_up_is_missed(fields: dict[str, Any], name: str) -> None:
    assert names_missed(replace(WHOLE, adaptive=replace(ADAPTIVE, **fields))) == [name]


def test_times_of_the_adaptive_set_up_are_compared_without_the_start_of_the_program() -> None:
    overhead_pct = figures(WHOLE)["overhead_vs_static_best_pct"]
    assert overhead_pct == pytest.approx(100 * (seconds(BEST) / (seconds(BEST) - 0.3) - 1))


@pytest.mark.parametrize("absent", [LOWEST, BEST, DOUBLED, 300])
def test_a_bar_whose_run_has_not_been_made_is_missed(absent: int) -> None:
    found = replace(WHOLE, runs=tuple(each for each in ALL_RUNS if each.mbit_s != absent))
    assert "worst prediction from 500 Mb/s, %" in names_missed(found)


def test_where_nothing_was_measured_all_bars_are_missed() -> None:
    assert len(names_missed(Found())) == len(bars(Found()))
    assert len(names_missed(replace(WHOLE, adaptive=None))) == 3


def test_the_error_is_that_of_the_prediction_over_what_was_measured() -> None:
    assert replace(run(300), predicted_s=1.1 * seconds(300)).error_pct == pytest.approx(10.0)
    assert run(PROFILED).error_pct is None


# --- results -------------------------------------------------------------------------------------------------


def document(found: Found) -> dict[str, Any]:
    return {
        "experiment": "montage",
        "machine": "A processor",
        "hypervisor": "uml",
        "accelerator": "none",
        "kernel": "6.1.0",
        "date": "2026-01-01T00:00:00+00:00",
        "code": "0.1.0",
        "scale": 1.0,
        "bandwidth": 0.5,
        "absent": [],
        "best_mb_s": 15.0,
        "bars": [bar.to_json() for bar in bars(found)],
        "runs": [each.to_json() for each in found.runs],
        "adaptive": None if found.adaptive is None else found.adaptive.to_json(),
    }


def test_a_stored_run_is_the_run() -> None:
    assert [run_of_json(json.loads(json.dumps(each.to_json()))) for each in ALL_RUNS] == list(ALL_RUNS)


def test_the_text_has_every_bar() -> None:
    text = to_text(document(changed(900, mosaic="beef")))
    assert "MISSED  different mosaics" in text
    assert "1 of 7 bars missed" in text


def test_tables_have_each_run_beside_its_prediction_and_the_published_time(tmp_path: Path) -> None:
    result, page = tmp_path / "result.json", tmp_path / "page.md"
    result.write_text(json_text(document(WHOLE)))
    page.write_text("<!-- results: montage -->\nold\n<!-- end: montage -->\n")
    done = CliRunner().invoke(main, ["tables", str(result), "--into", str(page)])
    assert done.exit_code == 0, done.output
    assert "| 100 | 0.8 | 95.0 | 95.0 | +0.0 | 4.00 | 4.00 |" in page.read_text()
    assert "| 500 | 4 | 35.0 | - | - | 1.47 | - |" in page.read_text()
    assert "| 100 | 100 |" + " 0 |" * 9 in page.read_text()
    assert "| 2 | 11.3 | 23.8 |" in page.read_text()


def test_tables_of_a_run_that_was_ended_early_have_what_was_measured() -> None:
    assert "| 500 | 4 | 35.0 | - | - | - | - |" in section(document(Found((run(PROFILED),))))


def test_options_that_the_experiment_does_not_take_are_refused_before_anything_runs() -> None:
    done = CliRunner().invoke(main, ["run", "montage", "--cloud", "openstack"])
    assert done.exit_code == 2
    assert "--cloud" in done.output
