"""Predictions from a made-up profile, against the formulas computed by hand."""

from __future__ import annotations

from math import sqrt

import pytest

from elastio.units import GB
from elastio_calibration.application import Application
from elastio_calibration.errors import OutOfRangeError
from elastio_calibration.measurement import Setup
from elastio_calibration.predict import CacheSizes, Predictor
from elastio_calibration.prices import cache_per_hour, cost
from tests.values import present

from .values import PRICES, held_s, mb_s, measured, profile, static

APP = Application(checkpoint_gb=4, checkpoints=3, iteration_s=400, iterations=3, initial_gb=6, vms=2)
FIXED = CacheSizes(10 * GB, 6 * GB)


def test_adaptive_is_the_published_formula() -> None:
    found = Predictor(profile()).adaptive(APP, FIXED)
    total_s = 1200 + 3 * 4000 / mb_s(4, 6)
    assert found.completion_s.value == pytest.approx(total_s)
    caches = 128 * (10 * held_s(6) + 3 * 6 * held_s(4))
    assert found.agbs.value == pytest.approx(2 * (33 * 50 * (total_s + 6000 / mb_s(6, 10)) + caches))
    assert found.checkpoints[-1].cache_bytes == 6 * GB


def test_a_measured_throughput_replaces_the_provisioned_bandwidth() -> None:
    made = profile(measurements=(measured(4, 6), *(static(Setup.STATIC_FAST, x, 120.0) for x in (4, 6))))
    found = Predictor(made).static(Setup.STATIC_FAST, APP)
    assert found.completion_s.value == pytest.approx(1200 + 12000 / 120)
    assert found.notes == ()
    assert len(Predictor(profile()).static(Setup.STATIC_FAST, APP).notes) == 1


def test_without_a_fixed_size_the_agent_buys_what_it_learns() -> None:
    found = Predictor(profile()).adaptive(APP, CacheSizes(10 * GB))
    # After the dump of 6 GB it has learned 9 GB, after one of 4 GB 6 GB.
    assert [d.cache_bytes / GB for d in found.checkpoints] == [9, 6, 6]


def test_a_learned_size_that_was_not_calibrated_is_refused() -> None:
    far = tuple(measured(x, m, learned_bytes=20 * GB) for x in (4, 6) for m in (6, 10))
    with pytest.raises(OutOfRangeError):
        Predictor(profile(measurements=far)).adaptive(APP, CacheSizes(10 * GB))


def test_interval_comes_from_the_spread_of_the_repeats() -> None:
    made = Predictor(profile(0.98, 1.02))
    found = made.adaptive(APP, FIXED).completion_s
    low, high = present(found.low), present(found.high)
    noise = made.throughput.noise
    each_s = 4000 / mb_s(4, 6)
    spread = each_s * sqrt(3 * noise**2 + 9 * noise**2 / 2)
    assert (high - low) / 2 == pytest.approx(2.179 * spread, rel=1e-3)  # Student, 12 repeats
    assert found.safe_high == high


def test_without_repeats_there_is_no_interval() -> None:
    found = Predictor(profile()).adaptive(APP, FIXED)
    assert (found.completion_s.low, found.agbs.high) == (None, None)
    assert found.completion_s.safe_high == found.completion_s.value


def test_a_flush_counts_from_the_end_of_the_dump() -> None:
    left_s = held_s(4) - 4000 / mb_s(4, 6)
    meets, follows = (
        Application(checkpoint_gb=4, checkpoints=2, iteration_s=left_s + more, iterations=2) for more in (-1, 1)
    )
    assert len(Predictor(profile()).adaptive(meets, FIXED).notes) == 1
    assert Predictor(profile()).adaptive(follows, FIXED).notes == ()


def test_the_flush_of_the_initial_dump_counts_and_that_of_the_last_one_does_not() -> None:
    gap_s = held_s(4)  # less than the flush of 6 GB takes
    after_initial = Application(checkpoint_gb=4, checkpoints=1, iteration_s=gap_s, initial_gb=6)
    assert len(Predictor(profile()).adaptive(after_initial, FIXED).notes) == 1
    alone = Application(checkpoint_gb=6, checkpoints=1, iteration_s=1)
    assert Predictor(profile()).adaptive(alone, FIXED).notes == ()


def test_a_dataset_that_was_calibrated_with_one_cache_gets_that_one_and_a_note() -> None:
    pairs = Predictor(profile(measurements=(measured(4, 6), measured(6, 10))))
    found = pairs.adaptive(APP, CacheSizes(12 * GB, initial_is_asked=False))
    assert present(found.initial).cache_bytes == 10 * GB
    assert [d.cache_bytes / GB for d in found.checkpoints] == [6, 6, 6]
    assert len(found.notes) == 1 + 1  # after 6 GB it would have learned 9 GB


def test_a_cache_that_was_asked_for_is_not_replaced() -> None:
    pairs = Predictor(profile(measurements=(measured(4, 6), measured(6, 10))))
    for sizes in (CacheSizes(12 * GB), CacheSizes(10 * GB, 8 * GB)):
        with pytest.raises(OutOfRangeError):
            pairs.adaptive(APP, sizes)


def test_the_backing_volume_may_have_another_size() -> None:
    small, large = (Predictor(profile(), n * GB).static(Setup.STATIC_SLOW, APP).agbs.value for n in (50, 100))
    assert large == pytest.approx(2 * small)


def test_there_is_no_cost_with_prices_for_another_backing_volume() -> None:
    for found in Predictor(profile(), 100 * GB).all_setups(APP, FIXED):
        assert found.cost is None
        assert found.notes
    same = Predictor(profile(), round(50.1 * GB)).adaptive(APP, FIXED)  # as sizes are rounded
    assert (same.cost is None, same.notes) == (False, ())


def test_cost_is_hours_times_prices_with_the_shortest_time_billed() -> None:
    found = Predictor(profile()).adaptive(APP, FIXED)
    total_s = found.completion_s.value + 6000 / mb_s(6, 10)
    caches = 0.010 * held_s(6) + 3 * 0.006 * held_s(4)
    assert present(found.cost).value == pytest.approx(2 * (0.01 * total_s + caches) / 3600)
    brief = found.checkpoints[0].__class__(4 * GB, 100.0, 6 * GB, 128.0, held_s=5.0)
    assert cost(PRICES, Setup.ADAPTIVE, 0.0, [brief], 1) == pytest.approx(0.006 * 60 / 3600)


def test_cost_has_an_interval_of_dumps_and_caches() -> None:
    made = Predictor(profile(0.98, 1.02))
    found = present(made.adaptive(APP, FIXED).cost)
    low, high = present(found.low), present(found.high)
    assert found.value - low == pytest.approx(high - found.value)

    def share(price_per_hour: float, seconds: float) -> tuple[float, float]:
        noise = price_per_hour / 3600 * seconds * made.throughput.noise
        return noise, noise / sqrt(2)

    times = (*[share(0.01, 6000 / mb_s(6, 10))], *[share(0.01, 4000 / mb_s(4, 6))] * 3)
    caches = (*[share(0.010, held_s(6))], *[share(0.006, held_s(4))] * 3)
    squares = 0.0
    for first, *later in (times, caches):
        squares += first[0] ** 2 + first[1] ** 2 + sum(n**2 for n, _ in later) + sum(e for _, e in later) ** 2
    assert high - found.value == pytest.approx(2 * 2.179 * sqrt(squares), rel=1e-3)


def test_no_cost_where_a_price_is_not_known() -> None:
    assert Predictor(profile(prices=None)).adaptive(APP, FIXED).cost is None
    assert cache_per_hour(PRICES, 20 * GB) is None
    assert cache_per_hour(PRICES, 7 * GB) == pytest.approx(0.007)
