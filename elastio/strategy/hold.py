"""When to release a cache that is no longer used: hold it for the next burst, or buy another one then. Pure.

Theory of operation. This is the ski rental problem (A. Karlin, M. Manasse, L. Rudolph, D. Sleator, *Competitive snoopy
caching*, Algorithmica 1988). Holding costs c_h a second; releasing costs c_b, once, when the next burst comes. Nobody
knows when that is. Whoever holds until the rent has reached the price, and then releases,

    t* = c_b / c_h

pays at most twice what somebody pays who knows the future, whatever comes. No rule without knowledge does better. Where
enough gaps of this application are known, the t that would have been cheapest for them is used instead:

    minimize over t:   sum over gaps g of   c_h min(g, t) + c_b [g > t]

The sum falls only where t reaches a gap, so t = 0 and the gaps themselves are all that has to be tried.

Seconds that are billed anyway cost nothing: a volume is paid for its least billed time, or to the end of a billed step.
The rent, and with it t, begins where the paid time ends. Where time is sold in steps, the rent is paid at the beginning
of a step, so a cache is held for as many whole steps as c_b pays for. While a cache is flushed there is nothing to
decide: t begins when it is clean.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from elastio.strategy.spending import Billing

# Known gaps from which on they are believed, and how many of the last ones count.
LEAST_GAPS = 8
KEPT_GAPS = 64


def break_even_s(hold_per_s: float, rebuy: float) -> float:
    """t* = c_b / c_h in seconds; infinite where holding is free."""
    if hold_per_s <= 0:
        return math.inf
    return max(0.0, rebuy) / hold_per_s


def hold_cost(gaps_s: Sequence[float], kept_s: float, hold_per_s: float, rebuy: float) -> float:
    """What holding for `kept_s` costs over gaps of these lengths. A cache that is held as long as the gap is found."""
    return sum(hold_per_s * min(gap, kept_s) + (rebuy if gap > kept_s else 0.0) for gap in gaps_s)


def best_holding_s(gaps_s: Sequence[float], hold_per_s: float, rebuy: float) -> float:
    """The cheapest time to hold a cache over these gaps, in seconds; the shorter one of equals."""
    tried = (0.0, *sorted(set(gaps_s)))
    return min(tried, key=lambda t: (hold_cost(gaps_s, t, hold_per_s, rebuy), t))


def holding_s(gaps_s: Sequence[float], hold_per_s: float, rebuy: float) -> float:
    """How long to hold a clean, unused cache. `gaps_s`: known gaps, oldest first, each from clean to the next burst."""
    if len(gaps_s) < LEAST_GAPS:
        return break_even_s(hold_per_s, rebuy)
    return best_holding_s(gaps_s[-KEPT_GAPS:], hold_per_s, rebuy)


def release_in_s(paid: Billing, age_s: float, release_s: float, hold: float) -> float:
    """Seconds from now, when the cache is unused and clean, to the beginning of its release.

    `age_s` is the time since its purchase, `release_s` how long a release takes and how much earlier than the end of
    the paid time it has to begin, `hold` the seconds of `holding_s`. Never before the paid time is used up.
    """
    end_s = age_s + release_s
    free_s = max(0.0, paid.billed_s(end_s) - end_s)
    if not paid.step_s or math.isinf(hold):
        return free_s + hold
    return free_s + math.floor(hold / paid.step_s) * paid.step_s
