"""Which latency bounds were kept beside another application, as tables. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import Any

from elastio_testbed.sharing.courses import AS_PUBLISHED, WITHIN_SHARE, Run, Wants, run_of_json
from elastio_testbed.sharing.slo import (
    FIRST,
    PUBLISHED,
    SECOND,
    SIZES,
    Commits,
    calm_kept,
    commits_of_json,
    overloaded_kept,
    restored,
)
from elastio_testbed.tables import Table

DASH = "-"


def latencies(document: Mapping[str, Any]) -> list[Table]:
    """Which bounds were kept under each control; Figure 1; and Figures 3 to 5, period by period."""
    runs = [run_of_json(each) for each in document["runs"]]
    controls = tuple(dict.fromkeys(run.control for run in runs))
    courses = dict.fromkeys(run.course for run in runs)
    capacity_mb_s = document["capacity_mb_s"]
    return [
        _kept(runs, controls),
        _beside(runs, controls),
        _commits([commits_of_json(each) for each in document["commits"]]),
        *(_course(runs, each, capacity_mb_s) for each in courses),
    ]


def _kept(runs: Sequence[Run], controls: Sequence[str]) -> Table:
    rows = tuple(
        (
            control,
            _percent(calm_kept(runs, control)),
            *(_percent(overloaded_kept(runs, WITHIN_SHARE, control, each)) for each in (FIRST, SECOND)),
            *(_percent(overloaded_kept(runs, AS_PUBLISHED, control, each)) for each in (FIRST, SECOND)),
        )
        for control in controls
    )
    heads = ("control", "not overloaded", "App2 overloads: App1", "its App2", "both overload: App1", "their App2")
    note = (
        "Percent of the seconds whose 95th percentile is within the bound, which is 100 ms for App1 and 300 for App2."
    )
    return Table("Seconds within their bound", heads, rows, note)


def _beside(runs: Sequence[Run], controls: Sequence[str]) -> Table:
    rows = tuple(
        (size, *(_percent(restored(runs, wish, control)) for control in controls), *map(_percent, PUBLISHED[wish]))
        for size, wish in SIZES.items()
    )
    heads = ("App1", *controls, "published: no control", "published: its scheduler")
    return Table("Beside a writer", heads, rows, "Figure 1: percent of the throughput alone and without control.")


def _commits(waited: Sequence[Commits]) -> Table:
    rows = tuple((each.control, _ms(each.alone_ms), _ms(each.beside_ms), f"{each.tar_mb_s:.1f}") for each in waited)
    note = (
        "99th percentiles of five seconds each, in ms. The first one beside tar, in which limits settle, is in no bar. "
        "Writes that are more than 0.1 s late are left out. tar MB/s: the archive at the end, partly in the page cache."
    )
    return Table("Durable writes of 4 KiB, fifty a second", ("control", "alone", "beside tar", "tar MB/s"), rows, note)


def _ms(figures: Sequence[float | None]) -> str:
    return ", ".join(DASH if each is None else f"{each:.0f}" for each in figures)


def _course(runs: Sequence[Run], course: str, capacity_mb_s: float) -> Table:
    of = {run.control: run for run in runs if run.course == course}
    steps = next(iter(of.values())).steps
    rows = tuple(
        (_wished(wants, capacity_mb_s), *(_step(run, n) for run in of.values())) for n, (_, wants) in enumerate(steps)
    )
    note = (
        "As Figures 3 to 5, for each period: MB/s of App1 and App2; medians of their 95th percentiles in ms; mean "
        "number of requests at the device."
    )
    return Table(f"App1 {course}", ("wanted MB/s", *of), rows, note)


def _step(run: Run, number: int) -> str:
    seconds = run.of_steps[number]
    begins = sum(length for length, _ in run.steps[:number])
    depth = fmean(run.in_flight[begins : begins + len(seconds)])
    moved = [fmean(second.mb_s[each] for second in seconds) for each in (FIRST, SECOND)]
    late = [[ms for second in seconds if (ms := second.p95_ms[each]) is not None] for each in (FIRST, SECOND)]
    mb_s = " + ".join(f"{each:.1f}" for each in moved)
    p95_ms = ", ".join(f"{median(each):.0f}" if each else DASH for each in late)
    return f"{mb_s}; {p95_ms}; {depth:.1f}"


def _wished(wants: Wants, capacity_mb_s: float) -> str:
    return " + ".join("all" if share is None else f"{share * capacity_mb_s:.1f}" for share in wants)


def _percent(share: float | None) -> str:
    return DASH if share is None else f"{100 * share:.0f}"
