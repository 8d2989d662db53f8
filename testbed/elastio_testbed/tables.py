"""The tables of a result, as values from its JSON document, for Markdown and HTML. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elastio.units import GB
from elastio_testbed.catalogue import EXPERIMENTS
from elastio_testbed.experiment import Scaled
from elastio_testbed.files import shown_setups
from elastio_testbed.lower_bound import DIRTY_SHARE, Bandwidths, least_agbs, naive_agbs, ratio
from elastio_testbed.reference_results import SOURCE, reference
from elastio_testbed.result import own_share_s
from elastio_testbed.spread import spread_of

Document = Mapping[str, Any]
NONE = "-"
# What a run may have been told to do otherwise: what it is called, and its key.
OPTIONS = {"bursts known ahead": "ahead", "adopted": "adopted"}


@dataclass(frozen=True, slots=True)
class Table:
    """Cells are texts; the first column names the row. `note` explains the figures."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


def all_tables(document: Document) -> list[Table]:
    """Every table that has rows, in the order in which they are shown."""
    makers = (completion, throughput, cost, dollars, caches, bandwidth, latency, model)
    return [table for make in makers if (table := make(document)).rows]


# --- numbers ---------------------------------------------------------------------------------------------


def number(value: float | None, digits: int = 1, unit: str = "", sign: str = "") -> str:
    """A number like `12.3 %`, or a dash for None. With the sign `+`, positive numbers have one."""
    return NONE if value is None else f"{value:{sign},.{digits}f}{unit}"


def signed(value: float | None) -> str:
    """A percentage with its sign."""
    return number(value, unit=" %", sign="+")


def spread(found: Mapping[str, float] | None, digits: int = 1, unit: str = "", sign: str = "") -> str:
    """`60.3 (59.8 to 61.0)`: the median, with minimum and maximum if repetitions differ."""
    if found is None:
        return NONE
    median, least, most = (number(found[name], digits, sign=sign) for name in ("median", "min", "max"))
    return f"{median}{unit}" if least == most else f"{median}{unit} ({least} to {most})"


def spread_percent(found: Mapping[str, float] | None) -> str:
    """The same for percentages."""
    return spread(found, unit=" %", sign="+")


# --- the tables ------------------------------------------------------------------------------------------


def hypervisor_of(document: Document) -> str:
    """What the guests were on. Results that do not say it are from before there was a second one."""
    return str(document.get("hypervisor", "qemu"))


def conditions(document: Document) -> Table:
    """The conditions of the measurement."""
    done = len(document["repetitions"])
    order = "side by side, dumps at different times" if document["side_by_side"] else "one after the other"
    rows = (
        ("machine", f"{document['machine']}, {document['processors']} processors, {document['memory_gib']:g} GiB"),
        ("hypervisor", hypervisor_of(document)),
        ("accelerator", document["accelerator"]),
        ("guest kernel", document["kernel"]),
        ("VMs per set-up", str(document["vms"])),
        ("scale of time and data", f"{document['scale']:g}"),
        ("scale of bandwidth and data", f"{document['bandwidth']:g}"),
        ("set-ups", order),
        ("repetitions", str(done)),
        *((name, document[key]) for name, key in OPTIONS.items() if document.get(key)),
        ("date", document["date"]),
        ("code", document.get("code") or "not recorded"),
    )
    return Table("Conditions", ("", ""), rows)


def completion(document: Document) -> Table:
    """Completion times and the published ones."""
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
        "Completion is the time from the end of the first dump to the end of the last. Ratios are computed within one "
        f"repetition; the table has the median, minimum and maximum. Published: {SOURCE}, at scale 1."
    )
    return Table("Completion", heads, rows, note)


def _overhead(setup: str, text: str) -> str:
    return NONE if setup == "static-fast" else text


def throughput(document: Document) -> Table:
    """The application's throughput during its dumps."""
    known = reference(document["experiment"]).write_mb_s
    rows = tuple(
        (setup, spread(figures["app_write_mb_s"]), known.get(setup, NONE))
        for setup, figures in document["summary"]["setups"].items()
    )
    return Table("Throughput while dumping", ("set-up", "write MB/s", "published MB/s"), rows)


def cost(document: Document) -> Table:
    """AGBs, and the savings with the published ones."""
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
    heads = ("set-up", "AGBs", "cache AGBs", "against fast", "published", "against slow", "published")
    note = "AGBs: MB/s x GB x s of every volume, from the first dump on; of caches from purchase to deletion."
    return Table("Cost", heads, tuple(rows), note)


def dollars(document: Document) -> Table:
    """What an experiment with prices costs, and its credits if it has any; no rows for any other."""
    heads = ("set-up", "dollars", "of static-fast", "least credits")
    if "tariffs" not in document:
        return Table("Dollars", heads, ())
    rows = []
    for setup in shown_setups(document):
        runs = [repetition["setups"] for repetition in document["repetitions"]]
        shares = [_share_of_fast(run, setup) for run in runs]
        balances = (_percent(run[setup]["least_credit_share"]) for run in runs)
        cells = (spread_over((run[setup]["dollars"] for run in runs), 4), spread_over(shares, 1))
        rows.append((setup, *cells, spread_over(balances, 1)))
    tariffs = "; ".join(f"{name}: {source}" for name, source in document["tariffs"].items())
    note = (
        "Dollars of data volume and caches, and of the VM where it has a price, at the published size and time. "
        f"Shares in percent. Least credits: the lowest balance over a full bucket. Tariffs: {tariffs}."
    )
    return Table("Dollars", heads, tuple(rows), note)


def _share_of_fast(run: Mapping[str, Any], setup: str) -> float | None:
    fast = run.get("static-fast")
    return None if fast is None or not fast["dollars"] else 100 * run[setup]["dollars"] / fast["dollars"]


def _boosts(document: Document) -> list[tuple[str, int, Mapping[str, Any]]]:
    """(set-up, number within its VM, boost) of the shown repetition."""
    found = []
    for setup, figures in shown_setups(document).items():
        seen: dict[str, int] = {}
        for boost in figures["phases"]:
            seen[boost["vm"]] = seen.get(boost["vm"], 0) + 1
            found.append((setup, seen[boost["vm"]], boost))
    return found


def _name(n: int, boost: Mapping[str, Any], document: Document) -> str:
    return f"{boost['vm']} boost {n}" if document["vms"] > 1 else f"boost {n}"


def caches(document: Document) -> Table:
    """The cost of each cache and its lower bound, and the sums over all repetitions."""
    speed = _speed(document)
    rows = []
    for _, n, boost in _boosts(document):
        bounds = _bounds([boost], speed)
        sizes = [number(boost[name], 3) for name in ("size_gb", "dumped_gb", "dirty_peak_gb", "evicted_gb")]
        costs = [number(value, 0) for value in (boost["cache_agbs"], *bounds)]
        cells = (*sizes, number(boost["attached_s"]), *costs)
        rows.append((_name(n, boost, document), *cells, number(ratio(boost["cache_agbs"], bounds[1]), 2)))
    for setup, figures in shown_setups(document).items():
        if figures["phases"]:
            rows += _sums(setup, [repetition["setups"][setup] for repetition in document["repetitions"]], speed)
    heads = (
        *("boost", "GB", "dumped GB", "dirty GB", "written through GB", "attached s", "cache AGBs", "naive", "bound"),
        "x bound",
    )
    note = (
        "Bound: the minimum for S dumped bytes that are written to the cache at its full bandwidth Bc while they are "
        "flushed at Bb, which is bought in addition: (Bc + Bb) x S (1 - Bb/Bc) x S/Bb. Naive: flushed only afterwards, "
        f"Bc x S x (S/Bc + S/Bb). In both the size is divided by {DIRTY_SHARE:.2f}, the share of a cache set that may "
        "be dirty, a constant of this agent. The first boost has the published initial size, not a learned one. The "
        "sums include failed purchases."
    )
    return Table("Caches against the lower bound", heads, tuple(rows), note)


def _bounds(boosts: Sequence[Mapping[str, Any]], speed: Bandwidths) -> tuple[float, float]:
    """Naive and true bound of these boosts, computed from their bytes: old files have no bound."""
    sizes = [boost["dumped_gb"] * GB for boost in boosts]
    return sum(naive_agbs(size, speed) for size in sizes), sum(least_agbs(size, speed) for size in sizes)


def _sums(setup: str, runs: Sequence[Mapping[str, Any]], speed: Bandwidths) -> list[tuple[str, ...]]:
    """Over the repetitions: all boosts, and those after each VM's first."""
    bounds = [_bounds(run["phases"], speed) for run in runs]
    later = [_after_the_first(run["phases"]) for run in runs]
    after = [ratio(sum(p["cache_agbs"] for p in boosts), _bounds(boosts, speed)[1]) for boosts in later]
    empty = ("",) * 5
    return [
        (
            f"{setup}, all",
            *empty,
            spread_over((run["cache_agbs"] for run in runs), 0),
            spread_over((naive for naive, _ in bounds), 0),
            spread_over((least for _, least in bounds), 0),
            spread_over((ratio(run["cache_agbs"], least) for run, (_, least) in zip(runs, bounds, strict=True)), 2),
        ),
        *([(f"{setup}, after the first", *empty, "", "", "", spread_over(after, 2))] if any(after) else []),
    ]


def _after_the_first(boosts: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [boost for n, boost in enumerate(boosts) if boost["vm"] in {before["vm"] for before in boosts[:n]}]


def spread_over(values: Iterable[float | None], digits: int) -> str:
    found = spread_of(values)
    return spread(found.to_json() if found else None, digits)


def bandwidth(document: Document) -> Table:
    """The use of both volumes' bandwidth."""
    rows = tuple(
        (
            _name(n, boost, document),
            number(boost["governed"]["burst_mb_s"]),
            number(_percent(boost["governed"]["resting_share"]), 0, " %"),
            number(_percent(boost["governed"]["flushing_share"]), 0, " %"),
        )
        for _, n, boost in _boosts(document)
        if boost.get("governed")
    )
    heads = ("boost", "application in the burst, MB/s", "backing volume busy, ID", "backing volume busy, flushing")
    note = (
        "Recorded in the guest independently of the agent: throughput from writeback mode to the end of the dump; the "
        "share of the backing volume's bandwidth in use while the application is idle, within the inactivity delay "
        "(ID) and while flushing."
    )
    return Table("Bandwidth during a boost", heads, rows, note)


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def latency(document: Document) -> Table:
    """The steps of each boost, and the agent's own share over all repetitions."""
    boosts = _boosts(document)
    names = list(dict.fromkeys(name for _, _, boost in boosts for name in boost["steps_s"]))
    rows = [
        (
            _name(n, boost, document),
            number(_sampling_s(boost), 2),
            *(number(boost["steps_s"].get(name), 2) for name in names),
            number(boost["attach_s"], 2),
            number(boost["cloud_s"], 2),
            number(own_s(boost), 2),
        )
        for _, n, boost in boosts
    ]
    every = every_boost(document)
    if rows:
        sampled, own = spread_over(map(_sampling_s, every), 2), spread_over(map(own_s, every), 2)
        rows.append(
            (f"all {len(every)} boosts" if len(every) > 1 else "all boosts", sampled, *("",) * len(names), "", "", own)
        )
    steps = (f"{name.replace('_', ' ')} s" for name in names)
    heads = ("boost", "sampling s", *steps, "total s", "cloud s", "own share s")
    note = (
        "Sampling: from the start of the first sample that shows the load, recorded independently twice a second, to "
        "the decision; of the first VM only. All other times are from the decision to writeback mode. Cloud: creating "
        "and attaching the volume, as the cloud reports it. Own share: the rest, that is the agent's own steps and the "
        "delay until it notices that the cloud is done."
    )
    return Table("Latency of a boost", heads, tuple(rows), note)


def every_boost(document: Document) -> list[Mapping[str, Any]]:
    """Of every repetition and set-up."""
    return [p for r in document["repetitions"] for run in r["setups"].values() for p in run["phases"]]


def own_s(boost: Mapping[str, Any]) -> float | None:
    """The agent's own share of a boost, in seconds."""
    return own_share_s(boost["attach_s"], boost["cloud_s"])


def _sampling_s(boost: Mapping[str, Any]) -> float | None:
    found: float | None = (boost.get("governed") or {}).get("sampling_s")
    return found


def model(document: Document) -> Table:
    """The guest compared with the simulator, without compute time."""
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
                spread_over(waited, 1),
                number(modelled),
                spread_over((ratio(seconds, modelled) for seconds in waited), 3),
                spread_over((run["cache_agbs"] or None for run in runs), 0),
                number(caches or None, 0),
                spread_over((ratio(run["cache_agbs"], caches or 0.0) for run in runs), 3),
            )
        )
    heads = (
        *("set-up", "computing s", "guest I/O s", "simulated I/O s", "guest / simulated"),
        *("guest cache AGBs", "simulated cache AGBs", "guest / simulated"),
    )
    note = (
        "The same scaled experiment, with the agent's real loop, on the simulator. I/O: completion without the compute "
        "time between the dumps, which is the same in both and would hide differences. What an application computes "
        "beyond that in a guest counts as I/O."
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
