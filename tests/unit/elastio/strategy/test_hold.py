"""Hold a cache, or release it."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastio.strategy.hold import hold_cost, holding_s, release_in_s
from elastio.strategy.tariff import Tariff

STEADILY = settings(deadline=None, derandomize=True, database=None)
PRICES = st.floats(1e-6, 1e3)
GAPS = st.floats(0, 1e5)
SOME_GAPS = st.lists(GAPS, min_size=1, max_size=20)
BY_SECOND = Tariff("USD", per_gib_hour=1.0, minimum_s=60)
BY_HOUR = Tariff("USD", per_gib_hour=1.0, minimum_s=3600, step_s=3600)


@STEADILY
@given(SOME_GAPS, PRICES, PRICES, st.floats(0, 2e5))
def test_no_time_would_be_cheaper_for_the_known_gaps_and_one_that_is_longer(
    gaps: list[float], hold: float, rebuy: float, other: float
) -> None:
    best = holding_s(gaps, hold, rebuy)
    cost, least = (hold_cost((*gaps, math.inf), t, hold, rebuy) for t in (best, other))
    assert cost <= least * (1 + 1e-9)
    assert hold * best <= rebuy * (1 + 1e-9), "no gap costs more than twice the price of another cache"


def test_a_gap_is_waited_for_that_was_seen() -> None:
    assert holding_s((), 1.0, 130.0) == 0.0
    assert holding_s([100.0], 1.0, 199.0) == 0.0, "as likely it is longer, and then the rent is lost"
    assert holding_s([100.0], 1.0, 201.0) == 100.0
    assert holding_s([100.0] * 5, 1.0, 121.0) == 100.0
    assert holding_s([10.0] * 8 + [1000.0], 1.0, 130.0) == 10.0, "the long one is not waited for"


@pytest.mark.parametrize(("gap", "too_much"), [(4.0, 0.0), (1.5, 0.0), (0.9, 1.0), (0.45, 0.55), (0.1, 0.9)])
def test_a_load_with_a_rhythm_pays_too_much_once(gap: float, too_much: float) -> None:
    """Twenty gaps, one after the other, and what somebody pays who knows them; c_h = c_b = 1."""
    times = [holding_s([gap] * known, 1.0, 1.0) for known in range(20)]
    paid = sum(hold_cost([gap], kept, 1.0, 1.0) for kept in times)
    assert paid - 20 * min(gap, 1.0) == pytest.approx(too_much)


def test_a_cache_whose_holding_is_free_is_never_released() -> None:
    assert holding_s((), 0.0, 5.0) == math.inf
    assert release_in_s(BY_HOUR.billing, 10.0, 5.0, math.inf) == math.inf


@pytest.mark.parametrize(
    ("tariff", "age_s", "hold", "release_in"),
    [
        (BY_SECOND, 20.0, 0.0, 30.0),  # 10 s before the paid minute ends
        (BY_SECOND, 20.0, 15.0, 45.0),  # the rent begins when the minute ends
        (BY_SECOND, 55.0, 15.0, 15.0),  # a release that begins now is billed beyond it
        (BY_HOUR, 600.0, 0.0, 2990.0),
        (BY_HOUR, 600.0, 3599.0, 2990.0),  # does not pay for another hour
        (BY_HOUR, 600.0, 3600.0, 6590.0),
    ],
)
def test_nothing_is_released_before_the_paid_time_is_used(
    tariff: Tariff, age_s: float, hold: float, release_in: float
) -> None:
    assert release_in_s(tariff.billing, age_s, 10.0, hold) == pytest.approx(release_in)


@pytest.mark.parametrize(
    ("age_s", "hold", "release_in"),
    [
        (3541.0, 0.0, 0.0),  # the release may still be done within the paid hour
        (3585.0, 3599.0, 0.0),
        (3586.0, 0.0, 3554.0),  # it cannot: the next hour is paid whatever is done
        (3541.0, 3600.0, 3599.0 + 3600.0),  # the next hour is worth holding for
        (3539.0, 0.0, 1.0),
    ],
)
def test_a_step_that_nobody_wants_is_not_begun_for_want_of_a_margin(
    age_s: float, hold: float, release_in: float
) -> None:
    assert release_in_s(BY_HOUR.billing, age_s, 60.0, hold, 15.0) == pytest.approx(release_in)
