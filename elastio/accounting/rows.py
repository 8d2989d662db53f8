"""The rows of the ledger: one for each cycle, and one for each span in which a device was seen. Pure.

Times are seconds since the epoch, sizes bytes, bandwidths MB/s.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace

from elastio.billing import Billing
from elastio.core.cycle import Cycle, Trigger
from elastio.strategy.spending import Spend, Spent
from elastio.units import agbs


@dataclass(frozen=True, slots=True)
class StepDurations:
    """How long each step of a cycle took; None: it did not happen, or the agent did not see it.

    The first seven follow each other. Three of them are steps of the cloud: create, attach volume, appear. `own_s` is
    the sum of the other four: the time of the agent and the kernel.
    """

    decide_s: float | None = None  # from the end of the sample that crossed the threshold to the decision
    create_s: float | None = None  # to the purchase accepted
    attach_volume_s: float | None = None  # to the attachment accepted, after the volume became available
    appear_s: float | None = None  # to the disk in the kernel
    format_s: float | None = None
    register_s: float | None = None
    attach_set_s: float | None = None  # to writeback mode
    boost_s: float | None = None  # all of them; from the decision if no sample crossed the threshold
    own_s: float | None = None
    flush_s: float | None = None  # phase 2, the last one
    attached_s: float | None = None  # cache set attached to the backing device


@dataclass(frozen=True, slots=True)
class CycleRow:
    """One cycle. The bill runs from `opened_wall` (None: nothing was bought) to `closed_wall` (None: open).

    `failure_kind` is a `FailureKind`, "unknown" where an earlier release recorded the failure; empty: none.
    """

    token: str
    device_uuid: str
    trigger: str
    volume_id: str | None
    wanted_size_bytes: int
    provisioned_size_bytes: int
    bandwidth_mb_s: float
    started_wall: float
    opened_wall: float | None = None
    closed_wall: float | None = None
    currency: str = ""
    price_per_hour: float | None = None
    minimum_s: float = 0.0
    steps: StepDurations = field(default_factory=StepDurations)
    peak_dirty_bytes: int = 0
    peak_in_use_percent: int = 0
    written_through_bytes: int = 0
    failure: str = ""
    failure_kind: str = ""
    step_s: float = 0.0

    @property
    def is_open(self) -> bool:
        """True if something was bought and the bill is still open."""
        return self.opened_wall is not None and self.closed_wall is None

    @property
    def is_refused(self) -> bool:
        """True if it failed before anything was bought."""
        return self.opened_wall is None and bool(self.failure)

    @property
    def billing(self) -> Billing:
        return Billing(self.minimum_s, self.step_s)

    def billed_s(self, since: float, until: float) -> float:
        """Seconds of the period during which the volume was billed."""
        if self.opened_wall is None:
            return 0.0
        closed = until if self.closed_wall is None else self.closed_wall
        return max(0.0, min(closed, until) - max(self.opened_wall, since))

    def agbs(self, since: float, until: float) -> float:
        """AGBs of the volume in the period."""
        return agbs(self.bandwidth_mb_s, self.provisioned_size_bytes, self.billed_s(since, until))

    def cost(self, since: float, until: float) -> float | None:
        """Cost of the period in the currency of the price; None: no price is known.

        What is billed in steps is owed at the begin of each, the minimum at the purchase. It falls into the period of
        that moment, so that the costs of adjoining periods add up.
        """
        if self.price_per_hour is None:
            return None
        return (self._owed_s(until) - self._owed_s(since)) * self.price_per_hour / 3600

    def _owed_s(self, wall: float) -> float:
        if self.opened_wall is None or wall <= self.opened_wall:
            return 0.0
        return self.billing.billed_s(self.billed_s(self.opened_wall, wall))

    def span(self, until: float) -> tuple[float, float]:
        """The boost, from the decision to the end of the bill; empty if nothing was bought."""
        if self.opened_wall is None:
            return self.started_wall, self.started_wall
        # The clocks of the cloud and of this machine differ: either time may be the earlier one.
        begin = min(self.started_wall, self.opened_wall)
        return begin, max(begin, until if self.closed_wall is None else self.closed_wall)


@dataclass(frozen=True, slots=True)
class DevicePrices:
    """What the backing volume costs an hour, and what one of its size with the cache's bandwidth would cost.

    None: the price is not known. `currency` is that of both; empty if neither is known.
    """

    currency: str = ""
    backing_per_hour: float | None = None
    fast_per_hour: float | None = None


@dataclass(frozen=True, slots=True)
class DeviceSpan:
    """A span of time in which the agent saw one adaptive device unchanged, at unchanged prices."""

    device_uuid: str
    size_bytes: int
    backing_mb_s: float
    cache_mb_s: float
    first_wall: float
    last_wall: float
    prices: DevicePrices = DevicePrices()

    @property
    def seconds(self) -> float:
        return self.last_wall - self.first_wall


def row_of(cycle: Cycle) -> CycleRow:
    """The row of a cycle that is in no ledger: without device and steps."""
    quote = cycle.quote
    return CycleRow(
        token=cycle.token,
        device_uuid="",
        trigger=cycle.trigger,
        volume_id=cycle.volume_id,
        wanted_size_bytes=cycle.spec.size_bytes,
        provisioned_size_bytes=cycle.provisioned.size_bytes,
        bandwidth_mb_s=cycle.provisioned.bandwidth_mb_s,
        started_wall=cycle.started_wall,
        opened_wall=cycle.opened_wall,
        closed_wall=cycle.closed_wall,
        currency=quote.currency if quote else "",
        price_per_hour=quote.price_per_hour if quote and quote.price_known else None,
        minimum_s=quote.minimum_s if quote else 0.0,
        failure=str(cycle.failure or ""),
        failure_kind=cycle.failure.kind.value if cycle.failure else "",
        step_s=quote.step_s if quote else 0.0,
    )


def with_newer(rows: Collection[CycleRow], newer: Collection[CycleRow]) -> tuple[CycleRow, ...]:
    """The rows with what is newer than they are: each `newer` one replaces that of its token, or is added.

    As in the ledger, a price and the trigger stay where the newer row has none, or was made from a volume's tags.
    """
    known = {row.token: row for row in rows}
    for row in newer:
        old = known.get(row.token)
        if old is not None and row.price_per_hour is None:
            row = replace(  # noqa: PLW2901
                row,
                currency=old.currency,
                price_per_hour=old.price_per_hour,
                minimum_s=old.minimum_s,
                step_s=old.step_s,
            )
        known[row.token] = row if old is None else replace(row, trigger=old.trigger)
    return tuple(known.values())


def spend_since(since: float, now_wall: float, rows: Collection[CycleRow]) -> Spend:
    """What was spent from `since` (local midnight) to `now_wall`; open bills run to `now_wall`.

    A boost counts once it begins, unless it was rejected before anything was bought. The minimum billing time is owed
    at once. A cycle without a price adds nothing to `currency`. A bill that ends after `now_wall` counts in full: the
    clock has been set back since.
    """
    ends = [(c, max(now_wall, c.closed_wall or c.opened_wall or now_wall)) for c in rows]
    billed = [(c, until) for c, until in ends if c.billed_s(since, until) > 0]
    return Spend(
        boosts=_begun(since, float("inf"), rows),
        agbs=sum(c.agbs(since, until) for c, until in ends),
        currency=sum(c.cost(since, until) or 0.0 for c, until in ends),
        currency_name=" and ".join(sorted({c.currency for c, until in ends if c.cost(since, until)} - {""})),
        unpriced=sum(1 for c, _ in billed if c.price_per_hour is None),
    )


def spent_between(since: float, until: float, rows: Collection[CycleRow]) -> Spent:
    """What was spent in a period that has ended. Adjoining periods add up."""
    return Spent(
        boosts=_begun(since, until, rows),
        agbs=sum(c.agbs(since, until) for c in rows),
        currency=sum(c.cost(since, until) or 0.0 for c in rows),
    )


def _begun(since: float, until: float, rows: Collection[CycleRow]) -> int:
    """How many boosts began in the period."""
    return sum(1 for c in rows if since <= c.started_wall < until and c.trigger != Trigger.ORPHAN and not c.is_refused)


@dataclass(slots=True)
class MonthToDate:
    """What was spent in a month: the days before today, which are added up once, and today.

    `earlier` returns what was spent between two times. A cycle that began before today may still change those days.
    """

    earlier: Callable[[float, float], Spent]
    _days: tuple[float, float] | None = None
    _spent: Spent = field(default_factory=Spent)

    def with_month(self, spend: Spend, first: float, today: float) -> Spend:
        """`spend`, which is today's, with that of the month since `first`."""
        if self._days != (first, today):
            self._days, self._spent = (first, today), self.earlier(first, today) if first < today else Spent()
        before = self._spent
        month = Spent(before.boosts + spend.boosts, before.agbs + spend.agbs, before.currency + spend.currency)
        return replace(spend, month=month)

    def recorded(self, cycle: Cycle) -> None:
        """A cycle was written."""
        if self._days is not None and cycle.started_wall < self._days[1]:
            self._days = None
