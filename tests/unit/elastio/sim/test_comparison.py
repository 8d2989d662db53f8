"""Which way to serve a trace is the best one: never one that another beats in time and in price."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastio.sim.comparison import Alternative, judge


def outcome(name: str, seconds: float, spent: float, cost: float = 0.0) -> Alternative:
    return Alternative(name, seconds, spent, cost)


SLOW, FAST, MODIFIED = outcome("slow", 1000, 1000), outcome("fast", 600, 5000), outcome("modified", 600, 6000)


@pytest.mark.parametrize(
    ("adaptive", "sentence"),
    [
        ((700, 900), "worth it (adaptive): 30% faster than the slow volume at -10.0% AGBs, and 82% cheaper than fast."),
        ((700, 1100), "worth it (adaptive): 30% faster than the slow volume at +10.0% AGBs"),
        (
            (400, 6000),
            "worth it (adaptive): 60% faster than the slow volume at +500.0% AGBs, and 20% dearer than fast.",
        ),
        (
            (950, 3000),
            "not worth it: take a faster volume all day; an hour saved costs 36000 AGBs that way and 144000 AGBs with",
        ),
        ((995, 1000), "not worth it: the slow volume is as fast"),
    ],
)
def test_time_is_bought_where_an_hour_is_cheapest(adaptive: tuple[float, float], sentence: str) -> None:
    verdict, worth_it = judge((SLOW, FAST, MODIFIED), (outcome("adaptive", *adaptive),))
    assert sentence in verdict
    assert worth_it is not verdict.startswith("The agent is not")


def test_of_policies_that_cost_nothing_the_fastest_is_named() -> None:
    quick, thrifty = outcome("quick", 600, 900), outcome("thrifty", 980, 800)
    verdict, _ = judge((SLOW, FAST, MODIFIED), (thrifty, quick))
    assert "worth it (quick): 40% faster" in verdict


def test_of_policies_that_are_as_fast_the_cheaper_is_named() -> None:
    dear, thrifty = outcome("dear", 600, 990), outcome("thrifty", 603, 800)
    verdict, _ = judge((SLOW, FAST, MODIFIED), (dear, thrifty))
    assert "worth it (thrifty)" in verdict


def test_a_volume_that_is_hardly_faster_does_not_beat_a_policy_that_costs_less_than_nothing() -> None:
    modified = outcome("modified", 980, 930)
    verdict, worth_it = judge((SLOW, FAST, modified), (outcome("adaptive", 600, 900),))
    assert worth_it
    assert "3% cheaper than modified" in verdict


def test_a_price_that_is_hardly_higher_counts_as_the_same() -> None:
    verdict, worth_it = judge((SLOW, FAST, outcome("modified", 980, 930)), (outcome("adaptive", 600, 1005),))
    assert worth_it
    assert "40% faster than the slow volume at +0.5% AGBs, and 8% dearer than modified" in verdict


def test_what_costs_nothing_beats_every_price() -> None:
    modified = outcome("modified", 800, 900)
    verdict, worth_it = judge((SLOW, FAST, modified), (outcome("adaptive", 600, 1100),))
    assert not worth_it
    assert verdict == (
        "The agent is not worth it: modify the volume for the peaks; that way is 20% faster than the slow volume at "
        "-10.0% AGBs, the agent (adaptive) is 40% faster than the slow volume at +10.0% AGBs."
    )


def test_the_price_decides_where_there_is_one() -> None:
    static = (
        outcome("slow", 1967, 3246, 0.0030),
        outcome("fast", 1604, 10266, 0.0025),
        outcome("modified", 1604, 10266, 0.0025),
    )
    agent = outcome("s4", 1628, 3040, 0.0026)
    verdict, worth_it = judge(static, (agent,), "EUR")
    assert not worth_it
    assert "take a faster volume all day; that way is 18% faster than the slow volume at -16.7% EUR" in verdict


def test_the_price_and_the_agbs_are_both_said() -> None:
    static = (outcome("slow", 1000, 1000, 10), outcome("fast", 600, 5000, 50), outcome("modified", 600, 6000, 60))
    verdict, _ = judge(static, (outcome("a", 700, 900, 12),), "EUR")
    assert verdict == (
        "The agent is worth it (a): 30% faster than the slow volume at +20.0% EUR (-10.0% AGBs), and 76% cheaper than "
        "fast."
    )
    verdict, _ = judge(static, (outcome("a", 950, 900, 20),), "EUR")
    assert "an hour saved costs 360.0000 EUR that way and 720.0000 EUR with the agent (a)" in verdict


POINTS = st.tuples(st.integers(300, 1100), st.integers(500, 3000))


@given(st.lists(POINTS, min_size=1, max_size=4), POINTS, POINTS)
def test_a_policy_that_is_worth_it_is_beaten_by_none_in_time_and_price(
    policies: list[tuple[int, int]], fast: tuple[int, int], modified: tuple[int, int]
) -> None:
    agents = [outcome(f"p{n}", *point) for n, point in enumerate(policies)]
    verdict, worth_it = judge((SLOW, outcome("fast", *fast), outcome("modified", *modified)), agents)
    if worth_it:
        (best,) = (a for a in agents if f"({a.name})" in verdict)
        points = [*policies, fast, modified]
        assert not [p for p in points if p[0] <= best.completion_s and p[1] < best.agbs]
        assert not [p for p in points if p[0] < best.completion_s and p[1] <= best.agbs]
