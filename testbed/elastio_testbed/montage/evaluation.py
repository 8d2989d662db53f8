"""`montage`: the time of a workflow at six bandwidths, and what one profile predicts of it. Pure.

Published (Figure 5): from 100 to 2000 Mb/s the time falls to a quarter, and 4000 Mb/s save about 6 % more. Both follow
from T(B) = C + V/B with V/C = 375 Mb/s. The workflow here has this proportion of data and computing, and the volume has
the published bandwidths, all by the same factor.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from elastio.strategy.bandwidth import STEP, Curve
from elastio.units import MB
from elastio_testbed.bars import Bar

PUBLISHED_MBIT_S = (100, 300, 500, 900, 2000, 4000)
LOWEST, PROFILED, BEST, DOUBLED = 100, 500, 2000, 4000
# Times in the text on Figure 5, over that at 2000 Mb/s.
PUBLISHED_TIMES = {LOWEST: 4.0, BEST: 1.0, DOUBLED: 0.94}
# The published proportion of data and computing.
DATA_OVER_COMPUTING_MBIT_S = 375.0
# Without it the workflow took 4.07 times as long at 100 as at 2000 Mb/s, in two runs: at high bandwidths copies take
# less than V/B.
LONGER = 1.033
# With it the published proportion has its inflection at 1969 Mb/s.
STOP_GAIN = 0.08
# A published Mb/s in MB/s of the volume, at bandwidth 1.
MB_S_PER_MBIT_S = 0.016
# Staged for each pixel of the raw images, all steps together: measured, with nine images.
BYTES_PER_PIXEL = 96.6
SIDE = 3  # images along each side of the region
PIXELS = 396  # of an image along each side, at scale and bandwidth 1
LEAST_PIXELS = 64
# How the computing is divided among the steps; all of them have to end within their part.
PARTS = {"project": 0.14, "differ": 0.27, "model": 0.16, "correct": 0.30, "add": 0.13}


def pixels(scale: float, bandwidth: float) -> int:
    """Of an image, along each side: data is scaled by both factors."""
    return max(LEAST_PIXELS, round(PIXELS * math.sqrt(scale * bandwidth)))


def staged_bytes(scale: float, bandwidth: float) -> float:
    """What all steps read and write."""
    return BYTES_PER_PIXEL * (SIDE * pixels(scale, bandwidth)) ** 2


def mb_s(mbit_s: float, bandwidth: float) -> float:
    """The bandwidth of the volume that stands for a published one."""
    return mbit_s * MB_S_PER_MBIT_S * bandwidth


def compute_s(scale: float, bandwidth: float) -> dict[str, float]:
    """Of each step, so that the times have the published proportion."""
    total_s = LONGER * staged_bytes(scale, bandwidth) / MB / mb_s(DATA_OVER_COMPUTING_MBIT_S, bandwidth)
    return {name: round(part * total_s, 3) for name, part in PARTS.items()}


@dataclass(frozen=True, slots=True)
class Run:
    """The workflow at one bandwidth. `predicted_s` None: this run was profiled to predict the others.

    `workflow_s`: without the start of its program; None: not kept. `over_s`: by how much steps computed longer than
    their part. `wait_classes_s`: seconds by the share of them that was waited, in ten classes. `mosaic`: the CRC-32 of
    the result.
    """

    mbit_s: int
    mb_s: float
    seconds: float
    predicted_s: float | None
    over_s: float
    wait_classes_s: tuple[float, ...]
    mosaic: str
    workflow_s: float | None = None

    @property
    def error_pct(self) -> float | None:
        return None if self.predicted_s is None else 100 * (self.predicted_s / self.seconds - 1)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def run_of_json(found: Mapping[str, Any]) -> Run:
    """The run of a stored result."""
    return Run(**{**found, "wait_classes_s": tuple(found["wait_classes_s"])})


def curve_of(profile: Mapping[str, Any]) -> Curve | None:
    """The curve in the document of `elastio profile --json`; None: nothing waited for bandwidth."""
    measured, waited_s = profile["measured_mb_s"], profile["waited_s"]["likely"]
    if measured is None or not profile["curve"]:
        return None
    return Curve(profile["curve"][0]["time_s"] - waited_s, waited_s, measured * waited_s)


@dataclass(frozen=True, slots=True)
class Burst:
    """The workflow on an adaptive device; `mb_s`: what its cache offers to applications."""

    mb_s: float
    workflow_s: float
    mosaic: str


@dataclass(frozen=True, slots=True)
class Adaptive:
    """Bursts one after the other, and what all volumes cost meanwhile, pauses included.

    `learned_mb_s`: of the cache that the next burst would have. `static_agbs`: of a static volume at
    the published inflection.
    """

    bursts: tuple[Burst, ...]
    learned_mb_s: float
    cache_agbs: float
    backing_agbs: float
    static_agbs: float

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Found:
    """What has been measured so far. `best_mb_s`: the inflection in the curve of `profile`, which is a document."""

    runs: tuple[Run, ...] = ()
    best_mb_s: float | None = None
    profile: Mapping[str, Any] = field(default_factory=dict)
    adaptive: Adaptive | None = None


def figures(found: Found) -> dict[str, float | None]:
    """The keys of the result; None where a run that is needed has not been made yet."""
    seconds = {run.mbit_s: run.seconds for run in found.runs}
    errors = [abs(run.error_pct) for run in found.runs if run.error_pct is not None]
    is_whole = {run.mbit_s for run in found.runs if run.error_pct is not None} == {*PUBLISHED_MBIT_S} - {PROFILED}
    return {
        "lowest_over_best": _over(seconds.get(LOWEST), seconds.get(BEST)),
        "doubling_saves_pct": _negative(_more_pct(seconds.get(DOUBLED), seconds.get(BEST))),
        "worst_prediction_error_pct": max(errors) if is_whole else None,
        **_adaptive_figures(found),
    }


def _adaptive_figures(found: Found) -> dict[str, float | None]:
    """Of the last burst, which has learned most, and of what all volumes cost."""
    adaptive = found.adaptive
    best_s = {run.mbit_s: run.workflow_s for run in found.runs}.get(BEST)
    return {
        "learned_over_best": None if adaptive is None else _over(adaptive.learned_mb_s, found.best_mb_s),
        "overhead_vs_static_best_pct": None if adaptive is None else _more_pct(adaptive.bursts[-1].workflow_s, best_s),
        "agbs_vs_static_best_pct": None
        if adaptive is None
        else _more_pct(adaptive.cache_agbs + adaptive.backing_agbs, adaptive.static_agbs),
    }


def _over(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one / other


def _more_pct(one: float | None, other: float | None) -> float | None:
    over = _over(one, other)
    return None if over is None else 100 * (over - 1)


def _negative(value: float | None) -> float | None:
    return None if value is None else -value


def bars(found: Found) -> list[Bar]:
    """What has to be."""
    known = figures(found)
    bursts = () if found.adaptive is None else found.adaptive.bursts
    mosaics = {run.mosaic for run in found.runs} | {burst.mosaic for burst in bursts}
    return [
        Bar(f"time at {LOWEST} over {BEST} Mb/s", known["lowest_over_best"], least=3.5, published=4.0),
        Bar(f"saved from {BEST} to {DOUBLED} Mb/s, %", known["doubling_saves_pct"], most=8.0, published=6.0),
        Bar(f"worst prediction from {PROFILED} Mb/s, %", known["worst_prediction_error_pct"], most=5.0),
        Bar("learned bandwidth over the inflection", known["learned_over_best"], least=1 / STEP, most=STEP),
        Bar(f"adaptive, time more than static at {BEST} Mb/s, %", known["overhead_vs_static_best_pct"], most=3.0),
        Bar(f"adaptive, AGBs more than static at {BEST} Mb/s, %", known["agbs_vs_static_best_pct"], most=-40.0),
        Bar("different mosaics", float(len(mosaics)) if mosaics else None, most=1.0),
    ]
