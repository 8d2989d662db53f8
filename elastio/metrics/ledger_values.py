"""The values of the ledger, which is read whether an agent runs or not. Pure.

A counter that goes down looks to Prometheus like one that began again at 0, and what it had counted would be counted
twice. A running bill ends at the deletion of its volume, which is recorded some moments later; until then it seems to
run on. So the counters of cost and AGBs count only what was owed LAG_S ago: by then the end of a bill is known.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from elastio.accounting.ahead_lines import ahead_lines
from elastio.accounting.burst_accounts import MOST_SUMS, OTHERS, Parts
from elastio.accounting.group_costs import Moves, boost_costs
from elastio.accounting.history import PAST_S, CycleLoad
from elastio.accounting.rows import CycleRow, spend_since
from elastio.core.cycle import FailureKind, Trigger
from elastio.metrics.catalogue import Value
from elastio.strategy.account import COMPUTING, PARTS
from elastio.strategy.spending import NO_OTHERS, Caps, Others, Period, Spend, Spent

LAG_S = 60.0
# Kinds of failed cycles that are no failed boosts: what was bought, or would have been, was not wanted or not allowed.
NO_FAILURES = (FailureKind.WITHDRAWN, FailureKind.CAPPED)


@dataclass(frozen=True, slots=True)
class Bills:
    """What the ledger has at `wall`: all cycles, their loads, what cgroups moved in them, and the learned size.

    `day` and `month` are those of `wall`. `caps` None: they are not known, because the configuration cannot be read.
    `others`: what other devices have spent and reserved under shared caps. `waits`: the seconds of each part of the
    account, by cgroup, in the order in which they were first seen.
    """

    wall: float
    day: Period
    month: Period
    rows: Sequence[CycleRow]
    loads: dict[str, CycleLoad]
    learned_size_bytes: int | None = None
    caps: Caps | None = None
    others: Others = NO_OTHERS
    waits: Mapping[str, Parts] = field(default_factory=dict)
    moved: Mapping[str, Moves] = field(default_factory=dict)


def ledger_values(bills: Bills) -> Iterator[Value]:
    """Every metric of the ledger."""
    boosts = [row for row in bills.rows if row.trigger != Trigger.ORPHAN]
    yield Value("elastio_bills_open", sum(row.is_open for row in bills.rows))
    if boosts:
        yield Value("elastio_last_boost_timestamp_seconds", max(row.started_wall for row in boosts))
    if bills.learned_size_bytes is not None:
        yield Value("elastio_learned_size_bytes", bills.learned_size_bytes)
    yield from _counters(boosts)
    yield from _owed(bills)
    yield from _periods(bills)
    yield from _ahead(bills)
    yield from _waits(bills.waits)
    yield from _groups(bills)


def _counters(boosts: Collection[CycleRow]) -> Iterator[Value]:
    """Boosts by trigger and kind of failure, zeros too: Prometheus does not count the first increase of a new series.

    Those that lost the race for a shared cap are counted by the agent, with all that a cap forbade.
    """
    boosts = [row for row in boosts if row.failure_kind != FailureKind.CAPPED]
    begun = Counter(row.trigger for row in boosts)
    failed = Counter(row.failure_kind for row in boosts if row.failure)
    for trigger in Trigger:
        if trigger is not Trigger.ORPHAN:
            yield Value("elastio_boosts_total", begun[trigger], (trigger,))
    for kind in FailureKind:
        if kind not in NO_FAILURES:
            yield Value("elastio_boosts_failed_total", failed[kind], (kind,))
    yield Value("elastio_boosts_withdrawn_total", failed[FailureKind.WITHDRAWN])


def _owed(bills: Bills) -> Iterator[Value]:
    since, until = float("-inf"), bills.wall - LAG_S
    for currency, rows in sorted(_by_currency(bills.rows).items()):
        yield Value("elastio_cost_total", sum(row.cost(since, until) or 0.0 for row in rows), (currency,))
    yield Value("elastio_agbs_total", sum(row.agbs(since, until) for row in bills.rows))


def _periods(bills: Bills) -> Iterator[Value]:
    first = min(bills.day.since_wall, bills.month.since_wall)
    recent = [row for row in bills.rows if row.span(bills.wall)[1] >= first or row.started_wall >= first]
    for name, period in (("day", bills.day), ("month", bills.month)):
        spent = spend_since(period.since_wall, bills.wall, recent)
        yield Value("elastio_period_boosts", spent.boosts, (name,))
        yield Value("elastio_period_agbs", spent.agbs, (name,))
        yield Value("elastio_period_unpriced_boosts", spent.unpriced, (name,))
        for currency in sorted(_by_currency(bills.rows)):
            own = [row for row in recent if row.currency == currency]
            cost = spend_since(period.since_wall, bills.wall, own).currency
            yield Value("elastio_period_cost", cost, (name, currency))
        beside = bills.others.today if name == "day" else bills.others.month
        yield from _caps(name, spent, beside, bills.caps)


def _caps(name: str, spent: Spend, beside: Spent, caps: Caps | None) -> Iterator[Value]:
    """Each cap that is set. Its share is 1 where it allows nothing."""
    if caps is None:
        return
    limits = caps.day if name == "day" else caps.month
    used = (spent.boosts + beside.boosts, spent.agbs + beside.agbs, spent.currency + beside.currency)
    for what, most, amount in zip(("boosts", "agbs", "cost"), limits, used, strict=True):
        if most is not None:
            key = f"max_{what}_per_{name}"
            yield Value("elastio_cap", most, (key,))
            yield Value("elastio_cap_used_ratio", amount / most if most else 1.0, (key,))


def _ahead(bills: Bills) -> Iterator[Value]:
    for line in ahead_lines(bills.rows, bills.loads, bills.wall - PAST_S, bills.wall):
        yield Value("elastio_ahead_purchases", line.right, (line.kind, "right"))
        yield Value("elastio_ahead_purchases", line.wrong, (line.kind, "wrong"))
        if line.hit_rate is not None:
            yield Value("elastio_ahead_hit_ratio", line.hit_rate, (line.kind,))


def _waits(waits: Mapping[str, Parts]) -> Iterator[Value]:
    for cgroup, parts in waits.items():
        yield Value("elastio_computing_seconds_total", parts.get(COMPUTING, 0.0), (cgroup,))
        for part in PARTS:
            if part != COMPUTING:
                yield Value("elastio_wait_seconds_total", parts.get(part, 0.0), (cgroup, part))


def _groups(bills: Bills) -> Iterator[Value]:
    """Of the cgroups that were seen first, and of the OTHERS: in boosts whose bills have been closed for LAG_S."""
    ended = [
        (row.closed_wall, row) for row in bills.rows if row.closed_wall is not None and row.opened_wall is not None
    ]
    names: dict[str, None] = {}
    found: defaultdict[tuple[str, ...], float] = defaultdict(float)
    for closed_wall, row in sorted(ended, key=lambda each: (each[0], each[1].token)):
        if closed_wall > bills.wall - LAG_S:
            continue
        amounts = row.agbs(float("-inf"), closed_wall), row.cost(float("-inf"), closed_wall)
        for each in boost_costs(bills.moved.get(row.token, {}), bills.loads.get(row.token), *amounts):
            if len(names) < MOST_SUMS and each.cgroup != OTHERS:
                names[each.cgroup] = None
            name = each.cgroup if each.cgroup in names else OTHERS
            found["agbs", name] += each.agbs
            found["bytes", name, "read"] += each.moved.read_bytes
            found["bytes", name, "write"] += each.moved.written_bytes
            if each.cost is not None:
                found["cost", name, row.currency] += each.cost
    for (what, *labels), amount in found.items():
        yield Value(f"elastio_cgroup_{what}_total", amount, tuple(labels))


def _by_currency(rows: Collection[CycleRow]) -> dict[str, list[CycleRow]]:
    """Rows with a price, by its currency."""
    found: dict[str, list[CycleRow]] = {}
    for row in rows:
        if row.price_per_hour is not None:
            found.setdefault(row.currency, []).append(row)
    return found
