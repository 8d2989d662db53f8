"""The cache that is bought before any burst is known."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

import pytest

from elastio.strategy.hindsight import BURSTS, PAUSE_S, PastLoad, first_plan, plan_cost, slow_cost
from elastio.strategy.speed import in_ratio
from elastio.strategy.tariff import Tariff, agbs_tariff
from elastio.strategy.worth import SIZES_MB, Bounds, Offer, Plan, Terms
from elastio.units import GIB
from tests.simulated import best_plan
from tests.values import present

# Room is nearly free, bandwidth is cheap for what an hour of waiting costs.
CHEAP = Terms(Tariff("USD", per_gib_hour=1e-5, per_mb_s_hour=1e-5), 1 / 3600, 100, cutoff=0.65, late_s=7, overhead_s=22)
AGBS = Terms(agbs_tariff(), 33 * 50, 33, cutoff=0.65, late_s=7, overhead_s=22)
SOLD = Offer(in_ratio(120, 800), most_bytes=100 * GIB)
# By the hour: the largest bursts dominate a mean of costs.
BY_HOUR = Tariff("EUR", per_gib_hour=0.09 / 730, minimum_s=3600, step_s=3600)
HOURLY = Terms(BY_HOUR, 0.21 / 3600, 60, cutoff=0.37, late_s=7, overhead_s=22)
ONE_SPEED = Offer((250.0,), most_bytes=100 * GIB)
OF_AGBS = Offer(in_ratio(48, 200), most_bytes=100 * GIB)


def bursts(size_mb: float) -> tuple[PastLoad, ...]:
    return (PastLoad(size_mb, math.inf, PAUSE_S),) * (BURSTS - 1) + (PastLoad(size_mb, math.inf, math.inf),)


def cost(terms: Terms, plan: Plan | None, past: tuple[PastLoad, ...]) -> float:
    return slow_cost(terms, past) if plan is None else plan_cost(terms, plan, past)


def once(size_mb: float) -> tuple[PastLoad, ...]:
    return (PastLoad(size_mb, math.inf, math.inf),)


@cache
def least(terms: Terms, offer: Offer, size_mb: float) -> tuple[float, float]:
    """The least cost of all bursts of this size, and of those after the first."""
    past = bursts(size_mb)
    of_all, of_rest = (cost(terms, best_plan(terms, offer, of), of) for of in (past, past[1:]))
    return min(of_all, cost(terms, None, once(size_mb)) + of_rest), of_rest


def mean_ratio(terms: Terms, offer: Offer, plan: Plan | None) -> float:
    """What this plan costs for each size over the best one, which follows it after the first burst if that is cheaper.

    None: nothing is bought.
    """
    total = 0.0
    for size_mb in SIZES_MB:
        of_all, of_rest = least(terms, offer, size_mb)
        total += min(cost(terms, plan, bursts(size_mb)), cost(terms, plan, once(size_mb)) + of_rest) / of_all
    return total / len(SIZES_MB)


def test_cheap_room_is_bought_for_bursts_of_every_magnitude() -> None:
    found = present(first_plan(CHEAP, SOLD))
    assert found.spec.size_bytes > 50 * GIB
    assert found.delay_s == 0
    assert mean_ratio(CHEAP, SOLD, found) < 1.05 < mean_ratio(CHEAP, SOLD, None)


@pytest.mark.parametrize("size_mb", SIZES_MB)
@pytest.mark.parametrize(("terms", "offer"), [(CHEAP, SOLD), (HOURLY, ONE_SPEED)])
def test_it_is_better_on_average_than_what_is_best_for_any_one_size(terms: Terms, offer: Offer, size_mb: float) -> None:
    found, of_size = first_plan(terms, offer), best_plan(terms, offer, bursts(size_mb))
    assert mean_ratio(terms, offer, found) <= mean_ratio(terms, offer, of_size) + 1e-3


def test_large_bursts_do_not_count_for_more_than_small_ones() -> None:
    """Where the two differ, a mean of costs would buy twice the room."""
    dearer = replace(HOURLY, tariff=replace(BY_HOUR, per_gib_hour=0.15 / 730))
    found = present(first_plan(dearer, ONE_SPEED))
    assert mean_ratio(dearer, ONE_SPEED, found) <= min(
        mean_ratio(dearer, ONE_SPEED, best_plan(dearer, ONE_SPEED, bursts(size))) for size in SIZES_MB
    )
    assert found.spec.size_bytes < 40 * GIB


def test_what_is_paid_by_the_hour_is_small_because_another_one_can_follow() -> None:
    """The room for the mean of all bursts, if none could follow, would be twice as large."""
    found = present(first_plan(HOURLY, ONE_SPEED))
    assert found.spec.size_bytes <= 16 * GIB


def test_where_room_is_dear_hardly_any_is_bought_or_none() -> None:
    found = first_plan(AGBS, OF_AGBS)
    assert found is None or found.spec.size_bytes <= 4 * GIB
    assert mean_ratio(AGBS, OF_AGBS, found) <= mean_ratio(AGBS, OF_AGBS, None)


def test_nothing_is_bought_where_waiting_costs_nothing() -> None:
    assert first_plan(replace(CHEAP, waiting_per_s=0.0), SOLD) is None
    assert first_plan(replace(CHEAP, waiting_per_s=1e-9), SOLD) is None


def test_it_stays_within_the_offer_and_the_bounds() -> None:
    found = present(first_plan(CHEAP, replace(SOLD, most_bytes=20 * GIB), Bounds(instance_mb_s=300)))
    assert found.spec.size_bytes <= 20 * GIB
    assert found.spec.bandwidth_mb_s + found.drain_mb_s <= 300
    assert first_plan(CHEAP, SOLD, Bounds(most_mb_s=110)) is None, "none is so slow"
