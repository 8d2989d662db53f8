"""What campaigns have met: of each kind how many runs, at how many of its steps, and what they lost. Pure.

Works on the documents of campaigns as they come from their files, those of older formats too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from elastio_testbed.faults.kinds import KINDS
from elastio_testbed.tables import Table

Results = Sequence[Mapping[str, Any]]


def steps_met(results: Results) -> dict[str, set[str]]:
    """By kind the moments at which it struck, or the calls that it hit. One that was missed met nothing."""
    met: dict[str, set[str]] = {}
    for result in results:
        planned = result["planned"]
        steps = met.setdefault(planned["kind"], set())
        calls = {each["call"] for each in planned["cloud"] if each["kind"] == planned["kind"]}
        if not result["missed"]:
            steps |= calls or {f"{planned['moment']['kind']} {planned['moment']['what']}"}
    return dict(sorted(met.items()))


def steps_of(kind: str) -> int:
    """How many steps a kind may meet."""
    return len(KINDS[kind].calls or KINDS[kind].triggers)


def campaigns(documents: Sequence[Mapping[str, Any]]) -> Table:
    """A row for each file, and one for all of them."""
    rows = [(f"seed {each['seed']}, format {_format(each)}", *_counts([each])) for each in documents]
    heads = ("campaign", "kernel", "runs", "records", "lost", "of it the kernel's", "volumes left", "stuck", "back s")
    note = (
        "The kernel's: with both witnesses; formats 1 and 2 did not ask for them, and had nothing to excuse. Stuck: "
        "runs that had to be given up. Back: until the device took a durable write again, the longest."
    )
    return Table("Campaigns that are kept", heads, (*rows, ("all", *_counts(documents))), note)


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
    """Of each kind the runs of all files together, and how many of its steps they met."""
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
    )
    note = (
        "A step is where the fault strikes: a record of the agent's journal (the intent or the outcome of one of the "
        "ten actions of a cycle, or the decision for a phase), or, for a fault of the cloud, a call. Steps that are "
        "not met here are met in the simulator only."
    )
    return Table("Steps that were met, by kind", ("kind", "runs", "steps met", "of", "records lost"), rows, note)
