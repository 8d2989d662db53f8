"""How long before an expected burst a cache is bought, and whether to buy it before the burst at all. Pure.

Theory of operation. A cache that is bought L seconds before the expected begin of a burst serves writes

    lateness = a - e - L        a: seconds to attach it, e: by how much the burst began later than expected

seconds after the burst began. Each late second costs c_l, each early one c_h (see `worth`). With x = a - e this is the
newsvendor problem (K. Arrow, T. Harris, J. Marschak, *Optimal Inventory Policy*, Econometrica 1951): the best L is the
quantile of x at

    q = c_l / (c_l + c_h)

A cache that would come too late is bought by the load itself, so no lateness is above a. A cache that waits for a burst
that does not come is released after a while, so no earliness is above that. Being ahead pays only if what it costs,
with the forecast's errors of the past, is below what it costs to wait for the load each time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

# Past expectations that must be known before any is acted on.
LEAST_KNOWN = 2


class Expectation(NamedTuple):
    """One past expectation: `attach_s` is a; `error_s` is e, infinite if no burst came."""

    attach_s: float
    error_s: float


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
