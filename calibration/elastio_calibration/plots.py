"""Plots: the trade-off over cache sizes (as in figures 6a and 6b of the article), a sweep, a trace, a profiled run.

Titles and names come from outside: they are drawn as they are (`parse_math=False`), never as mathematics of matplotlib.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from elastio_calibration.errors import CalibrationError
from elastio_calibration.sweep import Step
from elastio_cli.charts import caption

COLOURS = {"static-slow": "#b3541e", "static-fast": "#1b4f8f", "adaptive": "#2e7d4f"}
SHADES = ("#2e7d4f", "#1b4f8f", "#b3541e", "#7d4fb3")


def trade_off(rows: Sequence[dict[str, Any]], title: str, path: Path) -> None:
    """Completion time and AGBs over M(Sc), relative to static-fast; a ring marks the recommended size."""
    figure, left, right = _panels()
    for number, mb_s in enumerate(sorted({r["cache_mb_s"] for r in rows})):
        own = [r for r in rows if r["cache_mb_s"] == mb_s]
        for axes, key in ((left, "completion_of_fast"), (right, "agbs_of_fast")):
            colour = SHADES[number % len(SHADES)]
            axes.plot([r["cache_gb"] for r in own], [r[key] for r in own], "o-", color=colour, label=f"{mb_s:g} MB/s")
            chosen = [(r["cache_gb"], r[key]) for r in own if r["chosen"]]
            axes.plot(*zip(*chosen, strict=True), "o", ms=14, mfc="none", color="black") if chosen else None
    left.set(xlabel="cache for checkpoints, GB", ylabel="completion time / static-fast")
    right.set(xlabel="cache for checkpoints, GB", ylabel="AGBs / static-fast")
    left.legend(frameon=False, fontsize=8)
    _save(figure, title, path)


def sweep(steps: Sequence[Step], symbol: str, title: str, path: Path) -> None:
    """Completion time and AGBs of the three set-ups over the varied value, with their intervals."""
    figure, left, right = _panels()
    for name, colour in COLOURS.items():
        known = [(s.value, f) for s in steps for f in s.forecasts if f.setup == name]
        for axes, key in ((left, "completion_s"), (right, "agbs")):
            found = [(value, getattr(f, key)) for value, f in known]
            axes.plot([v for v, _ in found], [i.value for _, i in found], ".-", color=colour, label=name)
            sure = [(v, i.low, i.high) for v, i in found if i.low is not None]
            if sure:
                at, low, high = zip(*sure, strict=True)
                axes.fill_between(at, low, high, color=colour, alpha=0.2, linewidth=0)
    for axes, what in ((left, "completion, s"), (right, "AGBs")):
        axes.set_xlabel(caption(symbol), parse_math=False)
        axes.set_ylabel(what)
    left.legend(frameon=False, fontsize=8)
    _save(figure, title, path)


def timeline(runs: Mapping[str, Sequence[tuple[float, float, float]]], title: str, path: Path) -> None:
    """For each policy: throughput of the adaptive device (MB/s) and size of the cache (GB) over seconds."""
    figure = Figure(figsize=(11, 2.4 * len(runs) + 0.8))
    for number, (name, points) in enumerate(runs.items(), 1):
        axes = figure.add_subplot(len(runs), 1, number)
        times = [at for at, _, _ in points]
        axes.plot(times, [rate for _, rate, _ in points], color=COLOURS["static-fast"], linewidth=1)
        axes.set_ylabel("MB/s")
        axes.set_title(caption(name), loc="left", fontsize=10, parse_math=False)
        size = axes.twinx()
        size.fill_between(times, [held for _, _, held in points], step="post", alpha=0.3, color=COLOURS["adaptive"])
        size.set_ylabel("cache GB")
        size.set_ylim(bottom=0)
    axes.set_xlabel("seconds")
    _save(figure, title, path)


def bandwidth(
    points: Sequence[tuple[float, float, float, float]], inflection_mb_s: float | None, title: str, path: Path
) -> None:
    """The time of a run over bandwidth: MB/s, then seconds at least, likely and at most; a line at the inflection."""
    figure = Figure(figsize=(7, 4))
    axes = figure.add_subplot(1, 1, 1)
    axes.grid(alpha=0.25)
    mb_s, least, likely, most = zip(*points, strict=True)
    axes.plot(mb_s, likely, color=COLOURS["static-fast"])
    axes.fill_between(mb_s, least, most, color=COLOURS["static-fast"], alpha=0.2, linewidth=0)
    if inflection_mb_s is not None:
        axes.axvline(inflection_mb_s, color=COLOURS["adaptive"], linestyle="--", label=f"{inflection_mb_s:.3g} MB/s")
        axes.legend(frameon=False, fontsize=8, title="inflection")
    axes.set(xlabel="bandwidth, MB/s", ylabel="time, s", xscale="log")
    axes.set_ylim(bottom=0)
    _save(figure, title, path)


def _panels() -> tuple[Figure, Axes, Axes]:
    figure = Figure(figsize=(11, 4))
    left, right = figure.add_subplot(1, 2, 1), figure.add_subplot(1, 2, 2)
    for axes in (left, right):
        axes.grid(alpha=0.25)
    return figure, left, right


def _save(figure: Figure, title: str, path: Path) -> None:
    """Raises CalibrationError where the file cannot be written or its suffix is not an image format."""
    figure.suptitle(caption(title), fontsize=11, parse_math=False)
    figure.tight_layout()
    try:
        figure.savefig(path, dpi=110)
    except OSError as error:
        raise CalibrationError(f"{path} cannot be written: {error.strerror or error}") from error
    except ValueError as error:
        raise CalibrationError(f"{path} cannot be drawn: {error}") from error
