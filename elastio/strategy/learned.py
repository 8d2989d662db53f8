"""The next burst as the agent expects it from its own past, and what to do about it. Pure.

Theory of operation. `forecast` says when the next burst is expected, and how often that would have been right. The rest
is prices (see `worth`): c_l for a second of a burst without its cache, c_h for a second of owning one.

- A cache waits for a burst that is late for as long as it pays: holding it for t seconds costs c_h t, and buying it
  again when the burst comes makes the burst wait for the time a to attach it. So t = a c_l / c_h, within the inactivity
  delay. A burst is a hit if it begins within t of the forecast.
- The lead is that of the newsvendor problem (K. Arrow, T. Harris, J. Marschak, *Optimal Inventory Policy*, Econometrica
  1951). A cache that is bought L seconds before the expected begin of a burst serves writes a - e - L seconds after the
  burst began, where it takes a seconds to attach it and the burst begins e later than expected. With x = a - e the best
  L is the quantile of x at q = c_l / (c_l + c_h). A cache that would come too late is bought by the load itself, so no
  lateness is above a; one that waits for a burst that does not come is released after a while, so no earliness is above
  that. Being ahead pays only if what it costs, with the errors of past forecasts, is below what waiting for the load
  costs each time.
- Two bursts are enough, one gap: a cache that is bought in vain is cheap, and every burst that is met late is not. From
  then on each forecast is judged by what came.

Wasted are all the billed seconds of caches whose burst did not come, and those for which the others waited for theirs.
A cache is bought ahead only if, were it in vain, what is wasted would still be at most a twentieth of what all caches
cost, or within the *allowance*: two volumes like the first one for a minute each, or their least billed time. Without
it nothing could be bought ahead before the bill is twenty times what one wrong forecast costs. A cache in vain costs at
least what is billed from the purchase to the end of its release, so nothing that comes of a purchase wastes more. The
bill is that of the ledger, in currency where all prices are known, else in AGBs.

Nothing is kept but the ledger and the measured times, so an agent that was restarted expects the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import NamedTuple

from elastio.billing import RELEASE_IN_STEPS_S, TO_THE_INSTANT, Billing
from elastio.core.model import Forecast, VolumeSpec
from elastio.core.policy import Ahead, Model, Policy
from elastio.strategy import forecast as forecasts
from elastio.strategy.forecast import Burst
from elastio.units import agbs

# Past expectations that must be known before any is acted on.
LEAST_KNOWN = 2
# Intervals that a forecast needs.
LEAST_INTERVALS = 1
# The share of the caches' bill that may be wasted, and for how many volumes of how many seconds it may be more.
WASTED_SHARE = 0.05
FREE_CACHES, FREE_S = 2, 60.0
# A decision waits for the next sample, and so does the load that shows that a burst began.
DECIDES_S = 1.0
# Bursts are seen to begin within a few samples: a forecast is never judged more strictly.
LEAST_TOLERANCE_S = 5.0


class Expectation(NamedTuple):
    """One past expectation: `attach_s` is a; `error_s` is e, infinite if no burst came."""

    attach_s: float
    error_s: float


class CacheCosts(NamedTuple):
    """What caches cost, in currency or AGBs: all of them; what of it was wasted; a second of the last one.

    `allowed` is the allowance: so much may be wasted, however small the total is. `sold` is what was bought, each with
    the cost of a second.
    """

    total: float = 0.0
    wasted: float = 0.0
    per_s: float = 0.0
    allowed: float = 0.0
    sold: tuple[tuple[VolumeSpec, float], ...] = ()


class Past(NamedTuple):
    """The last bursts, times in seconds since the epoch, and what their caches cost.

    `money` None: a price is not known, or there are several currencies. `billing` is that of the last cache.
    """

    bursts: tuple[Burst, ...] = ()
    agbs: CacheCosts = CacheCosts()
    money: CacheCosts | None = None
    billing: Billing = TO_THE_INSTANT


NOTHING_KNOWN = Past()


@dataclass(frozen=True, slots=True)
class ForecastTerms:
    """What a forecast is weighed by, beside the past.

    `attach_s` are measured times from a decision to the attached cache; without any, `policy.lead_s` is taken for one.
    `waiting_per_hour` is what an hour of waiting costs, in currency; None: as much as the backing volume, in AGBs.
    `release_s` is how long a release takes, and `spec_for` what would be bought ahead of a burst (None: the same as
    last).
    """

    policy: Policy
    attach_s: tuple[float, ...]
    backing_bytes: int
    waiting_per_hour: float | None = None
    release_s: float = RELEASE_IN_STEPS_S
    spec_for: Callable[[Forecast], VolumeSpec] | None = None


def prices(past: Past, at: ForecastTerms) -> tuple[float, float]:
    """c_l and c_h, both in currency or both in AGBs per second."""
    slow, fast = at.policy.backing_bandwidth_mb_s, at.policy.cache_bandwidth_mb_s
    lost = max(0.0, 1 - slow / fast)
    if past.money is not None and at.waiting_per_hour is not None:
        return at.waiting_per_hour / 3600 * lost, past.money.per_s
    return agbs(slow, at.backing_bytes, 1.0) * lost, past.agbs.per_s


def tolerance_s(attach_s: float, late_per_s: float, hold_per_s: float, policy: Policy) -> float:
    """How much later or earlier than expected a burst may begin for the forecast to have been right, in seconds."""
    pays_s = attach_s * late_per_s / hold_per_s if hold_per_s > 0 else math.inf
    return max(LEAST_TOLERANCE_S, min(pays_s, policy.inactivity_delay_s))


def met_ahead(
    bursts: Sequence[Burst],
    late_s: float,
    late_per_s: float,
    hold_per_s: float,
    policy: Policy,
    again_s: float = 0.0,
    may_buy: Callable[[Forecast], bool] = lambda burst: True,
) -> float:
    """The share of the wait for a cache that is spared because the next bursts are expected, 0 to 1.

    `late_s` is a. Until `again_s` after the end of a burst no other cache can be bought. Without a forecast that is
    sure enough, if its lead begins before that, or if no cache may be bought ahead of the expected burst, it is 0. What
    the last forecasts would have cost is taken off, each with the lead that followed from those before it: caches that
    wait for their burst, and bursts that come earlier.
    """
    kept = bursts[-forecasts.KEPT_BURSTS :]
    waiting = late_per_s * late_s
    if policy.ahead is not Ahead.LEARNED or not kept or waiting <= 0:
        return 0.0
    kept_s = tolerance_s(late_s, late_per_s, hold_per_s, policy)
    expected = forecasts.forecast(kept, kept[-1].ended_at, kept_s, LEAST_INTERVALS)
    if expected is None or expected.confidence < policy.least_confidence:
        return 0.0

    def lead_after(known: Sequence[Burst]) -> float:
        errors = forecasts.recent_errors(known, LEAST_INTERVALS)
        return best_lead_s([Expectation(late_s, error) for error in errors], late_per_s, hold_per_s)

    lead = lead_after(kept)
    is_too_soon = expected.begins_at - lead < kept[-1].ended_at + again_s
    if is_too_soon or not may_buy(replace(expected, lead_s=lead, kept_s=kept_s)):
        return 0.0
    past = forecasts.attempts(kept, LEAST_INTERVALS)[-forecasts.RECORD :]
    costs = []
    for index, attempt in enumerate(past, len(kept) - len(past)):
        most_s = kept[index].begun_at - attempt.error_s - kept[index - 1].ended_at - again_s
        lead = min(most_s, lead_after(kept[:index]))
        costs.append(ahead_cost([Expectation(late_s, attempt.error_s)], lead, kept_s, late_per_s, hold_per_s))
    return max(0.0, 1 - sum(costs) / len(costs) / waiting) if costs else 1.0


def next_burst(past: Past, at: ForecastTerms, wall: float) -> Forecast | None:
    """The next burst, its begin in seconds since the epoch; None: none is expected, or being ahead of it would not pay.

    `wall` is now. No cache may be open.
    """
    attach_s = at.attach_s or (at.policy.lead_s,)
    late, hold = prices(past, at)
    kept_s = tolerance_s(median(attach_s), late, hold, at.policy)
    expected = forecasts.forecast(past.bursts, wall, kept_s, LEAST_INTERVALS)
    if expected is None:
        return None
    errors = forecasts.recent_errors(past.bursts, LEAST_INTERVALS)
    known = [Expectation(a + DECIDES_S, e) for a in attach_s for e in errors]
    lead = lead_s(known, kept_s, late, hold)
    if lead is None:
        return None
    found = replace(expected, lead_s=lead, kept_s=kept_s)
    return found if fits_the_bill(found, past, at) else None


def fits_the_bill(burst: Forecast, past: Past, at: ForecastTerms) -> bool:
    """The cache for this burst may be bought ahead: were it in vain, not too much of the bill would be wasted."""
    return is_affordable(past.money or past.agbs, in_vain(burst, past, at))


def in_vain(burst: Forecast, past: Past, at: ForecastTerms) -> float:
    """What the cache for this burst costs at the most if the burst does not come, in the unit of the bill.

    By money, a cache that waited in vain is released where its paid time ends.
    """
    billing, lasts_s = past.billing, (burst.lead_s or 0.0) + (burst.kept_s or 0.0)
    if at.policy.model is Model.MONEY:
        early_s = billing.release_s
        lasts_s = max(lasts_s, billing.billed_s(lasts_s + early_s) - early_s)
    lasts_s += at.release_s
    bill, billed_s = (past.agbs, lasts_s) if past.money is None else (past.money, billing.billed_s(lasts_s))
    return billed_s * (bill.per_s if at.spec_for is None else _per_s(at.spec_for(burst), bill))


def _per_s(wanted: VolumeSpec, bill: CacheCosts) -> float:
    """What a second of this volume costs at the most: one that is larger or faster is dearer in proportion."""
    size, mb_s = wanted.size_bytes, wanted.bandwidth_mb_s
    dearer = (p * max(1.0, size / s.size_bytes) * max(1.0, mb_s / s.bandwidth_mb_s) for s, p in bill.sold)
    return min(dearer, default=bill.per_s)


def is_affordable(bill: CacheCosts, vain: float) -> bool:
    """A cache that costs `vain` if its burst does not come may be bought ahead."""
    return bill.wasted + vain <= max(WASTED_SHARE * (bill.total + vain), bill.allowed)


def allowance(per_s: float, billing: Billing) -> float:
    """What may be wasted in any case, by the price of the first cache."""
    return FREE_CACHES * per_s * billing.billed_s(FREE_S)


# --- the lead --------------------------------------------------------------------------------------------


def critical_share(late_per_s: float, hold_per_s: float) -> float:
    """q: the share of bursts that the cache should be in time for, 0 to 1."""
    return late_per_s / (late_per_s + hold_per_s) if late_per_s > 0 else 0.0


def best_lead_s(past: Sequence[Expectation], late_per_s: float, hold_per_s: float) -> float:
    """L* in seconds: the least lead with which the share q of the past would have been in time; never negative."""
    known = sorted(p.attach_s - p.error_s for p in past)
    index = math.ceil(critical_share(late_per_s, hold_per_s) * len(known) - 1e-9) - 1
    return max(0.0, known[max(0, index)]) if known else 0.0


def ahead_cost(
    past: Sequence[Expectation], lead_s: float, kept_s: float, late_per_s: float, hold_per_s: float
) -> float:
    """The mean cost of a burst with this lead, where a cache is kept for `kept_s` beyond the expected begin."""
    total = 0.0
    for attach_s, error_s in past:
        if error_s > kept_s:  # released before the burst came, which then buys another one
            total += hold_per_s * (lead_s + kept_s) + late_per_s * attach_s
            continue
        lateness = attach_s - error_s - lead_s
        total += hold_per_s * max(0.0, -lateness) + late_per_s * min(attach_s, max(0.0, lateness))
    return total / len(past) if past else 0.0


def lead_s(past: Sequence[Expectation], kept_s: float, late_per_s: float, hold_per_s: float) -> float | None:
    """Seconds before the expected begin at which to buy; None: wait for the load.

    None as long as fewer than LEAST_KNOWN expectations are known, and where being ahead would not have paid.
    """
    if len(past) < LEAST_KNOWN:
        return None
    best = best_lead_s(past, late_per_s, hold_per_s)
    waiting = late_per_s * sum(p.attach_s for p in past) / len(past)
    return best if ahead_cost(past, best, kept_s, late_per_s, hold_per_s) < waiting else None
