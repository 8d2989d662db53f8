"""When to release a cache that is no longer used: hold it for the next burst, or buy another one then. Pure.

Theory of operation. This is the ski rental problem (A. Karlin, M. Manasse, L. Rudolph, D. Sleator, *Competitive snoopy
caching*, Algorithmica 1988). Holding costs c_h a second; releasing costs c_b, once, when the next burst comes. Nobody
knows when that is. Whoever holds until the rent has reached the price, and then releases,

    t* = c_b / c_h

pays at most twice what somebody pays who knows the future, whatever comes. No rule without knowledge does better. Gaps
of this application that are known count as what will come, each with the same weight, beside one that nobody knows:

    minimize over t:   sum over gaps g of (c_h min(g, t) + c_b [g > t])  +  c_h m (1 + ln(t/m)) + c_b m/t

The second part is the mean cost of a gap that exceeds t with probability m/t, m = t*/UNKNOWN_RATIO: no length is usual.
Alone its minimum is at t*. Beside k known gaps that are longer than t it is where

    k t^2 + m t = m t*

and the sum falls where t reaches a gap. So t = 0, t*, the gaps and the roots for each k are all that has to be tried.
One known gap that is longer than t* is enough to release at once; a cache that always was needed sooner is held up to
t*. Where the next burst will find its cache anyway, bought ahead by a forecast, c_b is small (`worth.rebuy_price`), and
so is t*: hold, release, and release and buy ahead are one decision.

Seconds that are billed anyway cost nothing: a volume is paid for its least billed time, or to the end of a billed step.
The rent, and with it t, begins where the paid time ends. Where time is sold in steps, the rent is paid at the beginning
of a step, so a cache is held for as many whole steps as c_b pays for. While a cache is flushed there is nothing to
decide: t begins when it is clean.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from elastio.billing import Billing

# How many of the last known gaps count, and by which factor t* exceeds the shortest gap that nobody knows.
KEPT_GAPS = 64
UNKNOWN_RATIO = 4.0


def break_even_s(hold_per_s: float, rebuy: float) -> float:
    """t* = c_b / c_h in seconds; infinite where holding is free."""
    if hold_per_s <= 0:
        return math.inf
    return max(0.0, rebuy) / hold_per_s


def hold_cost(gaps_s: Sequence[float], kept_s: float, hold_per_s: float, rebuy: float) -> float:
    """What holding for `kept_s` costs over gaps of these lengths. A cache that is held as long as the gap is found."""
    return sum(hold_per_s * min(gap, kept_s) + (rebuy if gap > kept_s else 0.0) for gap in gaps_s)


def unknown_cost(kept_s: float, hold_per_s: float, rebuy: float) -> float:
    """What holding for `kept_s` costs over a gap that nobody knows, on average."""
    shortest_s = break_even_s(hold_per_s, rebuy) / UNKNOWN_RATIO
    if kept_s <= shortest_s:
        return hold_per_s * kept_s + rebuy
    return hold_per_s * shortest_s * (1 + math.log(kept_s / shortest_s)) + rebuy * shortest_s / kept_s


def holding_s(gaps_s: Sequence[float], hold_per_s: float, rebuy: float) -> float:
    """How long to hold a clean, unused cache, in seconds; the shorter one of equals.

    `gaps_s`: known gaps, oldest first, each from clean to the next burst. `rebuy`: of the next burst (`rebuy_price`).
    """
    longest_s = break_even_s(hold_per_s, rebuy)
    known = gaps_s[-KEPT_GAPS:]
    if not known or not 0 < longest_s < math.inf:
        return longest_s
    shortest_s = longest_s / UNKNOWN_RATIO
    roots = (_root(k, shortest_s, longest_s) for k in range(1, len(known) + 1))
    tried = {0.0, longest_s, *known, *roots}

    def cost(kept_s: float) -> float:
        return hold_cost(known, kept_s, hold_per_s, rebuy) + unknown_cost(kept_s, hold_per_s, rebuy)

    return min((t for t in tried if t <= longest_s), key=lambda t: (cost(t), t))


def _root(longer: int, shortest_s: float, longest_s: float) -> float:
    """The positive t of k t^2 + m t = m t*."""
    return (math.sqrt(shortest_s**2 + 4 * longer * shortest_s * longest_s) - shortest_s) / (2 * longer)


def release_in_s(paid: Billing, age_s: float, release_s: float, hold: float, least_s: float = math.inf) -> float:
    """Seconds from now, when the cache is unused and clean, to the beginning of its release.

    `age_s` is the time since its purchase, `release_s` how long a release takes and how much earlier than the end of
    the paid time it has to begin, `hold` the seconds of `holding_s`. Never before the paid time is used up.

    `least_s` is how long a release takes at the least: where that is still paid and another step is not worth holding
    for, the release begins at once. If it takes longer, another step is paid, as it would be otherwise.
    """
    end_s = age_s + release_s
    free_s = max(0.0, paid.billed_s(end_s) - end_s)
    if not paid.step_s or math.isinf(hold):
        return free_s + hold
    if hold < paid.step_s and age_s + least_s <= paid.billed_s(age_s) < end_s:
        return 0.0
    return free_s + math.floor(hold / paid.step_s) * paid.step_s
