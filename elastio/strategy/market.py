"""What decisions by a tariff start from, and what they lead to: values only. Pure.

`policy.model = "money"` decides by prices. A `Market` is what is sold and what waiting costs; `Advice` is what the past
bursts of this device teach for it. What was decided for one purchase is a `memory.Choice`.
"""

from __future__ import annotations

from dataclasses import dataclass

from elastio.strategy.spending import RELEASE_S
from elastio.strategy.tariff import Tariff
from elastio.strategy.worth import UNBOUNDED, Bounds, Offer, Plan, Terms

# The longest time for which an unused cache is held, whatever it costs.
MOST_HELD_S = 6 * 3600.0


@dataclass(frozen=True, slots=True)
class Market:
    """The tariff and the offer of the cache's volume type, and what a second of waiting costs, in its currency.

    `waiting_per_s` is the value of the machine's time and the price of its backing volume.
    """

    tariff: Tariff
    waiting_per_s: float
    offer: Offer
    bounds: Bounds = UNBOUNDED

    def terms(self, backing_mb_s: float, cutoff: float, late_s: float) -> Terms:
        """The terms of a cache that serves `late_s` after the load is seen."""
        return Terms(
            self.tariff, self.waiting_per_s, backing_mb_s, cutoff=cutoff, late_s=late_s, overhead_s=late_s + RELEASE_S
        )


@dataclass(frozen=True, slots=True)
class OwnedCache:
    """What the last bursts teach about the cache that is owned, that of the cycle with this `token`.

    Clean and unused, it is worth holding for `holding_s` beyond its paid time; not at all if it `is_outdated`: another
    cache, or none, would have been cheaper. `is_hindrance`: even for nothing it is dearer than another one.
    """

    token: str
    holding_s: float
    is_outdated: bool = False
    is_hindrance: bool = False


@dataclass(frozen=True, slots=True)
class Advice:
    """What the last bursts of this device teach.

    `bursts` of them are known, the largest wrote `largest_mb`. `plan` would have been the cheapest for them; None: to
    buy nothing would have been cheaper. `pays`: also for the known bursts alone, without the larger and faster one that
    is supposed beside them. `gaps` pauses between bursts are known. `owned` None: no cache is owned that was chosen by
    money, or no burst is known.
    """

    bursts: int
    largest_mb: float
    plan: Plan | None = None
    gaps: int = 0
    owned: OwnedCache | None = None
    pays: bool = False
