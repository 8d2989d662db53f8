"""The picture of a run, drawn by matplotlib: throughput per device, cache size and phase over time."""

from __future__ import annotations

from collections.abc import Mapping
from io import StringIO
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from elastio_cli.charts import caption
from elastio_testbed.files import shown_setups
from elastio_testbed.rates import APPLICATION, BACKING, CACHE
from elastio_testbed.series import Series, from_json
from elastio_testbed.tables import hypervisor_of

COLOURS = {APPLICATION: "#1b4f8f", BACKING: "#b3541e", CACHE: "#2e7d4f"}
PHASE_COLOURS = {
    "attaching": "#f2d28b",
    "boosting": "#a8d5a2",
    "flushing": "#a9c7e8",
    "detaching": "#d9c3e6",
    "faulted": "#e8a0a0",
}


def save(document: Mapping[str, Any], path: Path) -> None:
    """Write the picture of a result to a file, in the format that its suffix names. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draw(document).savefig(path, dpi=110)


def to_svg(document: Mapping[str, Any]) -> str:
    """The picture of a result as an `<svg>` element; empty for a result that was stored without one."""
    if not document.get("picture"):
        return ""
    text = StringIO()
    draw(document).savefig(text, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    return text.getvalue()[text.getvalue().index("<svg") :]


def draw(document: Mapping[str, Any]) -> Figure:
    """One panel per set-up on one time axis, and one with the cache volumes of each that bought any."""
    runs = [from_json(row) for row in document["picture"]]
    bought = [run for run in runs if run.volumes]
    rows = len(runs) + len(bought)
    figure = Figure(figsize=(11, 2.3 * rows + 0.8))
    panels = list(figure.subplots(rows, 1, sharex=True, squeeze=False)[:, 0])
    for panel, run in zip(panels, runs, strict=False):
        _throughput(panel, run)
        completion_s = shown_setups(document)[run.setup]["completion_s"]
        _name(panel, f"{run.setup}, completed in {completion_s:.0f} s")
    for panel, run in zip(panels[len(runs) :], bought, strict=True):
        _cache_size(panel, run)
    panels[-1].set_xlabel("seconds since the set-up's first dump began")
    fullest = max(range(len(runs)), key=lambda n: len(runs[n].rates) + len(runs[n].phases))
    panels[fullest].legend(loc="upper right", fontsize=8, ncols=4, frameon=False)
    title = (
        f"{document['experiment']}, scale {document['scale']:g}, bandwidth {document['bandwidth']:g}, "
        f"{hypervisor_of(document)} ({document['accelerator']})"
    )
    figure.suptitle(caption(title), fontsize=11, parse_math=False)
    figure.tight_layout()
    return figure


def _name(panel: Axes, text: str) -> None:
    """A name comes from a result's file: it is drawn as it is, never as mathematics of matplotlib."""
    panel.set_title(caption(text), loc="left", fontsize=10, parse_math=False)


def _throughput(panel: Axes, run: Series) -> None:
    for role, points in run.rates.items():
        panel.plot([t for t, _ in points], [v for _, v in points], label=role, color=COLOURS[role], linewidth=1.1)
    labelled: set[str] = set()
    for begin, end, phase in run.phases:
        if phase in PHASE_COLOURS:
            label = None if phase in labelled else phase
            labelled.add(phase)
            panel.axvspan(begin, end, color=PHASE_COLOURS[phase], alpha=0.45, linewidth=0, label=label)
    panel.set_xlim(left=-2)
    panel.set_ylim(bottom=0)
    panel.set_ylabel("MB/s")
    panel.grid(alpha=0.25)


def _cache_size(panel: Axes, run: Series) -> None:
    for begin, end, size_gb in run.volumes:
        panel.fill_between([begin, end], size_gb, alpha=0.5, color=COLOURS[CACHE])
    panel.set_ylim(bottom=0)
    panel.set_ylabel("cache GB")
    _name(panel, f"{run.setup}: cache volumes, as the cloud reports them")
    panel.grid(alpha=0.25)
