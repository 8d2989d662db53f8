"""What the adaptive device cost, and what a static one would have cost over the same time. Pure.

`C(t) = Bb*N*t + Bc * integral of M(x) dx` in AGBs: bandwidth in MB/s, sizes in GB (10^9), M = 0 while nothing is
bought. Over the same time static-slow is `Bb*N*t` and static-fast `Bc*N*t`; a static-slow machine would also have
needed longer for the same work, which a ledger cannot know. Times are seconds since the epoch.

In currency the same four are `baseline = pb*t`, the backing volume at its price pb; `static_fast = pf*t`, a volume of
its size with the cache's bandwidth; `paid = baseline + caches`; and `saved = static_fast - paid`. The prices are those
that the ledger has for each moment. An amount for which one is missing is not known, and is not estimated.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta, tzinfo
from itertools import pairwise
from operator import attrgetter

from elastio.accounting.ahead_lines import AheadLine, ahead_lines
from elastio.accounting.burst_accounts import NO_BURSTS, BurstAccounts
from elastio.accounting.group_costs import GroupCost, Moves, boost_costs, total_costs
from elastio.accounting.history import CycleLoad
from elastio.accounting.rows import CycleRow, DeviceSpan
from elastio.strategy.spending import Period
from elastio.units import agbs

Rows = Sequence[CycleRow]
Spans = Sequence[DeviceSpan]
_first = attrgetter("first_wall")


@dataclass(frozen=True, slots=True)
class Cost:
    """`cost` is the sum of priced volumes; None: none has a price, or currencies differ. A ratio to 0 is None.

    `baseline`, `static_fast` and `paid` are in `currency`; None: a price is missing, or currencies differ.
    """

    seconds: float
    backing_agbs: float
    cache_agbs: float
    static_fast_agbs: float
    currency: str
    cost: float | None
    unpriced_boosts: int
    baseline: float | None = None
    static_fast: float | None = None
    paid: float | None = None

    @property
    def saved(self) -> float | None:
        """How much less was paid than a volume that is always fast costs; negative: more."""
        return None if self.static_fast is None or self.paid is None else self.static_fast - self.paid

    @property
    def total_agbs(self) -> float:
        return self.backing_agbs + self.cache_agbs

    @property
    def static_slow_agbs(self) -> float:
        return self.backing_agbs  # over the same time it is the backing device alone

    @property
    def of_static_slow_percent(self) -> float | None:
        return 100 * self.total_agbs / self.static_slow_agbs if self.static_slow_agbs else None

    @property
    def of_static_fast_percent(self) -> float | None:
        return 100 * self.total_agbs / self.static_fast_agbs if self.static_fast_agbs else None


@dataclass(frozen=True, slots=True)
class BoostLine:
    """One boost; `cost` and `billed_s` of the part that lies in the period, which `groups` divides among cgroups."""

    row: CycleRow
    billed_s: float
    cost: Cost
    groups: tuple[GroupCost, ...] = ()


@dataclass(frozen=True, slots=True)
class DayLine:
    """One local day; `boosts` is the number of boosts that began on it."""

    day: date
    boosts: int
    cost: Cost


@dataclass(frozen=True, slots=True)
class Report:
    """`unobserved_s`: time between the first and last observation of a device that is not accounted.

    `priced_since`: from when on the prices of the backing volume and of a fast one are known; None: they are not known.
    """

    since: float
    until: float
    tz: tzinfo
    boosts: tuple[BoostLine, ...]
    days: tuple[DayLine, ...]
    vm: Cost
    unobserved_s: float
    priced_since: float | None = None
    ahead: tuple[AheadLine, ...] = ()
    waits: BurstAccounts = NO_BURSTS
    groups: tuple[GroupCost, ...] = ()


def build(
    cycles: Rows,
    spans: Spans,
    since: float,
    until: float,
    tz: tzinfo,
    loads: Mapping[str, CycleLoad] | None = None,
    moved: Mapping[str, Moves] | None = None,
) -> Report:
    """The report of one VM from `since` to `until`; an open bill ends at `until`. `loads` are those of the cycles.

    `moved`: what cgroups moved in each.

    Accounted is the time during which the agent saw the device, and the time during which a cache volume was billed
    while the agent was down. Other gaps are excluded from both sides of every comparison; `unobserved_s` is their sum.
    """
    devices = {s.device_uuid for s in spans}
    if len(devices) == 1:  # a rejected cycle has no volume whose tag names the device
        cycles = [replace(c, device_uuid=spans[0].device_uuid) for c in cycles]
    cycles = sorted(cycles, key=lambda c: (c.started_wall, c.token))
    seen = coverage(cycles, spans, since, until)
    of_device = {uuid: [s for s in seen if s.device_uuid == uuid] for uuid in devices}
    boosts = []
    for row in cycles:
        own = _cut(_touching(of_device.get(row.device_uuid, []), *row.span(until)), *row.span(until))
        cost = account([row], own, since, until)
        groups = boost_costs((moved or {}).get(row.token, {}), (loads or {}).get(row.token), cost.cache_agbs, cost.cost)
        boosts.append(BoostLine(row, row.billed_s(since, until), cost, () if row.opened_wall is None else groups))
    days = _day_lines(cycles, seen, since, until, tz)
    gaps = sum(b.first_wall - a.last_wall for a, b in pairwise(seen) if a.device_uuid == b.device_uuid)
    vm = account(cycles, seen, since, until)
    ahead = ahead_lines(cycles, loads or {}, since, until)
    by_group = _in_one_currency(total_costs(boost.groups for boost in boosts), vm)
    return Report(since, until, tz, tuple(boosts), days, vm, gaps, _priced_since(seen), ahead, groups=by_group)


def _in_one_currency(groups: tuple[GroupCost, ...], vm: Cost) -> tuple[GroupCost, ...]:
    return groups if vm.cost is not None else tuple(replace(each, cost=None) for each in groups)


def _priced_since(seen: Spans) -> float | None:
    unpriced = (s.last_wall for s in seen if None in (s.prices.backing_per_hour, s.prices.fast_per_hour))
    begin = max(unpriced, default=float("-inf"))
    return min((s.first_wall for s in seen if s.last_wall > begin), default=None)


def account(cycles: Iterable[CycleRow], seen: Iterable[DeviceSpan], since: float, until: float) -> Cost:
    """The cost of a period. `seen` must not count any time of one device twice (`coverage` sees to that)."""
    spans = _cut(seen, since, until)
    seconds = sum(s.seconds for s in spans)
    backing = sum(agbs(s.backing_mb_s, s.size_bytes, s.seconds) for s in spans)
    fast = sum(agbs(s.cache_mb_s, s.size_bytes, s.seconds) for s in spans)
    bought = [c for c in cycles if c.billed_s(since, until) > 0 or c.cost(since, until)]
    priced = [(c.currency, owed) for c in bought if (owed := c.cost(since, until)) is not None]
    currencies = sorted({currency for currency, _ in priced} | {s.prices.currency for s in spans} - {""})
    cache = sum(c.agbs(since, until) for c in bought)
    owed_in_all = sum(owed for _, owed in priced) if priced and len(currencies) == 1 else None
    unpriced = len(bought) - len(priced)
    cost = Cost(seconds, backing, cache, fast, " and ".join(currencies), owed_in_all, unpriced)
    if len(currencies) != 1:
        return cost
    baseline, static_fast = _owed(spans, "backing_per_hour"), _owed(spans, "fast_per_hour")
    paid = None if baseline is None or unpriced else baseline + (owed_in_all or 0.0)
    return replace(cost, baseline=baseline, static_fast=static_fast, paid=paid)


def _owed(spans: Sequence[DeviceSpan], price: str) -> float | None:
    """What a permanent volume costs over the spans, by this price of each; None: one is not known."""
    hours = [(getattr(s.prices, price), s.seconds / 3600) for s in spans if s.seconds > 0]
    if not hours or any(per_hour is None for per_hour, _ in hours):
        return None
    return float(sum(per_hour * each for per_hour, each in hours))


def local_day(wall: float, tz: tzinfo) -> date:
    """The day that `wall` falls on. Where clocks go back at midnight, the first midnight begins the day."""
    day = datetime.fromtimestamp(wall, tz).date()
    return day if wall < _bounds(day, tz)[1] else day + timedelta(days=1)


def day_start(wall: float, tz: tzinfo) -> float:
    """The local midnight at or before `wall`, when daily caps are reset."""
    return _bounds(local_day(wall, tz), tz)[0]


def month_start(wall: float, tz: tzinfo) -> float:
    """The local midnight that began the month, when monthly caps are reset."""
    return _bounds(local_day(wall, tz).replace(day=1), tz)[0]


def periods(wall: float, tz: tzinfo) -> tuple[Period, Period]:
    """The local day and the local month of `wall`."""
    first = local_day(wall, tz).replace(day=1)
    after = (first + timedelta(days=31)).replace(day=1)
    return Period(*_bounds(local_day(wall, tz), tz)), Period(_bounds(first, tz)[0], _bounds(after, tz)[0])


def split_days(since: float, until: float, tz: tzinfo) -> dict[date, tuple[float, float]]:
    """The period cut at every local midnight, without gaps; days may have 23 or 25 hours."""
    pieces = {}
    day, begin = local_day(since, tz), since
    while begin < until:
        end = min(until, _bounds(day, tz)[1])
        if end > begin:  # a day that a time zone skipped has no length
            pieces[day] = (begin, end)
        day, begin = day + timedelta(days=1), end
    return pieces


def coverage(cycles: Rows, spans: Spans, since: float, until: float) -> tuple[DeviceSpan, ...]:
    """The accounted time of every device, cut to the period, ordered, no second of a device twice.

    Spans can overlap where the clock was set back. Boosts fill gaps with the figures of the span before.
    """
    pieces: list[DeviceSpan] = []
    for uuid in sorted({s.device_uuid for s in spans}):
        known = sorted((s for s in spans if s.device_uuid == uuid), key=_first)
        own: list[DeviceSpan] = []
        for span in known:
            _fill(own, span, span.first_wall, span.last_wall)
        for row in (c for c in cycles if c.opened_wall is not None and c.device_uuid == uuid):
            begin, end = row.span(until)
            _fill(own, known[max(0, bisect_right(known, begin, key=_first) - 1)], begin, end)
        pieces += own
    return tuple(_cut(pieces, since, until))


def _fill(own: list[DeviceSpan], like: DeviceSpan, begin: float, end: float) -> None:
    """Adds spans with the figures of `like` for those parts of the period that no span has taken yet."""
    for other in (*_touching(own, begin, end), replace(like, first_wall=end, last_wall=end)):
        if other.first_wall > begin:
            insort(own, replace(like, first_wall=begin, last_wall=other.first_wall), key=_first)
        begin = other.last_wall


def _touching(own: Spans, begin: float, end: float) -> Spans:
    """Of one device's spans, ordered and without overlap, those that lie in the period in part."""
    return own[bisect_right(own, begin, key=lambda s: s.last_wall) : bisect_left(own, end, key=_first)]


def _cut(spans: Iterable[DeviceSpan], since: float, until: float) -> list[DeviceSpan]:
    """The parts of the spans that lie in the period."""
    near = (s for s in spans if s.first_wall < until and s.last_wall > since)
    return [replace(s, first_wall=max(s.first_wall, since), last_wall=min(s.last_wall, until)) for s in near]


def _day_lines(cycles: Rows, seen: Spans, since: float, until: float, tz: tzinfo) -> tuple[DayLine, ...]:
    by_day: dict[date, tuple[list[CycleRow], list[DeviceSpan]]] = defaultdict(lambda: ([], []))
    for row in cycles:
        begin, end = _clip(row.span(until), since, until)
        for day in {local_day(begin, tz), *split_days(begin, end, tz)}:
            by_day[day][0].append(row)
    for span in seen:
        for day in split_days(span.first_wall, span.last_wall, tz):
            by_day[day][1].append(span)
    lines = []
    for day, (rows, spans) in sorted(by_day.items()):
        begin, end = _clip(_bounds(day, tz), since, until)
        boosts = sum(1 for c in rows if begin <= c.started_wall < end and not c.is_refused)
        lines.append(DayLine(day, boosts, account(rows, spans, begin, end)))
    return tuple(lines)


def _clip(period: tuple[float, float], since: float, until: float) -> tuple[float, float]:
    begin = min(max(period[0], since), until)
    return begin, min(max(period[1], begin), until)


def _bounds(day: date, tz: tzinfo) -> tuple[float, float]:
    first, last = (datetime(d.year, d.month, d.day, tzinfo=tz) for d in (day, day + timedelta(days=1)))
    return first.timestamp(), last.timestamp()
