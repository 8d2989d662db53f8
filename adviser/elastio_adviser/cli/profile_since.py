"""`elastio profile --since`: where the time of cgroups went in the bursts that the agent watched, from the ledger."""

from __future__ import annotations

import json
import math
import time
from datetime import datetime, timedelta, tzinfo
from typing import Any

import click

from elastio.accounting.burst_accounts import HEADS, BurstAccounts, GroupAccount, burst_accounts, cells
from elastio.accounting.database import local_zone
from elastio.accounting.history_store import read_accounts
from elastio.accounting.tables import iso, table
from elastio.strategy.bandwidth import curves_of
from elastio_adviser.bandwidth_advice import advise
from elastio_adviser.cli.profile_view import (
    FEW_READINGS,
    REMARK,
    Profile,
    answer,
    curve_table,
    figures,
    histogram,
    inflection,
    next_cache,
)
from elastio_adviser.profiler import Measured
from elastio_cli.app import App
from elastio_cli.ledger import begin_of, open_ledgers

# Cgroups whose histogram and curve are printed; the table and the document have all.
MOST_CURVES = 5
ASLEEP = "A task that waits asleep for libaio or io_uring counts as elsewhere, unless the agent may trace it (ptrace)."
QUIET = "The quiet after a burst is in no account, and a cgroup that moved nothing on the device has none."
NO_DELAYS = "Delay accounting is off (kernel.task_delayacct): the samples alone tell what is waiting."


def show(app: App, since: datetime | timedelta, cgroup: str | None, options: dict[str, Any]) -> None:
    """Print it. Raises ElastioError where no ledger can be read."""
    zone, end = local_zone(), time.time()
    begin = begin_of(since, zone, end)
    with open_ledgers(app) as ledgers:
        rows = [row for ledger in ledgers for row in read_accounts(ledger.file, begin, end)]
    found = burst_accounts(row for row in rows if cgroup is None or row.cgroup == cgroup.strip("/"))
    if options["as_json"]:
        click.echo(json.dumps(to_dict(found, options, begin, end, zone), indent=2))
    else:
        click.echo(to_text(found, options), nl=False)


def to_text(found: BurstAccounts, options: dict[str, Any]) -> str:
    """The table of all cgroups, and the curves of those that waited longest for bandwidth."""
    if not found.groups:
        text = "No burst has an account: the agent keeps one of loads at or above the threshold, see [profile] enabled."
        return f"{text}\n"
    rows = [cells(group, options["stop_gain"]) for group in (*found.groups, found.all)]
    lines = [f"bursts: {found.bursts}, with a boost: {found.boosts}", "", *table(HEADS, rows, 0)]
    shown = [group for group in found.groups if group.account.bandwidth_s > 0][:MOST_CURVES]
    for group in (*shown, *([found.all] if len(found.groups) > 1 else [])):
        lines += [*_group(profile_of(group, options)), ""]
    return "\n".join([*lines, *(f"Note: {note}" for note in notes(found)), ""])


def _group(profile: Profile) -> list[str]:
    curve = curve_table(profile)
    return [
        f"{profile.of}:",
        answer(profile),
        *histogram(profile.measured.totals),
        *curve,
        inflection(profile),
        next_cache(profile),
    ]


def profile_of(group: GroupAccount, options: dict[str, Any]) -> Profile:
    """What the ledger has of a cgroup, as if it had been profiled."""
    stop_gain = options["stop_gain"]
    curves = curves_of(group.totals, options["most_mb_s"] or math.inf)
    measured = Measured(group.totals, has_delays=group.totals.delayed_s is not None)
    return Profile(
        of=group.cgroup,
        device="",
        measured=measured,
        cap_mb_s=None,
        curves=curves,
        stop_gain=stop_gain,
        advice=advise(group.totals, curves.likely, stop_gain),
    )


def notes(found: BurstAccounts) -> list[str]:
    """What is not known, or cannot be seen, as sentences."""
    few = [group.cgroup for group in found.groups if group.totals.instants < FEW_READINGS]
    rough = f"Only a rough account, of fewer than {FEW_READINGS} readings: {', '.join(few[:MOST_CURVES])}"
    more = f" and {len(few) - MOST_CURVES} more" if len(few) > MOST_CURVES else ""
    limited = [group for group in found.groups if group.totals.limited.seconds > REMARK * group.totals.seconds]
    return [
        ASLEEP,
        QUIET,
        *(
            f"{group.cgroup} waits at a limit of the cgroup itself (io.max), which no faster volume lifts."
            for group in limited[:MOST_CURVES]
        ),
        *([f"{rough}{more}."] if few else []),
        *([NO_DELAYS] if found.all.totals.delayed_s is None else []),
    ]


def to_dict(found: BurstAccounts, options: dict[str, Any], begin: float, end: float, zone: tzinfo) -> dict[str, Any]:
    """The document of `--json`; the figures of a cgroup are those of a profile."""

    def document(group: GroupAccount) -> dict[str, Any]:
        return {"cgroup": group.cgroup, "bursts": group.bursts, **figures(profile_of(group, options))}

    return {
        "since": iso(begin, zone),
        "until": iso(end, zone),
        "bursts": found.bursts,
        "boosts": found.boosts,
        "groups": [document(group) for group in found.groups],
        "all": document(found.all),
        "notes": notes(found),
    }
