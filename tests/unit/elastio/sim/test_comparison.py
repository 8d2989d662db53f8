"""The comparison of policies with static volumes: none that is recommended is beaten in time and in price."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastio.sim.comparison import Alternative, judge

GOLDEN = Path(__file__).parents[3] / "golden" / "comparison.txt"


def alternative(name: str, seconds: float, spent: float, cost: float = 0.0) -> Alternative:
    return Alternative(name, seconds, spent, cost)


SLOW, FAST, MODIFIED = (
    alternative("slow", 1000, 1000),
    alternative("fast", 600, 5000),
    alternative("modified", 600, 6000),
)
CHEAPLY_MODIFIED = alternative("modified", 980, 930)
PRICED = (
    alternative("slow", 1000, 1000, 10),
    alternative("fast", 600, 5000, 50),
    alternative("modified", 600, 6000, 60),
)
DEAR_SLOW = (
    alternative("slow", 1967, 3246, 0.0030),
    alternative("fast", 1604, 10266, 0.0025),
    alternative("modified", 1604, 10266, 0.0025),
)


@pytest.mark.parametrize(
    ("adaptive", "better"),
    [((700, 900), None), ((700, 1100), None), ((400, 6000), None), ((950, 3000), FAST), ((995, 1000), SLOW)],
)
def test_time_is_bought_where_an_hour_is_cheapest(adaptive: tuple[float, float], better: Alternative | None) -> None:
    assert judge((SLOW, FAST, MODIFIED), (alternative("adaptive", *adaptive),)).better == better


def test_of_policies_that_cost_nothing_the_fastest_is_best() -> None:
    quick, thrifty = alternative("quick", 600, 900), alternative("thrifty", 980, 800)
    assert judge((SLOW, FAST, MODIFIED), (thrifty, quick)).best is quick


def test_of_policies_that_are_as_fast_the_cheaper_is_best() -> None:
    dear, thrifty = alternative("dear", 600, 990), alternative("thrifty", 603, 800)
    assert judge((SLOW, FAST, MODIFIED), (dear, thrifty)).best is thrifty


@pytest.mark.parametrize("spent", [900, 1005], ids=["costs less than the slow volume", "costs hardly more"])
def test_a_volume_that_is_hardly_faster_does_not_beat_a_policy_that_costs_nothing(spent: float) -> None:
    assert judge((SLOW, FAST, CHEAPLY_MODIFIED), (alternative("adaptive", 600, spent),)).better is None


def test_what_costs_nothing_beats_every_price() -> None:
    modified = alternative("modified", 800, 900)
    assert judge((SLOW, FAST, modified), (alternative("adaptive", 600, 1100),)).better is modified


def test_the_price_decides_where_there_is_one() -> None:
    agent = alternative("s4", 1628, 3040, 0.0026)
    assert judge(DEAR_SLOW, (agent,), "EUR").better is DEAR_SLOW[1]


def test_the_sentences() -> None:
    static = (SLOW, FAST, MODIFIED)
    asked = (
        *((static, alternative("adaptive", *point)) for point in ((700, 900), (400, 6000), (950, 3000), (995, 1000))),
        ((SLOW, FAST, CHEAPLY_MODIFIED), alternative("adaptive", 600, 1005)),
        ((SLOW, FAST, alternative("modified", 800, 900)), alternative("adaptive", 600, 1100)),
        (DEAR_SLOW, alternative("s4", 1628, 3040, 0.0026)),
        (PRICED, alternative("a", 700, 900, 12)),
        (PRICED, alternative("a", 950, 900, 20)),
    )
    assert [judge(s, (policy,), "EUR").sentence for s, policy in asked] == GOLDEN.read_text().splitlines()


POINTS = st.tuples(st.integers(300, 1100), st.integers(500, 3000))


@given(st.lists(POINTS, min_size=1, max_size=4), POINTS, POINTS)
def test_a_policy_that_is_worth_it_is_beaten_by_none_in_time_and_price(
    policies: list[tuple[int, int]], fast: tuple[int, int], modified: tuple[int, int]
) -> None:
    agents = [alternative(f"p{n}", *point) for n, point in enumerate(policies)]
    found = judge((SLOW, alternative("fast", *fast), alternative("modified", *modified)), agents)
    if found.better is None:
        best, points = found.best, [*policies, fast, modified]
        assert not [p for p in points if p[0] <= best.completion_s and p[1] < best.agbs]
        assert not [p for p in points if p[0] < best.completion_s and p[1] <= best.agbs]
