"""When to release a cache that is no longer used: hold it for the next burst, or buy another one then. Pure.

Theory of operation. This is the ski rental problem (A. Karlin, M. Manasse, L. Rudolph, D. Sleator, *Competitive snoopy
caching*, Algorithmica 1988). Holding costs c_h a second; releasing costs c_b, once, when the next burst comes. Nobody
knows when that is. Whoever holds until the rent has reached the price, and then releases,

    t* = c_b / c_h

pays at most twice what somebody pays who knows the future, whatever comes. No rule without knowledge does better in the
worst case. But pauses have no usual length: of one that has lasted a second as well as of one that has lasted an hour,
the next doubling is as likely as the one after it. So the longer it lasts, the less likely it ends soon, and a cache is
clean only after a flush. Nothing is waited for that was not seen. Gaps of this application that are known count as what
will come, each with the same weight, beside one that is longer than all of them:

    minimize over t:   sum over gaps g of (c_h min(g, t) + c_b [g > t])  +  c_h t + c_b

The sum falls only where t reaches a gap: so t = 0 and the gaps are all that has to be tried, and the least is never
above t*. A single known gap is waited for if it is shorter than t*/2. Where the next burst will find its cache anyway,
bought ahead by a forecast, c_b is small (`worth.rebuy_price`), and so is t: hold, release, and release and buy ahead
are one decision.

Seconds that are billed anyway cost nothing: a volume is paid for its least billed time, or to the end of a billed step.
The rent, and with it t, begins where the paid time ends. Where time is sold in steps, the rent is paid at the beginning
of a step, so a cache is held for as many whole steps as c_b pays for. While a cache is flushed there is nothing to
decide: t begins when it is clean.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from elastio.billing import Billing


def hold_cost(gaps_s: Sequence[float], kept_s: float, hold_per_s: float, rebuy: float) -> float:
    """What holding for `kept_s` costs over gaps of these lengths. A cache that is held as long as the gap is found."""
    return sum(hold_per_s * min(gap, kept_s) + (rebuy if gap > kept_s else 0.0) for gap in gaps_s)


def holding_s(gaps_s: Sequence[float], hold_per_s: float, rebuy: float) -> float:
    """How long to hold a clean, unused cache, in seconds; the shorter one of equals.

    `gaps_s`: known gaps, each from clean to the next burst. `rebuy`: of the next burst (`rebuy_price`).
    """
    if hold_per_s <= 0:
        return math.inf
    return min({0.0, *gaps_s}, key=lambda t: (hold_cost((*gaps_s, math.inf), t, hold_per_s, rebuy), t))


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
