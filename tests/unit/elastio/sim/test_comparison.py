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
    ("modified", "adaptive"), [(MODIFIED, (700, 1100)), (CHEAPLY_MODIFIED, (600, 900))], ids=["fast", "hardly faster"]
)
def test_what_buys_time_for_a_higher_price_does_not_beat_the_agent(
    modified: Alternative, adaptive: tuple[float, float]
) -> None:
    assert judge((SLOW, FAST, modified), (alternative("adaptive", *adaptive),)).better is None


def test_of_policies_that_cost_nothing_the_fastest_is_best() -> None:
    quick, thrifty = alternative("quick", 600, 900), alternative("thrifty", 980, 800)
    assert judge((SLOW, FAST, MODIFIED), (thrifty, quick)).best is quick


def test_of_policies_that_are_as_fast_the_cheaper_is_best() -> None:
    dear, thrifty = alternative("dear", 600, 990), alternative("thrifty", 603, 800)
    assert judge((SLOW, FAST, MODIFIED), (dear, thrifty)).best is thrifty


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
