"""What the laboratory calibrates for an experiment, and how it holds prediction against reality."""

from __future__ import annotations

import pytest

from elastio.units import GB, GIB
from elastio_calibration.application import Application
from elastio_calibration.measurement import Conditions, Measurement, Setup
from elastio_calibration.predict import CacheSizes, Predictor
from elastio_calibration.profile import Profile
from elastio_testbed import experiment
from elastio_testbed.hypervisor import GuestError
from elastio_testbed.predict import WRITERS, Prediction, application_of, calibration_command, to_text
from elastio_testbed.result import Result, SetupResult
from elastio_testbed.trial import Plan

CM1 = Plan("cm1", (), scale=0.25, bandwidth=0.5)


def option(command: list[str], name: str) -> list[float]:
    return [float(value) for value in command[command.index(name) + 1].split(",")]


def test_calibrates_both_dumps_with_caches_up_to_the_first_one() -> None:
    scaled = CM1.scaled()
    command = calibration_command(scaled, 2)
    assert [round(gb * GB) for gb in option(command, "--datasets")] == sorted(set(scaled.dumps_bytes))
    caches = option(command, "--caches")
    assert caches[-1] * GB == pytest.approx(scaled.initial_cache_gib * GIB)
    assert len(caches) == 5
    assert command[command.index("--repeats") + 1] == "2"
    assert command[command.index("--writers") + 1] == str(WRITERS)


def test_leaves_out_caches_that_bcache_does_not_take() -> None:
    assert len(option(calibration_command(Plan("cm1", (), 0.1, 0.5).scaled(), 1), "--caches")) == 2
    with pytest.raises(GuestError, match=r"scale 0\.04 is too small"):
        calibration_command(Plan("cm1", (), 0.04, 0.5).scaled(), 1)


def test_the_experiment_is_the_application_that_is_predicted() -> None:
    scaled = CM1.scaled()
    found = application_of(scaled)
    assert (found.initial_bytes, found.checkpoint_bytes) == scaled.dumps_bytes[:2]
    assert found.checkpoints == 3
    assert found.compute_s == pytest.approx(275)


def test_another_first_cache_can_be_run() -> None:
    assert Plan("cm1", (), 0.25, 0.5, initial_cache_gb=6.0).scaled().initial_cache_gib < CM1.scaled().initial_cache_gib


def test_ratios_are_predicted_over_real() -> None:
    size = GB // 2
    made = tuple(
        Measurement(Setup.ADAPTIVE, size, 10.0, cache_bytes=cache, held_s=60.0, learned_bytes=GB)
        for cache in (GB // 2, GB)
    )
    conditions = Conditions("6.1", "aws", "m5", "gp3", "gp3", 16.5, 64.0, 0.3, 7.5, 1.0)
    profile = Profile(conditions, 5 * GB, made, "2026-11-20T08:00:00+00:00", "elastio")
    application = Application(checkpoint_gb=0.5, checkpoints=3, iteration_s=100, iterations=3)
    forecasts = Predictor(profile).all_setups(application, CacheSizes(GB))
    reals = tuple(
        SetupResult(setup, f.completion_s.value * 2, 0.0, f.agbs.value * 4, 0.0, 0.0, (10.0,), True, 0)
        for setup, f in zip(
            (experiment.Setup.STATIC_SLOW, experiment.Setup.STATIC_FAST, experiment.Setup.ADAPTIVE),
            forecasts,
            strict=True,
        )
    )
    prediction = Prediction(CM1, profile, forecasts, Result(reals))
    document = prediction.to_json()
    assert [document["setups"][s]["time_ratio"] for s in ("static-slow", "static-fast", "adaptive")] == [0.5] * 3
    assert [s["agbs_ratio"] for s in document["setups"].values()] == [0.25] * 3
    assert document["plan"] is None
    assert to_text(prediction).count("0.5000") == 3
