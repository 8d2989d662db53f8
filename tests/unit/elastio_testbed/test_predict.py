"""What the laboratory calibrates for an experiment, and how it compares prediction and run."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from elastio.units import GB, GIB
from elastio_calibration.application import Application
from elastio_calibration.cli.calibrate import Asked
from elastio_calibration.cli.calibrate import calibrate as elastio_calibrate
from elastio_calibration.measurement import Conditions, Measurement, Setup
from elastio_calibration.predict import CacheSizes, Predictor
from elastio_calibration.profile import Profile
from elastio_testbed import experiment
from elastio_testbed.calibrating import calibration_commands, grids, measured_fast
from elastio_testbed.errors import PlanError
from elastio_testbed.predict import Prediction, application_of, fixed, recommend, require_same, to_text
from elastio_testbed.result import Result, SetupResult
from elastio_testbed.trial import Plan

GOLDEN = Path(__file__).parents[2] / "golden"
CM1 = Plan("cm1", (), scale=0.25, bandwidth=0.5)
CONDITIONS = Conditions("6.1", "aws", "m5", "gp3", "gp3", 16.5, 64.0, 0.3, 7.5, 0.25, writers=2)


def options(command: list[str]) -> dict[str, str]:
    return {name: value for name, value in pairwise(command) if name.startswith("--")}


# --- what is calibrated --------------------------------------------------------------------------------------


def test_calibrates_both_dumps_with_caches_up_to_the_first_one() -> None:
    scaled = CM1.scaled()
    commands = [options(command) for command in calibration_commands(scaled, 2, 0.0)]
    assert [round(float(c["--datasets"]) * GB) for c in commands] == list(dict.fromkeys(scaled.dumps_bytes))
    for command in commands:
        caches = [float(gb) for gb in command["--caches"].split(",")]
        assert caches == sorted(caches)
        assert caches[-1] * GB == pytest.approx(scaled.initial_cache_gib * GIB)
        assert (command["--repeats"], command["--writers"], command["--pace"]) == ("2", "2", "0.000")
    assert len({c["--record"] for c in commands}) == 1


def test_the_guests_command_accepts_the_options() -> None:
    scaled = CM1.scaled()
    for command in calibration_commands(scaled, 2, 62.5):
        assert command[:2] == ["elastio", "calibrate"]
        given = elastio_calibrate.make_context("calibrate", command[2:]).params
        asked = Asked(**{name: value for name, value in given.items() if name != "directory"})
        assert (given["directory"], asked.stage, asked.pace, asked.yes) == (Path("/data"), "run", 62.5, True)
        points = asked.schedule().points
        assert {p.dataset_bytes for p in points} < set(scaled.dumps_bytes)
        assert [p.cache_bytes for p in points][-2:] == [round(scaled.initial_cache_gib * GIB), 0]
        least = round(scaled.least_cache_gib * GIB)
        assert all(least <= p.cache_bytes for p in points if p.cache_bytes)


def test_calibrates_with_the_writers_and_the_pace_of_the_application() -> None:
    lammps = replace(CM1, experiment="lammps").scaled()
    commands = [options(command) for command in calibration_commands(lammps, 2, 62.5)]
    assert {(c["--writers"], c["--pace"]) for c in commands} == {("1", "62.500")}


def test_equal_dumps_need_one_grid_and_caches_are_not_smaller_than_the_minimum_of_bcache() -> None:
    (caches,) = grids(replace(CM1, experiment="demo").scaled()).values()
    assert len(caches) == 5
    for caches in grids(Plan("cm1", (), 0.1, 0.5).scaled()).values():
        assert len(caches) == 2
    with pytest.raises(PlanError) as raised:
        calibration_commands(Plan("cm1", (), 0.04, 0.5).scaled(), 1, 0.0)
    assert raised.value.code == "scale"


@pytest.mark.parametrize("scale", [0.1, 0.12, 0.15, 0.2])
def test_the_least_size_that_the_agent_learns_is_sold_as_it_is_and_was_calibrated(scale: float) -> None:
    small = Plan("demo", (), scale, 0.5).scaled()
    least = round(small.least_cache_gib * GIB)
    assert least >= 0.26 * GIB
    assert least % small.unit_bytes == 0
    (command,) = calibration_commands(small, 1, 0.0)
    asked = elastio_calibrate.make_context("calibrate", command[2:]).params
    points = Asked(**{name: value for name, value in asked.items() if name != "directory"}).schedule().points
    assert min(p.cache_bytes for p in points if p.cache_bytes) == least


def test_the_fast_volume_is_measured_with_the_applications_own_dumps_and_the_pace_of_the_later_ones() -> None:
    dump: dict[str, Any] = {"began": 2.0, "ended": 8.0, "bytes": 300_000_000}
    assert measured_fast([dump, dump]).pace_mb_s == 0.0
    found = measured_fast([{**dump, "figures": {"lammps_wrote_s": s}} for s in (30.0, 5.0, 6.0, 4.0)])
    assert [m.throughput_mb_s for m in found.measurements] == [50.0] * 4
    assert found.pace_mb_s == 60.0


# --- what is predicted and run -------------------------------------------------------------------------------


def test_the_experiment_is_the_application_that_is_predicted() -> None:
    scaled = CM1.scaled()
    found = application_of(scaled)
    assert (found.initial_bytes, found.checkpoint_bytes) == scaled.dumps_bytes[:2]
    assert found.checkpoints == 3
    assert found.compute_s == pytest.approx(275)


@pytest.mark.parametrize("experiment", ["bonnie", "cold"])
def test_neither_a_benchmark_nor_a_cold_volume_can_be_predicted(experiment: str) -> None:
    with pytest.raises(PlanError) as raised:
        application_of(replace(CM1, experiment=experiment).scaled())
    assert raised.value.code == "workload"


def test_a_planned_size_is_run_with_caches_of_that_size_only() -> None:
    scaled = fixed(CM1, GB // 2).scaled()
    assert scaled.initial_cache_gib * GIB == pytest.approx(GB // 2, rel=0.02)
    assert scaled.least_cache_gib == scaled.most_cache_gib == scaled.initial_cache_gib
    free = CM1.scaled()
    assert free.least_cache_gib < free.initial_cache_gib < free.most_cache_gib


def test_a_calibration_of_another_scale_is_refused() -> None:
    require_same(CONDITIONS, CM1.scaled(), Path("p.json"))
    with pytest.raises(PlanError) as raised:
        require_same(CONDITIONS, replace(CM1, scale=0.125).scaled(), Path("p.json"))
    assert raised.value.code == "profile"


def predicted() -> tuple[Predictor, Application]:
    size = GB // 2
    made = tuple(
        Measurement(Setup.ADAPTIVE, size, seconds, cache_bytes=cache, held_s=60.0, learned_bytes=GB)
        for cache, seconds in ((GB // 2, 20.0), (GB, 10.0))
    )
    profile = Profile(CONDITIONS, 5 * GB, made, "2026-11-20T08:00:00+00:00", "elastio")
    application = Application(checkpoint_gb=0.5, checkpoints=3, iteration_s=100, iterations=3)
    return Predictor(profile), application


def result(setup: experiment.Setup, completion_s: float, agbs: float) -> SetupResult:
    return SetupResult(setup, completion_s, 0.0, agbs, 0.0, 0.0, (10.0,), True, 0)


def prediction() -> Prediction:
    predictor, application = predicted()
    forecasts = predictor.all_setups(application, CacheSizes(GB))
    reals = tuple(
        result(experiment.Setup(f.setup.value), f.completion_s.value * 2, f.agbs.value * 4) for f in forecasts
    )
    return Prediction(CM1, predictor.profile, forecasts, Result(reals))


def test_ratios_are_predicted_over_measured() -> None:
    document = json.loads(json.dumps(prediction().to_json()))
    assert [document["setups"][s]["time_ratio"] for s in ("static-slow", "static-fast", "adaptive")] == [0.5] * 3
    assert [s["agbs_ratio"] for s in document["setups"].values()] == [0.25] * 3
    assert document["plan"] is None
    assert prediction().is_sound


def test_a_result_reports_steal_time_only_where_it_disturbs() -> None:
    quiet = replace(prediction(), steal={"calibrated": 0.003, "real": 0.004})
    assert to_text(quiet) == to_text(prediction())
    assert quiet.to_json()["processor_time_stolen"] == {"calibrated": 0.003, "real": 0.004}


@pytest.mark.parametrize(("real_s", "met"), [(350.0, True), (360.0, False)])
def test_only_the_run_decides_whether_a_deadline_is_met(real_s: float, met: bool) -> None:
    wanted = recommend(*predicted(), 355.0)
    assert wanted.chosen is not None
    assert wanted.chosen.cache_bytes == GB
    verified = replace(wanted, real=result(experiment.Setup.ADAPTIVE, real_s, 1.0))
    ran = replace(prediction(), verified=verified, steal={"real": 0.31})
    golden = GOLDEN / f"predict_{'met' if met else 'missed'}.txt"
    assert to_text(ran) + "\n" == golden.read_text()
    document = json.loads(json.dumps(ran.to_json()))["plan"]
    assert (document["met"], document["cheaper_that_meet"]) == (met, [])
    assert [c["cache_gb"] for c in document["choices"]] == [0.5, 1.0]
    assert ran.is_sound == met


def test_a_deadline_that_no_size_meets_is_reported_with_the_ratios() -> None:
    ran = replace(prediction(), verified=recommend(*predicted(), 100.0))
    document = ran.to_json()["plan"]
    assert document["refusal"] in to_text(ran)
    assert document["refusal"]
    assert not document["met"]
    assert not ran.is_sound
