"""The cache that is bought before any burst of a device is known. Pure.

Theory of operation. Of the first burst nobody knows how much it writes, not even the order of magnitude. So every
doubling from 2 to 64 GB counts as equally likely (the prior of ignorance of a scale, H. Jeffreys, *Theory of
Probability*, 1939). The largest bursts would dominate a mean of costs, and the smallest a mean of what caches gain. So
each size s is judged by the waiting and the caches that an owner would pay for it, in proportion to the best cache:

    r(plan, s) = cost(plan, s) / least cost(s)        the plan of the least mean r is the guess

Its bursts are replayed as those of the past are (`hindsight`): BURSTS of one size, PAUSE_S apart. So room that is cheap
is bought for bursts that may come, and where room is dear hardly any. To buy nothing is judged in the same way.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from elastio.strategy.hindsight import PastLoad, candidates, plan_cost, slow_cost
from elastio.strategy.worth import UNBOUNDED, Bounds, Offer, Plan, Terms

SIZES_MB = tuple(1000.0 * 2**power for power in range(1, 7))
# How often a burst comes, and how long the pauses are. A guess as well; twice or half as much changes little.
BURSTS, PAUSE_S = 4, 300.0


def first_plan(terms: Terms, offer: Offer, bounds: Bounds = UNBOUNDED) -> Plan | None:
    """The plan that is bought before any burst is known; its cost is its mean ratio.

    Takes some milliseconds.
    """
    return plan_for(terms, offer, [_loads(size_mb) for size_mb in SIZES_MB], bounds)


def plan_for(
    terms: Terms, offer: Offer, supposed: Sequence[Sequence[PastLoad]], bounds: Bounds = UNBOUNDED
) -> Plan | None:
    """The plan of the least mean ratio over these loads. None: to buy nothing has a smaller one."""
    tried = [plan for past in supposed for plan in candidates(terms, offer, past[:1], bounds, late_shares=())]
    nothing = [slow_cost(terms, past) for past in supposed]
    costs = [[plan_cost(terms, plan, past) for past in supposed] for plan in tried]
    least = [min(of_size) for of_size in zip(nothing, *costs, strict=True)]

    def ratio(of: list[float]) -> float:
        return sum(cost / best if best > 0 else 1.0 for cost, best in zip(of, least, strict=True)) / len(least)

    best = min(range(len(tried)), key=lambda index: ratio(costs[index]), default=None)
    if best is None or ratio(costs[best]) >= ratio(nothing):
        return None
    found = tried[best]
    return Plan(found.spec, found.app_mb_s, found.drain_mb_s, found.delay_s, found.holding_s, ratio(costs[best]))


def _loads(size_mb: float) -> tuple[PastLoad, ...]:
    return (*((PastLoad(size_mb, math.inf, PAUSE_S),) * (BURSTS - 1)), PastLoad(size_mb, math.inf, math.inf))
