"""The comparison in money: what is best depends on the price of an hour, and nothing beaten is ever chosen."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastio_adviser.comparison import SAME, Alternative, BestWay, best, choices, judge, render_choices, render_money


def way(name: str, per_month: float, waits_min_per_day: float) -> Alternative:
    return Alternative(name, 0.0, 0.0, 0.0, per_month, waits_min_per_day)


# An hour of waiting a day is 30 hours a month.
SLOW, FAST, AGENT = way("slow", 40.0, 60.0), way("fast", 60.0, 0.0), way("agent", 43.0, 12.0)
COLD = way("cold", 8.0, 150.0)


def test_the_price_of_an_hour_decides() -> None:
    assert best((SLOW, FAST, AGENT), 0.0) is SLOW
    assert best((SLOW, FAST, AGENT), 1.0) is AGENT
    assert best((SLOW, FAST, AGENT), 10.0) is FAST


def test_each_way_is_best_in_its_range_of_prices() -> None:
    found = choices((SLOW, FAST, AGENT))
    assert [choice.name for choice in found] == ["slow", "agent", "fast"]
    assert (found[0].from_per_hour, found[-1].to_per_hour) == (0.0, None)
    # 24 of 30 hours for 3 USD, then 6 hours for 17; a difference of 1 % decides nothing.
    assert found[0].to_per_hour == pytest.approx(3 / 24, rel=0.2)
    assert found[1].to_per_hour == pytest.approx(17 / 6, rel=0.1)


def test_of_ways_that_are_as_good_the_simpler_is_taken() -> None:
    twin = way("twin", 40.1, 59.9)
    assert [choice.name for choice in choices((SLOW, twin))] == ["slow"]


def test_a_way_that_is_cheaper_and_faster_beats_every_price() -> None:
    assert [choice.name for choice in choices((SLOW, way("better", 20.0, 30.0)))] == ["better"]


def test_a_bill_of_nothing_is_compared_too() -> None:
    free, dear = way("free", 0.0, 0.0), way("dear", 0.0, 10.0)
    assert best((dear, free), 1.0) is free


def test_a_way_that_waits_longer_than_the_day_is_no_answer() -> None:
    slug = way("slug", 1.0, 1500.0)
    assert judge((SLOW, slug), set(), "USD").choices == (BestWay("slow", 0.0, None),)
    assert judge((slug,), set(), "USD").choices == (BestWay("slug", 0.0, None),)


def test_the_sentences(golden: Callable[[str, str], None]) -> None:
    ways = (SLOW, FAST, AGENT)
    said = [
        judge(ways, {"agent"}, "USD").sentence,
        judge((*ways, COLD), {"agent", "cold"}, "EUR").sentence,
        judge((SLOW, FAST, way("agent", 70.0, 5.0)), {"agent"}, "USD").sentence,
        judge((SLOW, way("fast", 40.0, 0.0), AGENT), {"agent"}, "USD").sentence,
        judge(ways, {"agent"}, "USD", 1.0).sentence,
        judge(ways, {"agent"}, "USD", 0.01).sentence,
        judge((SLOW, way("agent", 20.0, 30.0)), {"agent"}, "USD").sentence,
        *render_choices(choices(ways), "USD"),
        *render_choices((BestWay("only", 0.0, None),), "USD"),
        *(render_money(amount, "USD") for amount in (0.0, 0.0042, 7.5, 4_276_788_176.87)),
    ]
    golden("comparison.txt", "\n".join([*said, ""]))


@pytest.mark.parametrize(("value", "worth_it"), [(None, True), (1.0, True), (0.01, False), (50.0, False)])
def test_the_agent_is_worth_it_where_it_is_chosen(value: float | None, worth_it: bool) -> None:
    assert judge((SLOW, FAST, AGENT), {"agent"}, "USD", value).worth_it is worth_it


POINTS = st.lists(st.tuples(st.integers(1, 100), st.integers(0, 300)), min_size=1, max_size=7)


@given(POINTS)
def test_no_way_that_is_chosen_is_clearly_beaten_in_bill_and_in_waiting(points: list[tuple[int, int]]) -> None:
    ways = tuple(way(f"w{n}", *point) for n, point in enumerate(points))
    found = choices(ways)
    assert found[0].from_per_hour == 0.0
    assert found[-1].to_per_hour is None
    assert [c.to_per_hour for c in found[:-1]] == [c.from_per_hour for c in found[1:]]
    named = {each.name: each for each in ways}
    for choice in found:
        mine = named[choice.name]
        less = 1 - 2 * SAME
        assert not [
            w for w in ways
            if w.per_month < less * mine.per_month and w.waits_min_per_day < less * mine.waits_min_per_day
        ]  # fmt: skip
