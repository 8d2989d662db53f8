"""What one run advises to buy, and the bandwidths of its table."""

from __future__ import annotations

import math

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from elastio.strategy.bandwidth import FARTHEST, Curve, curves_of
from elastio_adviser.bandwidth_advice import MOST_STEPS, Why, advise, steps_mb_s
from tests.unit.elastio.strategy.wait_runs import Stretch, job, undelayed

CURVES = st.builds(Curve, st.floats(0.01, 1e5), st.floats(0.01, 1e5), st.floats(0.01, 1e6))
GAINS = st.floats(0.005, 0.45)


@given(CURVES, GAINS)
def test_the_table_begins_at_what_was_measured_and_ends_where_it_is_believed(curve: Curve, gain: float) -> None:
    measured = curve.measured_mb_s
    assert measured is not None
    assume(measured > 1e-3)
    steps = steps_mb_s(curve, gain)
    assert steps[0] == measured
    assert 2 <= len(steps) <= MOST_STEPS
    assert steps[-1] <= FARTHEST * measured * (1 + 1e-6)


WRITES = job(8.0)


@pytest.mark.parametrize(
    ("run", "cap_mb_s", "demand_mb_s", "why"),
    [
        ([], 8.0, math.inf, Why.NOTHING_SEEN),
        ([Stretch(10, running=1)], 8.0, math.inf, Why.NOT_BANDWIDTH),
        ([Stretch(10, waiting=1, mb_s=5)], 8.0, math.inf, Why.NOT_BANDWIDTH),
        ([Stretch(10, waiting=1, other_mb_s=8)], 8.0, math.inf, Why.NOT_BANDWIDTH),
        (job(8.0, computing_s=2.0, mb=0.1), 8.0, math.inf, Why.NOT_BANDWIDTH),
        (job(8.0, computing_s=80.0), 8.0, math.inf, Why.ENOUGH),
        (job(8.0, computing_s=10.0), 8.0, math.inf, Why.INFLECTION),
        (job(8.0, computing_s=10.0), 8.0, 12.0, Why.DEMAND),
        (job(8.0, computing_s=10.0), 8.0, 6.0, Why.ENOUGH),
        ([Stretch(10, waiting=1, mb_s=8)], 8.0, math.inf, Why.FARTHEST),
    ],
)
def test_what_is_advised_has_one_reason(run: list[Stretch], cap_mb_s: float, demand_mb_s: float, why: Why) -> None:
    sums = undelayed(*run, cap_mb_s=cap_mb_s)
    found = advise(sums, curves_of(sums, demand_mb_s).likely)
    assert found.why is why
    measured = curves_of(sums).likely.measured_mb_s or 0.0
    assert found.mb_s is None or measured < found.mb_s <= FARTHEST * measured
    assert (found.mb_s is None) == (why in (Why.NOTHING_SEEN, Why.NOT_BANDWIDTH, Why.ENOUGH))


@settings(deadline=None)
@given(st.floats(0.5, 10), st.floats(4, 80), GAINS)
def test_nothing_above_the_inflection_is_advised(computing_s: float, mb_s: float, gain: float) -> None:
    sums = undelayed(*job(mb_s, computing_s, times=2), cap_mb_s=mb_s)
    curve = curves_of(sums).likely
    found = advise(sums, curve, gain)
    if found.mb_s is not None:
        assert found.mb_s <= curve.inflection_mb_s(gain)
        assert 0 < found.saved < 1
