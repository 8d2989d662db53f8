"""The tables of a result, as values made from its JSON document: what Markdown and HTML both show. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elastio.units import GB
from elastio_testbed.catalogue import EXPERIMENTS
from elastio_testbed.experiment import Scaled
from elastio_testbed.lower_bound import DIRTY_SHARE, Bandwidths, least_agbs, naive_agbs, ratio
from elastio_testbed.reference_results import SOURCE, reference
from elastio_testbed.result import own_share_s
from elastio_testbed.spread import spread_of

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
        ("code", document.get("code") or "not recorded"),
    )
    return Table("Conditions", ("", ""), rows)


def completion(document: Document) -> Table:
    """Completion times beside the published ones."""
    known, summary = reference(document["experiment"]), document["summary"]
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
    known = reference(document["experiment"]).write_mb_s
    rows = tuple(
        (setup, spread(figures["app_write_mb_s"]), known.get(setup, NONE))
        for setup, figures in document["summary"]["setups"].items()
    )
    return Table("Throughput while dumping", ("set-up", "write MB/s", "published MB/s"), rows)


def cost(document: Document) -> Table:
    """AGBs, and the savings beside the published ones."""
    known, summary = reference(document["experiment"]), document["summary"]
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
    speed = _speed(document)
    rows = []
    for _, n, phase in _phases(document):
        bounds = _bounds([phase], speed)
        sizes = [number(phase[name], 3) for name in ("size_gb", "dumped_gb", "dirty_peak_gb", "evicted_gb")]
        costs = [number(value, 0) for value in (phase["cache_agbs"], *bounds)]
        cells = (*sizes, number(phase["attached_s"]), *costs)
        rows.append((_name(n, phase, document), *cells, number(ratio(phase["cache_agbs"], bounds[1]), 2)))
    for setup, figures in document["setups"].items():
        if figures["phases"]:
            rows += _sums(setup, [repetition["setups"][setup] for repetition in document["repetitions"]], speed)
    heads = (
        *("phase", "GB", "dumped GB", "dirty GB", "evicted GB", "attached s", "cache AGBs", "naive", "bound"),
        "x bound",
    )
    note = (
        "Bound: the least for S dumped bytes that the cache takes at its full bandwidth Bc while Bb, bought on top, "
        "flows back: (Bc + Bb) x S (1 - Bb/Bc) x S/Bb. Naive: without that, Bc x S x (S/Bc + S/Bb). In both the size "
        f"is divided by {DIRTY_SHARE:.2f}, the share of a cache set that may be dirty: a constant of this agent. The "
        "first phase has the published initial size, which nothing measured has chosen. The sums cover all that was "
        "paid, failed purchases too."
    )
    return Table("Caches against the lower bound", heads, tuple(rows), note)


def _bounds(phases: Sequence[Mapping[str, Any]], speed: Bandwidths) -> tuple[float, float]:
    """Naive and true bound of these phases. From their bytes: a file may be older than the bound."""
    sizes = [phase["dumped_gb"] * GB for phase in phases]
    return sum(naive_agbs(size, speed) for size in sizes), sum(least_agbs(size, speed) for size in sizes)


def _sums(setup: str, runs: Sequence[Mapping[str, Any]], speed: Bandwidths) -> list[tuple[str, ...]]:
    """Over the repetitions: all phases, and those after each VM's first."""
    bounds = [_bounds(run["phases"], speed) for run in runs]
    later = [_after_the_first(run["phases"]) for run in runs]
    after = [ratio(sum(p["cache_agbs"] for p in phases), _bounds(phases, speed)[1]) for phases in later]
    empty = ("",) * 5
    return [
        (
            f"{setup}, all",
            *empty,
            _spread_over((run["cache_agbs"] for run in runs), 0),
            _spread_over((naive for naive, _ in bounds), 0),
            _spread_over((least for _, least in bounds), 0),
            _spread_over((ratio(run["cache_agbs"], least) for run, (_, least) in zip(runs, bounds, strict=True)), 2),
        ),
        (f"{setup}, after the first", *empty, "", "", "", _spread_over(after, 2)),
    ]


def _after_the_first(phases: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [phase for n, phase in enumerate(phases) if phase["vm"] in {before["vm"] for before in phases[:n]}]


def _spread_over(values: Iterable[float | None], digits: int) -> str:
    found = spread_of(values)
    return spread(found.to_json() if found else None, digits)


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
    """Where the time of each boost went, and the own share over all repetitions."""
    phases = _phases(document)
    names = list(dict.fromkeys(name for _, _, phase in phases for name in phase["steps_s"]))
    rows = [
        (
            _name(n, phase, document),
            number(_sampling_s(phase), 2),
            *(number(phase["steps_s"].get(name), 2) for name in names),
            number(phase["attach_s"], 2),
            number(phase["cloud_s"], 2),
            number(own_s(phase), 2),
        )
        for _, n, phase in phases
    ]
    every = [p for r in document["repetitions"] for run in r["setups"].values() for p in run["phases"]]
    if rows:
        sampled, own = _spread_over(map(_sampling_s, every), 2), _spread_over(map(own_s, every), 2)
        rows.append((f"all {len(every)} boosts", sampled, *("",) * len(names), "", "", own))
    steps = (f"{name.replace('_', ' ')} s" for name in names)
    heads = ("phase", "sampling s", *steps, "in all s", "the cloud's s", "own share s")
    note = (
        "Sampling: from the begin of the first sample that shows the load, recorded beside the agent twice a second, "
        "to the decision; the first VM's only. The rest is from the decision to writeback mode. The cloud's: creating "
        "and attaching the volume, as the cloud saw it. Own share: all the rest, the agent's own steps and by how much "
        "it learned later that the cloud was done."
    )
    return Table("Latency of a boost", heads, tuple(rows), note)


def own_s(phase: Mapping[str, Any]) -> float | None:
    """Seconds of a boost that are not the cloud's."""
    return own_share_s(phase["attach_s"], phase["cloud_s"])


def _sampling_s(phase: Mapping[str, Any]) -> float | None:
    found: float | None = (phase.get("governed") or {}).get("sampling_s")
    return found


def model(document: Document) -> Table:
    """The guest against the simulator, without the time in which there is no I/O."""
    scaled = _scaled(document)
    computing_s = scaled.compute_each_s * (len(scaled.dumps_bytes) - 1)
    rows = []
    for setup, simulated in document["simulated"].items():
        runs = [repetition["setups"][setup] for repetition in document["repetitions"]]
        waited = [run["completion_s"] - computing_s for run in runs]
        modelled, caches = simulated["completion_s"] - computing_s, simulated.get("cache_agbs")
        rows.append(
            (
                setup,
                number(computing_s),
                _spread_over(waited, 1),
                number(modelled),
                _spread_over((ratio(seconds, modelled) for seconds in waited), 3),
                _spread_over((run["cache_agbs"] or None for run in runs), 0),
                number(caches or None, 0),
                _spread_over((ratio(run["cache_agbs"], caches or 0.0) for run in runs), 3),
            )
        )
    heads = (
        *("set-up", "computing s", "guest I/O s", "simulated I/O s", "guest / simulated"),
        *("guest cache AGBs", "simulated cache AGBs", "guest / simulated"),
    )
    note = (
        "The same scaled experiment, with the agent's real loop, on the shipped simulator. I/O: completion without the "
        "computing between the dumps, which takes the same time in both and would make any two figures agree. What an "
        "application computes beyond that in a guest counts as I/O."
    )
    return Table("Agreement with the simulator", heads, tuple(rows), note)


def every_repetition(document: Document) -> Table:
    """The figures of each repetition."""
    rows = tuple(
        (
            f"{n} {setup}",
            number(figures["completion_s"]),
            " ".join(f"{seconds:.1f}" for seconds in figures["dumps_s"]),
            number(figures["agbs"], 0),
            signed(repetition["ratios"][setup]["overhead_vs_fast_pct"]),
            "ok" if figures["checksums_ok"] else "WRONG",
            str(figures["volumes_left"]),
        )
        for n, repetition in enumerate(document["repetitions"], 1)
        for setup, figures in repetition["setups"].items()
    )
    heads = ("set-up", "completion s", "dumps s", "AGBs", "against static-fast", "data", "volumes left")
    return Table("Every repetition", heads, rows)


def _speed(document: Document) -> Bandwidths:
    return Bandwidths(_scaled(document).backing_bytes_s, _scaled(document).cache_bytes_s)


def _scaled(document: Document) -> Scaled:
    return Scaled(EXPERIMENTS[document["experiment"]], document["scale"], document["bandwidth"])
