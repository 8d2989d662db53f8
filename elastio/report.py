"""What the adaptive device cost, and what a static one would have cost over the same time. Pure.

`C(t) = Bb*N*t + Bc * integral of M(x) dx` in AGBs: bandwidth in MB/s, sizes in GB (10^9), M = 0 while nothing is
bought. Over the same time static-slow is `Bb*N*t` and static-fast `Bc*N*t`; a static-slow machine would also have
needed longer for the same work, which no ledger can know. Times are seconds since the epoch.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta, tzinfo
from itertools import pairwise
from operator import attrgetter

from elastio.units import agbs


@dataclass(frozen=True, slots=True)
class Steps:
    """How long each step of a cycle took; None: it did not happen, or not in the agent's sight.

    The first seven follow each other. Three of them are the cloud's: create, attach volume, appear. `own_s` is the
    others' sum: what the agent and the kernel took.
    """

    decide_s: float | None = None  # end of the sample that crossed the threshold to the decision
    create_s: float | None = None  # to the purchase accepted
    attach_volume_s: float | None = None  # to the attachment accepted: the volume had to become available before
    appear_s: float | None = None  # to the disk in the kernel
    format_s: float | None = None
    register_s: float | None = None
    attach_set_s: float | None = None  # to writeback mode
    boost_s: float | None = None  # all of them; from the decision on where no sample crossed the threshold
    own_s: float | None = None
    flush_s: float | None = None  # phase 2, the last one
    attached_s: float | None = None  # cache set in front of the backing device


@dataclass(frozen=True, slots=True)
class CycleRow:
    """One cycle. The bill runs from `opened_wall` (None: nothing was bought) to `closed_wall` (None: open)."""

    token: str
    device_uuid: str
    trigger: str
    volume_id: str | None
    wanted_size_bytes: int
    sold_size_bytes: int
    bandwidth_mb_s: float
    started_wall: float
    opened_wall: float | None = None
    closed_wall: float | None = None
    currency: str = ""
    price_per_hour: float | None = None
    minimum_s: float = 0.0
    steps: Steps = field(default_factory=Steps)
    peak_dirty_bytes: int = 0
    peak_in_use_percent: int = 0
    evicted_bytes: int = 0
    failure: str = ""

    @property
    def is_open(self) -> bool:
        """Something was bought and the bill still runs."""
        return self.opened_wall is not None and self.closed_wall is None

    @property
    def is_refused(self) -> bool:
        """It failed before anything was bought."""
        return self.opened_wall is None and bool(self.failure)

    def billed_s(self, since: float, until: float) -> float:
        """Seconds within the period during which the volume was paid for."""
        if self.opened_wall is None:
            return 0.0
        closed = until if self.closed_wall is None else self.closed_wall
        return max(0.0, min(closed, until) - max(self.opened_wall, since))

    def agbs(self, since: float, until: float) -> float:
        """AGBs of the volume within the period."""
        return agbs(self.bandwidth_mb_s, self.sold_size_bytes, self.billed_s(since, until))

    def cost(self, since: float, until: float) -> float | None:
        """Currency owed within the period; None: no price is known.

        The shortest time billed is owed from the moment of purchase, so it falls into the period of the purchase
        and costs of adjoining periods add up.
        """
        if self.price_per_hour is None:
            return None
        return (self._owed_s(until) - self._owed_s(since)) * self.price_per_hour / 3600

    def _owed_s(self, wall: float) -> float:
        if self.opened_wall is None or wall <= self.opened_wall:
            return 0.0
        return max(self.billed_s(self.opened_wall, wall), self.minimum_s)

    def span(self, until: float) -> tuple[float, float]:
        """The I/O phase, from the decision to the end of the bill; empty if nothing was bought."""
        if self.opened_wall is None:
            return self.started_wall, self.started_wall
        # The two differ by the skew between the cloud's clock and ours: neither need be the earlier.
        begin = min(self.started_wall, self.opened_wall)
        return begin, max(begin, until if self.closed_wall is None else self.closed_wall)


@dataclass(frozen=True, slots=True)
class DeviceSpan:
    """A stretch of time over which the agent saw one adaptive device unchanged."""

    device_uuid: str
    size_bytes: int
    backing_mb_s: float
    cache_mb_s: float
    first_wall: float
    last_wall: float

    @property
    def seconds(self) -> float:
        return self.last_wall - self.first_wall


Rows = Sequence[CycleRow]
Spans = Sequence[DeviceSpan]
_first = attrgetter("first_wall")


@dataclass(frozen=True, slots=True)
class Cost:
    """`cost` sums the priced volumes; None: none is priced, or currencies differ. A ratio to nothing is None."""

    seconds: float
    backing_agbs: float
    cache_agbs: float
    static_fast_agbs: float
    currency: str
    cost: float | None
    unpriced_phases: int

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
class PhaseLine:
    """One I/O phase; `cost` and `billed_s` as far as it lies in the period."""

    row: CycleRow
    billed_s: float
    cost: Cost


@dataclass(frozen=True, slots=True)
class DayLine:
    """One local day; `boosts` counts the phases begun on it."""

    day: date
    boosts: int
    cost: Cost


@dataclass(frozen=True, slots=True)
class Report:
    """`unobserved_s`: time between the first and the last sight of a device for which nothing is accounted."""

    since: float
    until: float
    tz: tzinfo
    phases: tuple[PhaseLine, ...]
    days: tuple[DayLine, ...]
    vm: Cost
    unobserved_s: float


def build(cycles: Rows, spans: Spans, since: float, until: float, tz: tzinfo) -> Report:
    """The report of one VM from `since` to `until`; what lies outside is cut off, `until` ends an open bill.

    Accounted is the time during which the agent saw the device, and the time during which a cache volume was paid
    for even if it did not: then the agent was down and the bill ran on. Other gaps are left out of both sides of
    every comparison and told as `unobserved_s`.
    """
    devices = {s.device_uuid for s in spans}
    if len(devices) == 1:  # leaves no doubt, and a refused cycle has no volume whose tag would tell
        cycles = [replace(c, device_uuid=spans[0].device_uuid) for c in cycles]
    cycles = sorted(cycles, key=lambda c: (c.started_wall, c.token))
    seen = coverage(cycles, spans, since, until)
    of_device = {uuid: [s for s in seen if s.device_uuid == uuid] for uuid in devices}
    phases = []
    for row in cycles:
        own = _cut(_touching(of_device.get(row.device_uuid, []), *row.span(until)), *row.span(until))
        phases.append(PhaseLine(row, row.billed_s(since, until), account([row], own, since, until)))
    days = _day_lines(cycles, seen, since, until, tz)
    gaps = sum(b.first_wall - a.last_wall for a, b in pairwise(seen) if a.device_uuid == b.device_uuid)
    return Report(since, until, tz, tuple(phases), days, account(cycles, seen, since, until), gaps)


def account(cycles: Iterable[CycleRow], seen: Iterable[DeviceSpan], since: float, until: float) -> Cost:
    """The cost of a period. `seen` must not count any time of one device twice (`coverage` sees to that)."""
    seconds = backing = fast = 0.0
    for span in _cut(seen, since, until):
        seconds += span.seconds
        backing += agbs(span.backing_mb_s, span.size_bytes, span.seconds)
        fast += agbs(span.cache_mb_s, span.size_bytes, span.seconds)
    bought = [c for c in cycles if c.billed_s(since, until) > 0 or c.cost(since, until)]
    priced = [(c.currency, owed) for c in bought if (owed := c.cost(since, until)) is not None]
    currencies = sorted({currency for currency, _ in priced})
    cache = sum(c.agbs(since, until) for c in bought)
    owed_in_all = sum(owed for _, owed in priced) if len(currencies) == 1 else None
    return Cost(seconds, backing, cache, fast, " and ".join(currencies), owed_in_all, len(bought) - len(priced))


def local_day(wall: float, tz: tzinfo) -> date:
    """The day that `wall` falls on. Where clocks go back at midnight, the first midnight begins the day."""
    day = datetime.fromtimestamp(wall, tz).date()
    return day if wall < _bounds(day, tz)[1] else day + timedelta(days=1)


def day_start(wall: float, tz: tzinfo) -> float:
    """The local midnight at or before `wall`: where daily caps begin anew."""
    return _bounds(local_day(wall, tz), tz)[0]


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

    Spans can overlap where the clock was set back; phases fill gaps with the figures of the span before.
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
