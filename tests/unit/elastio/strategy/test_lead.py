"""How long before an expected burst to buy."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastio.strategy.learned import LEAST_KNOWN, Expectation, ahead_cost, best_lead_s, critical_share, lead_s

STEADILY = settings(deadline=None, derandomize=True, database=None)
PRICES = st.floats(0.01, 100)
EVEN = [Expectation(6.0, error) for error in (-2.0, -1.0, 0.0, 1.0, 2.0)]


@STEADILY
@given(
    st.lists(st.builds(Expectation, st.floats(1, 60), st.floats(-300, 300)), min_size=1, max_size=20),
    PRICES,
    PRICES,
    st.floats(0, 400),
)
def test_no_other_lead_would_have_been_cheaper(past: list[Expectation], late: float, hold: float, other: float) -> None:
    """The newsvendor's own cost: no cap on how late or how early a cache is."""

    def cost(lead: float) -> float:
        lateness = [p.attach_s - p.error_s - lead for p in past]
        return sum(late * max(0.0, x) + hold * max(0.0, -x) for x in lateness)

    assert cost(best_lead_s(past, late, hold)) <= cost(other) * (1 + 1e-9) + 1e-9


@pytest.mark.parametrize(("late", "hold", "lead"), [(1.0, 1.0, 6.0), (99.0, 1.0, 8.0), (1.0, 99.0, 4.0)])
def test_the_dearer_a_late_second_the_longer_the_lead(late: float, hold: float, lead: float) -> None:
    assert best_lead_s(EVEN, late, hold) == lead


def test_a_second_that_costs_nothing_is_never_bought() -> None:
    assert critical_share(0.0, 1.0) == 0.0
    assert lead_s(EVEN, 60.0, 0.0, 1.0) is None


def test_nothing_is_bought_ahead_before_the_third_burst() -> None:
    assert lead_s(EVEN[: LEAST_KNOWN - 1], 60.0, 1.0, 1.0) is None
    assert lead_s(EVEN[:LEAST_KNOWN], 60.0, 1.0, 1.0) is not None


def test_bursts_that_do_not_come_make_it_wait_for_the_load() -> None:
    none_came = [Expectation(6.0, math.inf)] * 5
    assert ahead_cost(none_came, 6.0, 30.0, 1.0, 1.0) == pytest.approx(36.0 + 6.0)
    assert lead_s(none_came, 30.0, 1.0, 1.0) is None


def test_holding_that_costs_more_than_waiting_makes_it_wait_for_the_load() -> None:
    scattered = [Expectation(6.0, error) for error in (0.0, 20.0, 40.0, 60.0)]
    assert lead_s(scattered, 60.0, 1.0, 1.0) is None
    assert lead_s(scattered, 60.0, 20.0, 1.0) is not None
