"""The coverage of campaigns: for each kind of fault its runs, the steps at which it struck, and the records lost. Pure.

The input are the documents of campaigns in any format.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from elastio_testbed.faults.kinds import EVERYWHERE, KINDS
from elastio_testbed.tables import Table, hypervisor_of

Results = Sequence[Mapping[str, Any]]
# The actions that have another name in older files.
RENAMED = {"MarkVolume": "TagVolume"}


def steps_met(results: Results) -> dict[str, set[str]]:
    """For each kind the triggers at which it struck, or the calls that it hit. A missed trigger does not count."""
    met: dict[str, set[str]] = {}
    for result in results:
        planned = result["planned"]
        steps = met.setdefault(planned["kind"], set())
        calls = {each["call"] for each in planned["cloud"] if each["kind"] == planned["kind"]}
        if not result["missed"]:
            trigger = planned["moment"]
            steps |= calls or {f"{trigger['kind']} {RENAMED.get(trigger['what'], trigger['what'])}"}
    return dict(sorted(met.items()))


def steps_of(kind: str) -> int:
    """The number of steps at which a kind can strike."""
    return len(KINDS[kind].calls or KINDS[kind].triggers)


def campaigns(documents: Sequence[Mapping[str, Any]]) -> Table:
    """One row per file, and one for all of them."""
    rows = [(_name(each), *_counts([each])) for each in documents]
    heads = (
        *("campaign", "kernel", "runs", "records", "lost", "lost by the kernel", "volumes left", "stuck"),
        "recovery s",
    )
    note = (
        "Lost by the kernel: proved by the kernel's log and by the writer; formats 1 and 2 did not record that, and "
        "lost nothing. Stuck: runs that were given up. Recovery: the longest time until the device took a durable "
        "write again."
    )
    on = hypervisor_of(documents[0]) if documents else ""
    return Table(f"Stored campaigns, guests on {on}", heads, (*rows, ("all", *_counts(documents))), note)


def _name(document: Mapping[str, Any]) -> str:
    adopted = document.get("adopted")
    return f"seed {document['seed']}, format {_format(document)}{f', adopted {adopted}' if adopted else ''}"


def _format(document: Mapping[str, Any]) -> int:
    return int(document.get("format", 2 if "torn_records" in document else 1))


def _counts(documents: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    def total(name: str) -> str:
        return f"{sum(each.get(name, 0) for each in documents):,}"

    kernels = sorted({kernel for each in documents for kernel in each.get("kernels", ["not recorded"])})
    back = max((each["worst_recovery_s"] or 0.0 for each in documents), default=0.0)
    sums = ("runs", "acknowledged_records", "lost_records", "torn_records", "leaked_volumes", "stuck_runs")
    return (", ".join(kernels), *map(total, sums), f"{back:.1f}")


def steps(documents: Sequence[Mapping[str, Any]]) -> Table:
    """For each kind the runs of all files, and the number of steps at which it struck."""
    results = [result for each in documents for result in each["stories"]]
    met = steps_met(results)
    rows = tuple(
        (
            kind,
            str(sum(result["planned"]["kind"] == kind for result in results)),
            str(len(met.get(kind, ()))),
            str(steps_of(kind)),
            str(sum(result["lost_records"] for result in results if result["planned"]["kind"] == kind)),
        )
        for kind in KINDS
        if kind in EVERYWHERE or kind in met
    )
    note = (
        "A step is the point at which the fault strikes: a record of the agent's journal (the intent or the outcome of "
        "one of the ten actions of a cycle, or the decision for a phase) or, for a fault of the cloud, a call. Steps "
        "not covered here are covered by the simulator only."
    )
    return Table("Steps covered, by kind", ("kind", "runs", "steps covered", "of", "records lost"), rows, note)
