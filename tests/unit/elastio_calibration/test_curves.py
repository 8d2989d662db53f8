"""Curves: at the measurements, between them, and the refusal to extrapolate."""

from __future__ import annotations

import pytest

from elastio.units import GB
from elastio_calibration.curves import Curve, learning, throughput
from elastio_calibration.errors import OutOfRangeError

from .values import cached, mb_s, measured


def gb(size: float) -> int:
    return round(size * GB)


def test_returns_the_mean_of_the_repeats() -> None:
    curve = throughput([measured(4, 6, 0.9), measured(4, 6, 1.1)])
    assert curve.at(gb(4), gb(6)).value == pytest.approx(mb_s(4, 6) * 1.0)


def test_rounded_sizes_count_as_one() -> None:
    curve = throughput([measured(4, 6), measured(4.01, 6.01)])
    assert curve.datasets == (gb(4),)
    assert curve.at(gb(4.005), gb(5.99)).freedom == 1


@pytest.mark.parametrize("cache", [4.5, 5, 7, 9])
def test_runs_between_its_neighbours_along_the_cache(cache: float) -> None:
    curve = throughput(cached(1.0))
    low, high = (next(m for m in ms if (m - cache) * sign > 0) for ms, sign in (((8, 6, 4), -1), ((6, 8, 10), 1)))
    found = curve.at(gb(6), gb(cache)).value
    assert mb_s(6, low) <= found <= mb_s(6, high)
    assert abs(found - mb_s(6, cache)) < 6


def test_is_linear_between_two_datasets() -> None:
    curve = throughput(cached(1.0))
    assert curve.at(gb(5), gb(6)).value == pytest.approx((mb_s(4, 6) + mb_s(6, 6)) / 2)


@pytest.mark.parametrize(("dataset", "cache"), [(2, 6), (6.5, 6), (4, 3), (5, 12)])
def test_refuses_to_extrapolate(dataset: float, cache: float) -> None:
    with pytest.raises(OutOfRangeError):
        throughput(cached(1.0)).at(gb(dataset), gb(cache))


def test_refuses_where_there_are_too_few_points_to_interpolate() -> None:
    curve = throughput([measured(4, 6), measured(5, 10)])
    assert curve.at(gb(5), gb(10)).value == pytest.approx(mb_s(5, 10))
    for dataset in (4, 4.5):
        with pytest.raises(OutOfRangeError):
            curve.at(gb(dataset), gb(8))


def test_refuses_where_nothing_was_measured() -> None:
    with pytest.raises(OutOfRangeError):
        learning([]).at(gb(4), gb(6))


def test_spread_is_pooled_over_all_repeated_points() -> None:
    curve = Curve("x", [(gb(3), 0, 99.0), (gb(3), 0, 101.0), (gb(4), 0, 49.5), (gb(4), 0, 50.5)])
    assert curve.freedom == 2
    assert curve.noise == pytest.approx(0.01 * 2**0.5)
    found = curve.at(gb(3))
    assert found.error == pytest.approx(0.01)  # of the mean of two
    assert found.noise == pytest.approx(curve.noise)


def test_interpolation_adds_the_error_of_points_left_out() -> None:
    curve = throughput(cached(0.99, 1.01))
    assert curve.interpolation_error > 0.01  # the kink where the cache is just large enough
    assert curve.at(gb(5), gb(6)).error > curve.at(gb(4), gb(6)).error
    straight = Curve("x", [(gb(x), gb(m), 10.0 * x) for x in (3, 4, 5) for m in (4, 6, 8)])
    assert straight.interpolation_error == pytest.approx(0, abs=1e-12)


def test_offers_the_caches_that_both_neighbours_have() -> None:
    curve = throughput([measured(3, m) for m in (4, 6, 8)] + [measured(5, m) for m in (6, 8, 10)])
    assert curve.caches(gb(3)) == (gb(4), gb(6), gb(8))
    assert curve.caches(gb(4)) == (gb(6), gb(8))
