"""The picture of a run: throughput per device, cache size and phase over time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from elastio_testbed.experiment import Setup
from elastio_testbed.lvmcache import FAST_SERIAL, MAPPED_NAME
from elastio_testbed.result import Result
from elastio_testbed.run import Evidence

SECTOR_MB = 512 / 1e6
CACHED = (Setup.ADAPTIVE, Setup.LVMCACHE)
COLOURS = {"application": "#1b4f8f", "backing volume": "#b3541e", "cache volume": "#2e7d4f"}
PHASE_COLOURS = {
    "attaching": "#f2d28b",
    "boosting": "#a8d5a2",
    "flushing": "#a9c7e8",
    "detaching": "#d9c3e6",
    "faulted": "#e8a0a0",
}


def draw(result: Result, evidence: dict[Setup, Evidence], path: Path) -> None:
    """One panel per set-up, on one time axis; under the adaptive one its cache size and phase."""
    setups = [s.setup for s in result.setups]
    rows = len(setups) + (1 if Setup.ADAPTIVE in setups else 0)
    figure, axes = plt.subplots(rows, 1, sharex=True, figsize=(11, 2.3 * rows + 0.8), squeeze=False)
    panels = list(axes[:, 0])
    for panel, setup in zip(panels, setups, strict=False):
        _throughput(panel, evidence[setup], cached=setup in CACHED)
        done = result.of(setup)
        done_s = f", completed in {done.completion_s:.0f} s" if done else ""
        panel.set_title(f"{setup}{done_s}", loc="left", fontsize=10)
        panel.set_ylabel("MB/s")
    if Setup.ADAPTIVE in setups:
        _cache_size(panels[-1], evidence[Setup.ADAPTIVE])
        _phases(panels[setups.index(Setup.ADAPTIVE)], evidence[Setup.ADAPTIVE])
    panels[-1].set_xlabel("seconds since the first dump began")
    shown = panels[setups.index(Setup.ADAPTIVE)] if Setup.ADAPTIVE in setups else panels[0]
    shown.legend(loc="upper right", fontsize=8, ncols=4, frameon=False)
    figure.suptitle(
        f"{result.experiment}, scale {result.scale:g}, bandwidth {result.bandwidth:g}, {result.accelerator}",
        fontsize=11,
    )
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _origin(evidence: Evidence) -> float:
    return float(evidence.dumps[0]["began"]) if evidence.dumps else float(evidence.timeline[0]["t"])


def rates(evidence: Evidence, *, cached: bool) -> dict[str, list[tuple[float, float]]]:
    """Throughput (MB/s, reads and writes) per role over time. A static volume is the application's own."""
    series: dict[str, list[tuple[float, float]]] = {}
    for before, after in zip(evidence.timeline, evidence.timeline[1:], strict=False):
        seconds = after["t"] - before["t"]
        if seconds <= 0:
            continue
        totals = dict.fromkeys(COLOURS, 0.0) if cached else {"application": 0.0}
        for name, counts in after["disks"].items():
            role = _role(name, after["serials"].get(name, ""), evidence.serial, cached=cached)
            if role and name in before["disks"]:
                moved = sum(counts) - sum(before["disks"][name])
                totals[role] += max(0.0, moved) * SECTOR_MB / seconds
        for role, rate in totals.items():
            series.setdefault(role, []).append((after["t"], rate))
    return series


def _role(name: str, serial: str, backing: str, *, cached: bool) -> str:
    if name.startswith("bcache") or serial == MAPPED_NAME:
        return "application"
    if serial == backing:
        return "backing volume" if cached else "application"
    return "cache volume" if serial.startswith("vol") or serial.endswith(FAST_SERIAL) else ""


def _throughput(panel: Axes, evidence: Evidence, *, cached: bool) -> None:
    origin = _origin(evidence)
    for role, points in rates(evidence, cached=cached).items():
        times, values = [t - origin for t, _ in points], [v for _, v in points]
        panel.plot(times, values, label=role, color=COLOURS[role], linewidth=1.1)
    panel.set_xlim(left=-2)
    panel.set_ylim(bottom=0)
    panel.grid(alpha=0.25)


def _cache_size(panel: Axes, evidence: Evidence) -> None:
    origin = _origin(evidence)
    end = float(evidence.timeline[-1]["t"]) if evidence.timeline else origin
    for volume in evidence.volumes:
        begin, gone = volume["created_at"] - origin, (volume["deleted_at"] or end) - origin
        panel.fill_between([begin, gone], volume["size_gb"], step="post", alpha=0.5, color=COLOURS["cache volume"])
    panel.set_ylim(bottom=0)
    panel.set_ylabel("cache GB")
    panel.set_title("cache volume held, as the cloud saw it", loc="left", fontsize=10)
    panel.grid(alpha=0.25)


def _phases(panel: Axes, evidence: Evidence) -> None:
    origin = _origin(evidence)
    changes: list[dict[str, Any]] = [d for d in evidence.decisions if d["from"] != d["to"]]
    ends = [d["wall"] for d in changes[1:]] + [evidence.timeline[-1]["t"] if evidence.timeline else origin]
    labelled: set[str] = set()
    for change, end in zip(changes, ends, strict=True):
        phase = change["to"]
        if phase in PHASE_COLOURS:
            label = None if phase in labelled else phase
            labelled.add(phase)
            span = (change["wall"] - origin, end - origin)
            panel.axvspan(*span, color=PHASE_COLOURS[phase], alpha=0.45, linewidth=0, label=label)
