"""What was spent in a day and a month, by the own device and by others. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

from elastio.units import GIB

# From the end of holding to the deletion of the volume, in seconds. Where time is sold in whole steps, a release begins
# earlier: one that takes longer than expected would pay for another step.
RELEASE_S, RELEASE_IN_STEPS_S = 15.0, 60.0


@dataclass(frozen=True, slots=True)
class Billing:
    """For how long a volume is billed: for at least `minimum_s`, and in whole steps of `step_s` (0: to the instant)."""

    minimum_s: float = 0.0
    step_s: float = 0.0

    def billed_s(self, lasted_s: float) -> float:
        """The seconds that are billed for a volume that existed for `lasted_s`."""
        least_s = max(lasted_s, self.minimum_s)
        return math.ceil(least_s / self.step_s) * self.step_s if self.step_s else least_s

    @property
    def release_s(self) -> float:
        """How long before the end of a paid time its release begins, in seconds."""
        return RELEASE_IN_STEPS_S if self.step_s else RELEASE_S


TO_THE_INSTANT = Billing()
# The most boosts, AGBs and cost of a period; None: no limit.
OfPeriod: TypeAlias = tuple[int | None, float | None, float | None]


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that may be spent in a day and in a month; None: no limit. Costs are in the currency of the prices."""

    max_boosts_per_day: int | None = None
    max_agbs_per_day: float | None = None
    max_cost_per_day: float | None = None
    max_boosts_per_month: int | None = None
    max_agbs_per_month: float | None = None
    max_cost_per_month: float | None = None

    @property
    def day(self) -> OfPeriod:
        return self.max_boosts_per_day, self.max_agbs_per_day, self.max_cost_per_day

    @property
    def month(self) -> OfPeriod:
        return self.max_boosts_per_month, self.max_agbs_per_month, self.max_cost_per_month


@dataclass(frozen=True, slots=True)
class Spent:
    """What was spent in a period. `currency` is an amount, in the currency of the prices."""

    boosts: int = 0
    agbs: float = 0.0
    currency: float = 0.0


@dataclass(frozen=True, slots=True)
class Period:
    """A local day or month: from `since_wall` to before `until_wall`."""

    since_wall: float = float("-inf")
    until_wall: float = float("inf")

    def has(self, wall: float) -> bool:
        """`wall` lies in the period."""
        return self.since_wall <= wall < self.until_wall

    def clip(self, wall: float) -> float:
        """The time of the period that is nearest to `wall`."""
        return min(max(wall, self.since_wall), self.until_wall)


@dataclass(frozen=True, slots=True)
class Others:
    """What the other agents of this VM that share the caps have spent, and reserved for boosts that run.

    `trouble`: why that is not known; empty: it is. `granted_until_wall`: the bill of the own boost is reserved until
    then, by the clock of its cycle; None: nothing is reserved. `full`: the key of the cap that leaves no room for a
    longer reservation.
    """

    today: Spent = Spent()
    month: Spent = Spent()
    trouble: str = ""
    granted_until_wall: float | None = None
    full: str = ""


NO_OTHERS = Others()


@dataclass(frozen=True, slots=True)
class Spend:
    """What was spent since local midnight. `known` False: the ledger cannot be read, and it may be more.

    `currency_name` is the currency of the amount `currency`, empty if nothing with a price was billed. `unpriced` is
    how many boosts were billed without a known price. `month` is what was spent since the first of the local month,
    today included. `day` and `this_month` are the periods of the amounts. All of this is the own device's; `others`
    is what counts beside it; None: the caps are not shared.
    """

    boosts: int = 0
    agbs: float = 0.0
    currency: float = 0.0
    known: bool = True
    currency_name: str = ""
    unpriced: int = 0
    month: Spent = Spent()
    day: Period = Period()
    this_month: Period = Period()
    others: Others | None = None

    @property
    def under_caps_today(self) -> Spent:
        """What counts under the caps of a day."""
        return self._with((self.others or NO_OTHERS).today, Spent(self.boosts, self.agbs, self.currency))

    @property
    def under_caps_this_month(self) -> Spent:
        """What counts under the caps of a month."""
        return self._with((self.others or NO_OTHERS).month, self.month)

    def _with(self, others: Spent, own: Spent) -> Spent:
        return Spent(others.boosts + own.boosts, others.agbs + own.agbs, others.currency + own.currency)


@dataclass(frozen=True, slots=True)
class Caps(Limits):
    """The limits of the configuration, and `max_size_bytes`, that of one volume.

    `ends_boosts`: a limit of AGBs or cost also ends a boost that runs, see `caps`. `shared`: they limit what all agents
    of the VM that share them spend together, see `statements`.
    """

    max_size_bytes: int = 100 * GIB
    ends_boosts: bool = True
    shared: bool = False

    @property
    def limits_spending(self) -> bool:
        """At least one limit per day or month is set."""
        return any(limit is not None for limit in (*self.day, *self.month))

    @property
    def shared_limits(self) -> Limits | None:
        """The limits that other agents share; None: they are shared with nobody."""
        return Limits(*self.day, *self.month) if self.shared else None

    @property
    def needs_price(self) -> bool:
        """A limit in currency is set, which can be kept only if prices are known."""
        return (self.max_cost_per_day, self.max_cost_per_month) != (None, None)

    def cost_left(self, spend: Spend) -> float | None:
        """What the limits in currency leave for one more boost; None: they do not limit it."""
        today, month = spend.under_caps_today, spend.under_caps_this_month
        pairs = ((self.max_cost_per_day, today.currency), (self.max_cost_per_month, month.currency))
        return min((most - spent for most, spent in pairs if most is not None), default=None)


NO_CAPS = Caps()
