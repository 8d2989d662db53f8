"""The tables of a result, as values made from its JSON document: what Markdown and HTML both show. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from elastio_testbed.bound import DIRTY_SHARE, ratio
from elastio_testbed.published import SOURCE, published

Document = Mapping[str, Any]
NONE = "-"


@dataclass(frozen=True, slots=True)
class Table:
    """Cells are texts; the first column names the row. `note` says what has to be known to read it."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


def all_tables(document: Document) -> list[Table]:
    """Every table that has a row, in the order in which they are read."""
    makers = (completion, throughput, cost, caches, bandwidth, latency, model)
    return [table for make in makers if (table := make(document)).rows]


# --- numbers ---------------------------------------------------------------------------------------------


def number(value: float | None, digits: int = 1, unit: str = "") -> str:
    """`12.3 %`, or a dash where there is none."""
    return NONE if value is None else f"{value:,.{digits}f}{unit}"


def signed(value: float | None, digits: int = 1) -> str:
    """Percent with its sign."""
    return NONE if value is None else f"{value:+.{digits}f} %"


def spread(found: Mapping[str, float] | None, digits: int = 1) -> str:
    """`60.3 (59.8 to 61.0)`: the median, and the least and the most where repetitions differ."""
    if found is None:
        return NONE
    median, least, most = (number(found[name], digits) for name in ("median", "min", "max"))
    return median if least == most else f"{median} ({least} to {most})"


def spread_percent(found: Mapping[str, float] | None, digits: int = 1) -> str:
    """The same of percentages."""
    if found is None:
        return NONE
    least, most = (f"{found[name]:+.{digits}f}" for name in ("min", "max"))
    text = signed(found["median"], digits)
    return text if least == most else f"{text} ({least} to {most})"


# --- the tables ------------------------------------------------------------------------------------------


def conditions(document: Document) -> Table:
    """Under which conditions the figures hold."""
    done = len(document["repetitions"])
    order = "side by side, dumps staggered" if document["side_by_side"] else "one after the other"
    rows = (
        ("machine", f"{document['machine']}, {document['processors']} processors, {document['memory_gib']:g} GiB"),
        ("accelerator", document["accelerator"]),
        ("guest kernel", document["kernel"]),
        ("VMs per set-up", str(document["vms"])),
        ("scale of time and data", f"{document['scale']:g}"),
        ("scale of bandwidth and data", f"{document['bandwidth']:g}"),
        ("set-ups", order),
        ("repetitions", str(done)),
        ("date", document["date"]),
    )
    return Table("Conditions", ("", ""), rows)


def completion(document: Document) -> Table:
    """Completion times beside the published ones."""
    known, summary = published(document["experiment"]), document["summary"]
    rows = tuple(
        (
            setup,
            spread(figures["completion_s"]),
            _overhead(setup, spread_percent(summary["ratios"][setup]["overhead_vs_fast_pct"])),
            number(known.completion_s.get(setup), 0),
            _overhead(setup, signed(known.overhead_vs_fast_pct.get(setup))),
        )
        for setup, figures in summary["setups"].items()
    )
    heads = ("set-up", "completion s", "against static-fast", "published s", "published")
    note = (
        "Completion runs from the end of the first dump to the end of the last. Ratios are taken within one "
        f"repetition; shown is the median, with the least and the most. Published: {SOURCE}, at scale 1."
    )
    return Table("Completion", heads, rows, note)


def _overhead(setup: str, text: str) -> str:
    return NONE if setup == "static-fast" else text


def throughput(document: Document) -> Table:
    """What the application wrote per second of its dumps."""
    known = published(document["experiment"]).write_mb_s
    rows = tuple(
        (setup, spread(figures["app_write_mb_s"]), known.get(setup, NONE))
        for setup, figures in document["summary"]["setups"].items()
    )
    return Table("Throughput while dumping", ("set-up", "write MB/s", "published MB/s"), rows)


def cost(document: Document) -> Table:
    """AGBs, and the savings beside the published ones."""
    known, summary = published(document["experiment"]), document["summary"]
    rows = []
    for setup, figures in summary["setups"].items():
        ratios = summary["ratios"][setup]
        is_ours = setup == "adaptive"
        rows.append(
            (
                setup,
                spread(figures["agbs"], 0),
                spread(figures["cache_agbs"], 0),
                NONE if setup == "static-fast" else spread_percent(ratios["agbs_vs_fast_pct"]),
                (is_ours and known.cost_vs_fast) or NONE,
                NONE if setup == "static-slow" else spread_percent(ratios["agbs_vs_slow_pct"]),
                (is_ours and known.cost_vs_slow) or NONE,
            )
        )
    heads = ("set-up", "AGBs", "of it caches", "against fast", "published", "against slow", "published")
    note = "AGBs: MB/s x GB x s of every volume, from the first dump on; caches from purchase to deletion."
    return Table("Cost", heads, tuple(rows), note)


def _phases(document: Document) -> list[tuple[str, int, Mapping[str, Any]]]:
    """(set-up, number within its VM, phase) of the repetition that is shown."""
    found = []
    for setup, figures in document["setups"].items():
        seen: dict[str, int] = {}
        for phase in figures["phases"]:
            seen[phase["vm"]] = seen.get(phase["vm"], 0) + 1
            found.append((setup, seen[phase["vm"]], phase))
    return found


def _name(n: int, phase: Mapping[str, Any], document: Document) -> str:
    return f"{phase['vm']} phase {n}" if document["vms"] > 1 else f"phase {n}"


def caches(document: Document) -> Table:
    """Each cache against the least that its burst needed, and the sums over all repetitions."""
    rows = [
        (
            _name(n, phase, document),
            number(phase["size_gb"], 3),
            number(phase["dumped_gb"], 3),
            number(phase["dirty_peak_gb"], 3),
            number(phase["evicted_gb"], 3),
            number(phase["attached_s"]),
            number(phase["cache_agbs"], 0),
            number(phase["cache_agbs_bound"], 0),
            number(ratio(phase["cache_agbs"], phase["cache_agbs_bound"]), 2),
        )
        for _, n, phase in _phases(document)
    ]
    for setup, figures in document["summary"]["setups"].items():
        if figures["cache_agbs_ratio"] is not None:
            empty = ("",) * 5
            all_of_it = (spread(figures["cache_agbs"], 0), spread(figures["cache_agbs_bound"], 0))
            rows.append((f"{setup}, all", *empty, *all_of_it, spread(figures["cache_agbs_ratio"], 2)))
            rows.append((f"{setup}, after the first", *empty, "", "", spread(figures["cache_agbs_ratio_later"], 2)))
    heads = ("phase", "GB", "dumped GB", "dirty GB", "evicted GB", "attached s", "cache AGBs", "bound", "x bound")
    note = (
        "Bound: a cache attached for exactly S/Bc + S/Bb seconds at the size that S dumped bytes need, S divided by "
        f"{DIRTY_SHARE:.2f}, the share of a cache set that may be dirty. The first phase has the published initial "
        "size, which nothing measured has chosen. The sums cover all that was paid, failed purchases too."
    )
    return Table("Caches against the lower bound", heads, tuple(rows), note)


def bandwidth(document: Document) -> Table:
    """What applications and flush made of both volumes."""
    rows = tuple(
        (
            _name(n, phase, document),
            number(phase["governed"]["burst_mb_s"]),
            number(_percent(phase["governed"]["resting_share"]), 0, " %"),
            number(_percent(phase["governed"]["flushing_share"]), 0, " %"),
        )
        for _, n, phase in _phases(document)
        if phase.get("governed")
    )
    heads = ("phase", "application in the burst, MB/s", "backing volume busy, ID", "backing volume busy, phase 2")
    note = (
        "Recorded in the guest beside the agent: throughput from writeback mode to the end of the dump; then the "
        "share of the backing volume's bandwidth in use while the application rests, within ID and in phase 2."
    )
    return Table("Bandwidth during a boost", heads, rows, note)


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def latency(document: Document) -> Table:
    """Where the time of each boost went."""
    phases = _phases(document)
    names = list(dict.fromkeys(name for _, _, phase in phases for name in phase["steps_s"]))
    rows = tuple(
        (
            _name(n, phase, document),
            *(number(phase["steps_s"].get(name), 2) for name in names),
            number(phase["attach_s"], 2),
            number(phase["cloud_s"], 2),
            number(own_s(phase), 2),
        )
        for _, n, phase in phases
    )
    heads = ("phase", *(f"{name.replace('_', ' ')} s" for name in names), "in all s", "the cloud's s", "own s")
    note = (
        "From the decision to writeback mode. The cloud's: creating and attaching the volume, as the cloud saw it; "
        "own: the rest, with the calls to the cloud and the guest's programs."
    )
    return Table("Latency of a boost", heads, rows, note)


def own_s(phase: Mapping[str, Any]) -> float | None:
    """Seconds of a boost that are not the cloud's."""
    return None if phase["cloud_s"] is None or phase["attach_s"] is None else phase["attach_s"] - phase["cloud_s"]


def model(document: Document) -> Table:
    """The guest against the simulator."""
    compared = document["summary"]["guest_over_simulated"]
    rows = tuple(
        (
            setup,
            spread(document["summary"]["setups"][setup]["completion_s"]),
            number(simulated["completion_s"]),
            spread(compared[setup]["completion_s"], 3),
            spread(document["summary"]["setups"][setup]["agbs"], 0),
            number(simulated["agbs"], 0),
            spread(compared[setup]["agbs"], 3),
        )
        for setup, simulated in document["simulated"].items()
    )
    heads = (
        "set-up",
        "guest s",
        "simulated s",
        "guest / simulated",
        "guest AGBs",
        "simulated AGBs",
        "guest / simulated",
    )
    note = "The same scaled experiment, with the agent's real loop, on the shipped simulator."
    return Table("Agreement with the simulator", heads, rows, note)
