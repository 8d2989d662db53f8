"""The result of `montage` as tables. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from elastio_testbed.montage.evaluation import BEST, PROFILED, PUBLISHED_TIMES, Run, run_of_json
from elastio_testbed.tables import Table

DASH = "-"


def bandwidths(document: Mapping[str, Any]) -> list[Table]:
    """Of each run the time, beside the prediction and what was published; and how its time was waited."""
    runs = [run_of_json(each) for each in document["runs"]]
    best_s = next((run.seconds for run in runs if run.mbit_s == BEST), None)
    heads = ("published Mb/s", "MB/s", "time s", "predicted s", "error %", f"over {BEST} Mb/s", "published")
    note = f"Figure 5. Predicted from the profile of the run at {PROFILED} Mb/s."
    times = Table("Time over bandwidth", heads, tuple(_time(run, best_s) for run in runs), note)
    classes = ("published Mb/s", *(f"{low}-{low + 10} %" for low in range(0, 100, 10)))
    waits = Table(
        "Time by the share of it that was waited",
        classes,
        tuple((str(run.mbit_s), *_shares(run)) for run in runs),
        "Figure 6, in percent of the time.",
    )
    return [times, waits, *_adaptive(document)]


def _adaptive(document: Mapping[str, Any]) -> list[Table]:
    """Of the bursts on the adaptive device, if there were any."""
    adaptive = document.get("adaptive")
    if adaptive is None:
        return []
    heads = ("burst", "cache MB/s", "time s")
    rows = tuple(
        (str(n), f"{burst['mb_s']:.1f}", f"{burst['workflow_s']:.1f}") for n, burst in enumerate(adaptive["bursts"], 1)
    )
    note = (
        f"The next cache would have {adaptive['learned_mb_s']:.1f} MB/s; the inflection of the profile is at "
        f"{document['best_mb_s']:.1f}. AGBs: caches {adaptive['cache_agbs']:.0f}, slow volume "
        f"{adaptive['backing_agbs']:.0f}; a static volume at {BEST} Mb/s {adaptive['static_agbs']:.0f}."
    )
    return [Table("Learned bandwidth", heads, rows, note)]


def _time(run: Run, best_s: float | None) -> tuple[str, ...]:
    published = PUBLISHED_TIMES.get(run.mbit_s)
    return (
        str(run.mbit_s),
        f"{run.mb_s:g}",
        f"{run.seconds:.1f}",
        DASH if run.predicted_s is None else f"{run.predicted_s:.1f}",
        DASH if run.error_pct is None else f"{run.error_pct:+.1f}",
        DASH if best_s is None else f"{run.seconds / best_s:.2f}",
        DASH if published is None else f"{published:.2f}",
    )


def _shares(run: Run) -> list[str]:
    total_s = sum(run.wait_classes_s)
    return [f"{100 * each / total_s:.0f}" if total_s else DASH for each in run.wait_classes_s]
