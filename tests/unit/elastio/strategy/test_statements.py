"""What statements add up to, and when a sum passes a cap."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elastio.strategy.spending import Limits, Period, Reservation, Spent, Statement, exceeded, total

DAY = Period(1000.0, 2000.0)
MONTH = Period(0.0, 10_000.0)
NONE = (None, None, None)
HELD = Reservation("t", 1500.0, 2.0, 1.0, 60.0, 1600.0)
PLAIN = Statement("a", 1400.0, DAY, MONTH, Spent(1, 10.0, 5.0), Spent(4, 40.0, 20.0))


def today(statement: Statement, wall: float = 1500.0, day: Period = DAY) -> Spent:
    return total([statement], day, MONTH, wall)[0]


def test_what_was_spent_counts_in_its_own_day_and_month() -> None:
    assert total([PLAIN, PLAIN], DAY, MONTH, 1500.0) == (Spent(2, 20.0, 10.0), Spent(8, 80.0, 40.0))
    assert total([PLAIN], Period(2000.0, 3000.0), MONTH, 2100.0) == (Spent(), Spent(4, 40.0, 20.0))


def test_a_statement_of_a_clock_that_was_ahead_still_counts() -> None:
    assert today(PLAIN, day=Period(0.0, 1000.0)) == PLAIN.today


def test_what_is_reserved_counts_in_full_and_as_one_boost() -> None:
    assert today(replace(PLAIN, reserved=HELD)) == Spent(2, 210.0, 105.0)
    assert today(replace(PLAIN, reserved=HELD, counted="t")).boosts == 1


def test_the_least_billed_time_is_owed_at_once() -> None:
    assert today(replace(PLAIN, reserved=replace(HELD, until_wall=1501.0))).currency == 65.0


@pytest.mark.parametrize(("until", "owed"), [(1501.0, 100.0), (1600.0, 100.0), (1601.0, 200.0)])
def test_a_step_is_owed_as_soon_as_it_begins(until: float, owed: float) -> None:
    assert today(replace(PLAIN, reserved=replace(HELD, step_s=100.0, until_wall=until))).currency == 5.0 + owed


@pytest.mark.parametrize(("is_bought", "agbs"), [(False, 210.0), (True, 810.0)])
def test_the_bill_of_a_silent_agent_grows_only_where_a_volume_was_bought(*, is_bought: bool, agbs: float) -> None:
    assert today(replace(PLAIN, reserved=replace(HELD, is_bought=is_bought)), wall=1900.0).agbs == agbs


def test_a_bill_that_the_ledger_had_counts_from_then_on() -> None:
    bought = replace(HELD, is_bought=True)
    stated = replace(PLAIN, read_wall=1550.0, today=Spent(1, 110.0, 65.0), counted="t", reserved=bought)
    assert today(stated) == Spent(1, 210.0, 105.0)


def test_after_midnight_only_the_rest_counts() -> None:
    late = Period(1550.0, 2550.0)
    assert today(replace(PLAIN, reserved=replace(HELD, is_bought=True)), day=late) == Spent(0, 100.0, 40.0)


@pytest.mark.parametrize(
    ("limits", "key"),
    [
        (Limits(*(1, 9.0, 9.0), *NONE), ""),
        (Limits(*(0, None, None), *NONE), "caps.max_boosts_per_day"),
        (Limits(*(None, 8.9, None), *NONE), "caps.max_agbs_per_day"),
        (Limits(*NONE, *(None, None, 8.9)), "caps.max_cost_per_month"),
    ],
)
def test_a_sum_passes_a_cap_that_it_is_above(limits: Limits, key: str) -> None:
    spent = Spent(1, 9.0, 9.0)
    assert exceeded(spent, spent, limits) == key
