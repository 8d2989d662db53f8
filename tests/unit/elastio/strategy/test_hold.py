"""Hold a cache, or release it."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastio.strategy.hold import LEAST_GAPS, best_holding_s, break_even_s, hold_cost, holding_s, release_in_s
from elastio.strategy.tariff import Tariff

STEADILY = settings(deadline=None, derandomize=True, database=None)
PRICES = st.floats(1e-6, 1e3)
GAPS = st.floats(0, 1e5)
SOME_GAPS = st.lists(GAPS, min_size=1, max_size=20)
BY_SECOND = Tariff("USD", per_gib_hour=1.0, minimum_s=60)
BY_HOUR = Tariff("USD", per_gib_hour=1.0, minimum_s=3600, step_s=3600)


@STEADILY
@given(GAPS, PRICES, PRICES)
def test_the_break_even_pays_at_most_twice_what_the_future_would_have_advised(
    gap: float, hold: float, rebuy: float
) -> None:
    paid = hold_cost([gap], break_even_s(hold, rebuy), hold, rebuy)
    assert paid <= 2 * min(hold * gap, rebuy) * (1 + 1e-9)


@STEADILY
@given(SOME_GAPS, PRICES, PRICES, st.floats(0, 2e5))
def test_no_time_would_have_been_cheaper_for_known_gaps(
    gaps: list[float], hold: float, rebuy: float, other: float
) -> None:
    best = best_holding_s(gaps, hold, rebuy)
    assert hold_cost(gaps, best, hold, rebuy) <= hold_cost(gaps, other, hold, rebuy) * (1 + 1e-9)


def test_gaps_are_believed_from_eight_on() -> None:
    gaps = [100.0] * LEAST_GAPS
    assert holding_s(gaps[1:], 1.0, 30.0) == 30.0
    assert holding_s(gaps, 1.0, 30.0) == 0.0, "every gap is longer than holding is worth"
    assert holding_s(gaps, 1.0, 130.0) == 100.0, "every gap is worth to be held, to its end and no longer"


def test_a_cache_whose_holding_is_free_is_never_released() -> None:
    assert break_even_s(0.0, 5.0) == math.inf
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


@STEADILY
@given(GAPS, PRICES, st.floats(0, 7200), st.sampled_from([BY_SECOND, BY_HOUR, Tariff("USD", per_gib_hour=1.0)]))
def test_with_billed_steps_too_it_pays_at_most_twice(gap: float, rebuy: float, age_s: float, tariff: Tariff) -> None:
    """The bill beyond what is paid when the cache becomes unused, and the price of buying again."""
    per_s = 1.0
    paid_s = tariff.billed_s(age_s)
    until = release_in_s(tariff.billing, age_s, 0.0, break_even_s(per_s, rebuy))
    held = per_s * (tariff.billed_s(age_s + gap) - paid_s)
    released = per_s * (tariff.billed_s(age_s + until) - paid_s) + rebuy if until < gap else held
    assert released <= 2 * min(held, rebuy) * (1 + 1e-6) + 1e-6
