"""What was spent in a day and a month, by the own device and by others, and the caps on it. Pure.

Theory of operation of caps that several agents of one VM share. Two agents that only add up what both have spent can
pass a cap together: both see room, both buy, and both bills grow. So an agent reserves before it spends. Its statement,
one value, says what it has spent and until when the bill of its volume is reserved. The sum over all statements never
passes a cap, because a statement that would raise it beyond is not written: the sum is taken and the statement replaced
under one lock.

- Before a purchase the least that its boost can cost is reserved, at the price of the quote.
- While the boost runs, the reservation always covers its bill up to the end of a release that begins now, and is
  extended in steps. Where no step fits, the boost ends, and its release is paid for already.
- What is owed in any case (a release under way, a boost that no cap ends) is stated without asking.

A dead agent states nothing more. A volume that was bought goes on to be billed, so its bill counts on from its rate,
beyond the reservation. Where nobody knows whether it was bought, what was reserved stays reserved, and ends with the
day or the month, or when the agent runs again and states what is true. Nothing depends on how long an agent is silent:
there is no time-out that a wrong clock could let pass.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from elastio.billing import TO_THE_INSTANT, Billing
from elastio.units import GIB

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
    of the VM that share them spend together.
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


# Statements of a clock that was ahead by up to a day still count; beyond that the clock was wrong.
DAY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class Bill:
    """What one volume costs: `per_s` a second from `opened_wall` on, for as long as it is billed."""

    opened_wall: float
    per_s: float
    billing: Billing = TO_THE_INSTANT

    def owed(self, wall: float) -> float:
        return 0.0 if wall <= self.opened_wall else self.per_s * self.billing.billed_s(wall - self.opened_wall)

    def between(self, since: float, until: float) -> float:
        return self.owed(until) - self.owed(since)


@dataclass(frozen=True, slots=True)
class Reservation:
    """The bill of one volume, and until when it is reserved. Times are seconds since the epoch, rates a second.

    `is_bought` False: the purchase is about to be asked for, or was not answered.
    """

    token: str
    opened_wall: float
    agbs_per_s: float
    cost_per_s: float
    minimum_s: float
    until_wall: float
    is_bought: bool = False
    step_s: float = 0.0

    @property
    def cost(self) -> Bill:
        return Bill(self.opened_wall, self.cost_per_s, Billing(self.minimum_s, self.step_s))


@dataclass(frozen=True, slots=True)
class Statement:
    """What the agent of one device has spent in a day and a month, as its ledger said at `read_wall`.

    That includes the bill of a volume that was bought, up to then. `counted` is the token of the cycle whose boost is
    among the numbers of boosts.
    """

    device: str
    read_wall: float
    day: Period = field(default_factory=Period)
    month: Period = field(default_factory=Period)
    today: Spent = field(default_factory=Spent)
    this_month: Spent = field(default_factory=Spent)
    counted: str = ""
    reserved: Reservation | None = None


def total(statements: Iterable[Statement], day: Period, month: Period, wall: float) -> tuple[Spent, Spent]:
    """What these agents have spent and reserved in the day and in the month, as of `wall`."""
    known = tuple(statements)
    return (
        _sum(_used(s, s.day, s.today, day, wall) for s in known),
        _sum(_used(s, s.month, s.this_month, month, wall) for s in known),
    )


def exceeded(today: Spent, month: Spent, shared: Limits) -> str:
    """The key of a cap that these sums pass; empty: none."""
    for name, limits, spent in (("day", shared.day, today), ("month", shared.month, month)):
        amounts = (spent.boosts, spent.agbs, spent.currency)
        for kind, most, amount in zip(("boosts", "agbs", "cost"), limits, amounts, strict=True):
            if most is not None and amount > most:
                return f"caps.max_{kind}_per_{name}"
    return ""


def _used(of: Statement, stated: Period, spent: Spent, period: Period, wall: float) -> Spent:
    base = spent if period.since_wall <= stated.since_wall < period.until_wall + DAY_S else Spent()
    reserved = of.reserved
    if reserved is None:
        return base
    # Of a purchase that is not answered nothing is in the ledger yet.
    begin = period.clip(of.read_wall if reserved.is_bought else reserved.opened_wall)
    opened = period.clip(reserved.opened_wall)
    end = period.clip(max(reserved.until_wall, wall) if reserved.is_bought else reserved.until_wall)
    agbs = Bill(reserved.opened_wall, reserved.agbs_per_s)
    cost = reserved.cost
    is_new = reserved.token != of.counted and period.has(reserved.opened_wall)
    return Spent(
        base.boosts + is_new,
        # The ledger may lack the volume: its whole bill is the least that was spent.
        max(base.agbs + agbs.between(begin, end), agbs.between(opened, end)),
        max(base.currency + cost.between(begin, end), cost.between(opened, end)),
    )


def _sum(parts: Iterable[Spent]) -> Spent:
    known = tuple(parts)
    return Spent(sum(p.boosts for p in known), sum(p.agbs for p in known), sum(p.currency for p in known))
