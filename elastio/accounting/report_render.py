"""A report as text for one screen, as JSON and as CSV. Pure."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import datetime, tzinfo
from statistics import median
from typing import Any, TypeVar

from elastio.accounting.ahead_lines import AheadLine, allowance_of
from elastio.accounting.burst_accounts import GroupAccount, parts_of, wait_table
from elastio.accounting.group_costs import GroupCost, cost_table
from elastio.accounting.report import BoostLine, Cost, Report
from elastio.accounting.rows import StepDurations
from elastio.accounting.tables import Table, begun, iso, note
from elastio.strategy.learned import FREE_CACHES, FREE_S, WASTED_SHARE
from elastio.units import GIB, format_duration

# Whether a modification of the backing volume would have been cheaper than the caches of long boosts. A modified volume
# costs, for the time of a boost, what a fast volume of its size costs beyond the slow one; it needs no cache and no
# flush. The cloud allows few changes: two for each boost, so at most two boosts in a day by the rule of EBS
# (ModifyVolume: four in 24 h). Those that would save most come first. That each change is made in time is assumed.
# Shorter boosts are over before a modification is in force and worth its change.
LONG_S = 3600.0
CHANGES, WINDOW_S = 4, 86_400.0


@dataclass(frozen=True, slots=True)
class Modification:
    """So many boosts, their time, what their caches cost, and what the modified volume would have cost beyond the slow
    one, in `currency`."""

    boosts: int
    seconds: float
    caches: float
    modified: float
    currency: str


def cheaper_modification(boosts: Iterable[BoostLine]) -> Modification | None:
    """What would have been cheaper by modifications; None: nothing, or a price is not known."""
    found = sorted(((each, saved) for each in boosts if (saved := _saved(each)) > 0), key=lambda pair: -pair[1])
    times: list[float] = []
    chosen = []
    for boost, _ in found:
        opened = boost.row.opened_wall or boost.row.started_wall
        changes = sorted([*times, opened, opened + boost.billed_s])
        if all(last - first >= WINDOW_S for first, last in zip(changes, changes[CHANGES:], strict=False)):
            times = changes
            chosen.append(boost.cost)
    currencies = {cost.currency for cost in chosen}
    if len(currencies) != 1:
        return None
    caches = sum(cost.cost or 0.0 for cost in chosen)
    modified = sum((cost.static_fast or 0.0) - (cost.baseline or 0.0) for cost in chosen)
    return Modification(len(chosen), sum(cost.seconds for cost in chosen), caches, modified, currencies.pop())


def _saved(boost: BoostLine) -> float:
    """What the modification would have saved in this boost; 0: nothing, or a price is not known."""
    cost = boost.cost
    if boost.billed_s < LONG_S or cost.cost is None or cost.static_fast is None or cost.baseline is None:
        return 0.0
    return cost.cost - (cost.static_fast - cost.baseline)


SHOWN_BOOSTS, SHOWN_BREAKDOWNS, SHOWN_DAYS, SHOWN_CGROUPS = 12, 5, 7, 5
NO_COSTS = "No costs yet: the agent has not seen a device in this period."
L = TypeVar("L")
_STEPS = tuple(f.name for f in fields(StepDurations))
_BOOST_STEPS = _STEPS[: _STEPS.index("own_s") + 1]
_STEP_HEADS = (
    *("boost begun (s)", "decide", "create", "attach volume", "appear", "format", "register", "attach set"),
    *("total", "local"),
)
_COST_HEADS = ("backing AGBs", "cache AGBs", "total AGBs", "cost", "% slow", "% fast")
_COST_KEYS = (
    *("backing_agbs", "cache_agbs", "total_agbs", "static_slow_agbs", "static_fast_agbs"),
    *("of_static_slow_percent", "of_static_fast_percent", "cost", "currency"),
    *("baseline", "static_fast", "paid", "saved"),
)
_AHEAD_HEADS = ("ahead", "bought", "right", "wrong", "hits", "early", "in vain", "wasted AGBs", "cost", "% wasted")
_AHEAD_KEYS = (
    *("bought", "right", "wrong", "hit_rate", "early_s", "early_agbs", "early_cost", "wrong_s", "wrong_agbs"),
    *("wrong_cost", "wrong_share", "early_share", "wasted_share", "wasted_s", "wasted_agbs", "wasted_cost", "currency"),
)


def to_dict(report: Report) -> dict[str, Any]:
    """The report as JSON values. Times are ISO 8601. Keys are stable: `phases` (the boosts), `days`, `vm`, `ahead`,
    `ahead_allowance`, `waits`, `cgroups`, `modification`.
    """
    found, allowed = cheaper_modification(report.boosts), allowance_of(b.row for b in report.boosts)
    return {
        "since": iso(report.since, report.tz),
        "until": iso(report.until, report.tz),
        "unobserved_s": report.unobserved_s,
        "phases": [_boost_dict(b, report.tz) for b in report.boosts],
        "days": [{"day": d.day.isoformat(), "boosts": d.boosts, **_cost_dict(d.cost)} for d in report.days],
        "vm": _cost_dict(report.vm),
        "ahead": {line.kind: {key: getattr(line, key) for key in _AHEAD_KEYS} for line in report.ahead},
        "ahead_allowance": None if allowed is None else allowed._asdict(),
        "waits": {each.cgroup: _waits_dict(each) for each in report.waits.groups},
        "cgroups": _costs_dict(report.groups),
        "modification": None if found is None else asdict(found),
    }


def _costs_dict(groups: Sequence[GroupCost]) -> dict[str, Any]:
    """By cgroup; the sums are those of the caches."""
    return {
        each.cgroup: {"boosts": each.boosts, **asdict(each.moved), "agbs": each.agbs, "cost": each.cost}
        for each in groups
    }


def _waits_dict(group: GroupAccount) -> dict[str, Any]:
    """In seconds; `elastio profile --since` has the rest."""
    return {"bursts": group.bursts, "seconds": group.totals.seconds, **parts_of(group.totals)}


def to_csv(report: Report) -> str:
    """One table with a header: a row for each boost (`kind` is `phase`), each day, and the VM."""
    heads = ("kind", "name", "begun", "billed_s", "failure", "duration_s", *_COST_KEYS, "unpriced_phases", *_STEPS)
    out, data = io.StringIO(), to_dict(report)
    writer = csv.DictWriter(out, heads, restval="", extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows({"kind": "phase", "name": p["token"], **p, **p["steps"]} for p in data["phases"])
    writer.writerows({"kind": "day", "name": d["day"], **d} for d in data["days"])
    writer.writerow({"kind": "vm", "name": "total", **data["vm"]})
    return out.getvalue()


def to_text(report: Report) -> str:
    """Tables for one screen: the last boosts and days, and the total. `% slow`: relative to static-slow."""
    if not report.days:
        return f"{NO_COSTS}\n"
    lines = [saved(report), ""]
    for each in (
        boost_table(report, SHOWN_BOOSTS),
        step_table(report, SHOWN_BREAKDOWNS),
        day_table(report, SHOWN_DAYS),
        ahead_table(report),
        wait_table(report.waits, SHOWN_CGROUPS),
        cost_table(report.groups, report.vm.currency, SHOWN_CGROUPS),
    ):
        lines += each.lines() if each.rows else []
    return "\n".join([*lines, *notes(report)]).rstrip() + "\n"


def boost_table(report: Report, most: int) -> Table:
    """The last boosts, with their costs."""
    heads = ("boost begun", "GiB", "MB/s", "billed", *_COST_HEADS, "note")
    rows = tuple(_boost_cells(b, report.tz) for b in _last(report.boosts, most))
    return Table(heads, rows, len(report.boosts) - len(rows))


def day_table(report: Report, most: int) -> Table:
    """The last days, and the total."""
    days = _last(report.days, most)
    cells = [(d.day.isoformat(), str(d.boosts), format_duration(d.cost.seconds), *_costs(d.cost)) for d in days]
    boosts = str(sum(d.boosts for d in report.days))
    cells.append(("VM total", boosts, format_duration(report.vm.seconds), *_costs(report.vm)))
    return Table(("day", "boosts", "time", *_COST_HEADS), tuple(cells), len(report.days) - len(days))


def ahead_table(report: Report) -> Table:
    """What was bought ahead of bursts; no rows if nothing was."""
    return Table(_AHEAD_HEADS, tuple(_ahead_cells(line) for line in report.ahead if line.bought))


def notes(report: Report) -> list[str]:
    """What the tables leave out."""
    lines = []
    if report.unobserved_s >= 1:
        lines.append(f"Left out: {format_duration(report.unobserved_s)} during which no agent was running.")
    if report.vm.unpriced_boosts:
        lines.append(f"No price is known for {report.vm.unpriced_boosts} boost(s): they are missing from `cost`.")
    allowed = allowance_of(b.row for b in report.boosts)
    if allowed is not None and any(line.bought for line in report.ahead if line.kind == "learned"):
        cost = "" if allowed.cost is None else f" ({amount(allowed.cost)} {allowed.currency})"
        lines.append(
            f"Learned forecasts may waste {100 * WASTED_SHARE:.0f} % of what the caches cost, or an allowance of "
            f"{allowed.agbs:,.0f} AGBs{cost}: {FREE_CACHES} caches like the first for {format_duration(FREE_S)} each."
        )
    found = cheaper_modification(report.boosts)
    if found is not None:
        lines.append(
            f"{found.boosts} long boost(s), {format_duration(found.seconds)} in all, cost {amount(found.caches)} "
            f"{found.currency}: to modify the backing volume for that time would have cost {amount(found.modified)}."
        )
    return lines


def _last(lines: Sequence[L], most: int) -> Sequence[L]:
    return lines[-most:] if most else ()


def _ahead_cells(line: AheadLine) -> tuple[str, ...]:
    hits, wasted = ("-" if share is None else f"{100 * share:.1f} %" for share in (line.hit_rate, line.wasted_share))
    money = "-" if line.wasted_cost is None else f"{line.wasted_cost:.4f} {line.currency}".rstrip()
    counts = (str(n) for n in (line.bought, line.right, line.wrong))
    seconds = (format_duration(s) for s in (line.early_s, line.wrong_s))
    return line.kind, *counts, hits, *seconds, f"{line.wasted_agbs:,.0f}", money, wasted


def saved(report: Report) -> str:
    """What was saved in the period, or why that is not known."""
    cost = report.vm
    if cost.saved is None or cost.baseline is None or cost.static_fast is None or cost.paid is None:
        return f"saved: unknown, because {_why_unknown(report)}"
    sums = (
        f"paid {amount(cost.paid)} (backing volume {amount(cost.baseline)}, caches "
        f"{amount(cost.paid - cost.baseline)}), always fast {amount(cost.static_fast)}"
    )
    if cost.saved < 0:
        return f"lost {amount(-cost.saved)} {cost.currency} in this period: {sums}"
    return f"saved {amount(cost.saved)} {cost.currency} in this period: {sums}"


def _why_unknown(report: Report) -> str:
    if " and " in report.vm.currency:
        return f"prices are in {report.vm.currency}"
    if report.priced_since is None:
        return "no price of the backing volume, or of a fast one, is known (see `elastio prices`)"
    if None in (report.vm.baseline, report.vm.static_fast):
        since = datetime.fromtimestamp(report.priced_since, report.tz).strftime("%Y-%m-%d %H:%M")
        return f"prices of the backing volume are known from {since} only (use --since)"
    return f"{report.vm.unpriced_boosts} boost(s) have no price"


def amount(value: float) -> str:
    """Cents, and of less than ten cents four digits."""
    return f"{value:.2f}" if value == 0 or abs(value) >= 0.1 else f"{value:.4f}"


def step_table(report: Report, most: int) -> Table:
    """The steps of the last boosts, and the median of all boosts of the period; no rows if no boost had any."""
    boosts = [b.row for b in report.boosts if b.row.steps.boost_s is not None]
    shown = _last(boosts, most)
    cells = [(begun(row.started_wall, report.tz), *_step_cells([row.steps])) for row in shown]
    if len(boosts) > 1:
        cells.append((f"median of {len(boosts)}", *_step_cells([row.steps for row in boosts])))
    return Table(_STEP_HEADS, tuple(cells), len(boosts) - len(shown))


def _step_cells(steps: Sequence[StepDurations]) -> tuple[str, ...]:
    columns = ([s for step in steps if (s := getattr(step, name)) is not None] for name in _BOOST_STEPS)
    return tuple(f"{median(column):.2f}" if column else "-" for column in columns)


def _boost_dict(boost: BoostLine, tz: tzinfo) -> dict[str, Any]:
    row = {**asdict(boost.row), "cgroups": _costs_dict(boost.groups)}
    keys = {"begun": "started_wall", "opened": "opened_wall", "closed": "closed_wall"}
    times = {name: iso(row.pop(key), tz) for name, key in keys.items()}
    return {**row, **times, "open": boost.row.is_open, "billed_s": boost.billed_s, **_cost_dict(boost.cost)}


def _cost_dict(cost: Cost) -> dict[str, Any]:
    figures = {key: getattr(cost, key) for key in _COST_KEYS}
    return {"duration_s": cost.seconds, **figures, "unpriced_phases": cost.unpriced_boosts}


def _boost_cells(boost: BoostLine, tz: tzinfo) -> tuple[str, ...]:
    row = boost.row
    said = row.failure or ("open" if row.is_open else "")
    bill = (format_duration(boost.billed_s), *_costs(boost.cost)) if row.opened_wall is not None else ("-",) * 7
    what = (f"{row.provisioned_size_bytes / GIB:.1f}", f"{row.bandwidth_mb_s:.0f}")
    return begun(row.started_wall, tz), *what, *bill, note(said)


def _costs(cost: Cost) -> tuple[str, ...]:
    ratios = ("-" if p is None else f"{p:.1f}" for p in (cost.of_static_slow_percent, cost.of_static_fast_percent))
    money = "-" if cost.cost is None else f"{cost.cost:.4f} {cost.currency}"
    return *(f"{x:,.0f}" for x in (cost.backing_agbs, cost.cache_agbs, cost.total_agbs)), money, *ratios
