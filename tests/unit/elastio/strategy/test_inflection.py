"""The curve T(B) from one run, its inflection, and what it advises."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastio.strategy.bandwidth import Curve, curves_of
from tests.unit.elastio.strategy.wait_runs import Stretch, job, undelayed

CURVES = st.builds(Curve, st.floats(0.01, 1e5), st.floats(0.01, 1e5), st.floats(0.01, 1e6))
GAINS = st.floats(0.005, 0.45)


def curve_of(*run: Stretch, cap_mb_s: float | None = None, demand_mb_s: float = math.inf) -> Curve:
    return curves_of(undelayed(*run, cap_mb_s=cap_mb_s), demand_mb_s).likely


@pytest.mark.parametrize("mb_s", [16.0, 32.0, 64.0])
def test_a_run_at_one_bandwidth_predicts_the_run_at_another(mb_s: float) -> None:
    predicted = curve_of(*job(8.0), cap_mb_s=8.0).time_s(mb_s)
    assert predicted == pytest.approx(sum(s.seconds for s in job(mb_s)), rel=0.02)


@pytest.mark.parametrize(
    ("curve", "stop_gain", "published"),
    [(Curve(1.0, 1.0, 375.0), 0.08, 1969), (Curve(366.7, 1.0, 4000.0), 0.04, 125)],
    ids=["Montage, Mb/s: 2000", "CM1, MB/s: 128"],
)
def test_published_bandwidths_are_found(curve: Curve, stop_gain: float, published: float) -> None:
    assert curve.inflection_mb_s(stop_gain) == pytest.approx(published, rel=0.005)


@given(CURVES, GAINS)
def test_a_doubling_from_the_inflection_on_saves_the_stop_gain_and_before_it_more(curve: Curve, gain: float) -> None:
    best = curve.inflection_mb_s(gain)

    def saved(mb_s: float) -> float:
        return 1 - curve.time_s(2 * mb_s) / curve.time_s(mb_s)

    assert saved(best) == pytest.approx(gain, rel=1e-6)
    assert saved(best / 1.5) > gain
    assert saved(best * 1.5) < gain


@given(CURVES, st.floats(0.1, 1e4), st.floats(0.1, 1e4))
def test_more_bandwidth_is_never_slower_and_nothing_is_faster_than_no_waiting(c: Curve, a: float, b: float) -> None:
    assert c.time_s(max(a, b)) <= c.time_s(min(a, b))
    assert c.time_s(a) >= c.rest_s


@given(CURVES)
def test_at_the_measured_bandwidth_the_curve_has_the_measured_time(curve: Curve) -> None:
    measured = curve.measured_mb_s
    assert measured is not None
    assert curve.time_s(measured) == pytest.approx(curve.rest_s + curve.waited_s)


@given(CURVES, st.floats(1, 1e4), GAINS)
def test_beyond_the_demand_it_is_flat_and_nothing_is_worth_buying(curve: Curve, demand: float, gain: float) -> None:
    limited = replace(curve, demand_mb_s=demand)
    assert limited.time_s(2 * demand) == limited.time_s(demand)
    assert limited.inflection_mb_s(gain) <= demand
