"""The next burst as the agent expects it from its own past, and what to do about it. Pure.

Theory of operation. `forecast` says when the next burst is expected, and how often that would have been right. The rest
is prices (see `worth`): c_l for a second of a burst without its cache, c_h for a second of owning one.

- A cache waits for a burst that is late for as long as it pays: holding it for t seconds costs c_h t, and buying it
  again when the burst comes makes the burst wait for the time a to attach it. So t = a c_l / c_h, within the inactivity
  delay. A burst is a hit if it begins within t of the forecast.
- The lead is that of `lead`: measured times to attach, and how wrong the last forecasts were.
- Two bursts are enough, one gap: a cache that is bought in vain is cheap, and every burst that is met late is not. From
  then on each forecast is judged by what came.

Nothing is bought ahead while wrong forecasts have cost more than a twentieth of what all caches cost. So they cost a
twentieth, and at most the one purchase more that turned out wrong last. That the next one has to fit as well would be
stricter by this purchase, and would forbid twice as many right ones after each wrong one while the bill is small. The
bill is that of the ledger, in currency where all prices are known, else in AGBs.

Nothing is kept but the ledger and the measured times, so an agent that was restarted expects the same.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from statistics import median
from typing import NamedTuple

from elastio.core import forecast as forecasts
from elastio.core.forecast import Burst
from elastio.core.lead import Expectation, lead_s
from elastio.core.model import Forecast
from elastio.core.policy import Policy
from elastio.units import agbs

# Intervals that a forecast needs.
LEAST_INTERVALS = 1
# The share of the caches' bill that wrong forecasts may cost.
WRONG_SHARE = 0.05
# A decision waits for the next sample, and so does the load that shows that a burst began.
DECIDES_S = 1.0
# Bursts are seen to begin within a few samples: a forecast is never judged more strictly.
LEAST_TOLERANCE_S = 5.0


class Bill(NamedTuple):
    """What caches cost, in currency or AGBs: all of them; those whose forecast was wrong; a second of the last one."""

    total: float = 0.0
    wrong: float = 0.0
    per_s: float = 0.0


class Past(NamedTuple):
    """The last bursts, times in seconds since the epoch, and what their caches cost.

    `money` None: a price is not known, or there are several currencies.
    """

    bursts: tuple[Burst, ...] = ()
    agbs: Bill = Bill()
    money: Bill | None = None


NOTHING_KNOWN = Past()


@dataclass(frozen=True, slots=True)
class Situation:
    """What a forecast is weighed by, beside the past.

    `attach_s` are measured times from a decision to the attached cache; without any, `policy.lead_s` is taken for one.
    `waiting_per_hour` is what an hour of waiting costs, in currency; None: as much as the backing volume, in AGBs.
    """

    policy: Policy
    attach_s: tuple[float, ...]
    backing_bytes: int
    waiting_per_hour: float | None = None


def prices(past: Past, at: Situation) -> tuple[float, float]:
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


def next_burst(past: Past, at: Situation, wall: float) -> Forecast | None:
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
    if lead is None or not is_affordable(past.money or past.agbs):
        return None
    return replace(expected, lead_s=lead, kept_s=kept_s)


def is_affordable(bill: Bill) -> bool:
    """Wrong forecasts have cost their share of the bill at most: one more cache may be bought ahead."""
    return bill.wrong <= WRONG_SHARE * bill.total
