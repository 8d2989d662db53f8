"""`montage`: the time of a workflow at six bandwidths, and what one profile predicts of it. Pure.

Published (Figure 5): from 100 to 2000 Mb/s the time falls to a quarter, and 4000 Mb/s save about 6 % more. Both follow
from T(B) = C + V/B with V/C = 375 Mb/s. The workflow here has this proportion of data and computing, and the volume has
the published bandwidths, all by the same factor.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from elastio.core.inflection import Curve
from elastio.units import MB
from elastio_testbed.bars import Bar

PUBLISHED_MBIT_S = (100, 300, 500, 900, 2000, 4000)
LOWEST, PROFILED, BEST, DOUBLED = 100, 500, 2000, 4000
# Times in the text on Figure 5, over that at 2000 Mb/s.
PUBLISHED_TIMES = {LOWEST: 4.0, BEST: 1.0, DOUBLED: 0.94}
# The published proportion of data and computing.
DATA_OVER_COMPUTING_MBIT_S = 375.0
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
    """Of each step, so that data and computing have the published proportion."""
    total_s = staged_bytes(scale, bandwidth) / MB / mb_s(DATA_OVER_COMPUTING_MBIT_S, bandwidth)
    return {name: round(part * total_s, 3) for name, part in PARTS.items()}


@dataclass(frozen=True, slots=True)
class Run:
    """The workflow at one bandwidth. `predicted_s` None: this run was profiled to predict the others.

    `over_s`: by how much steps computed longer than their part. `wait_classes_s`: seconds by the share of them that was
    waited, in ten classes. `mosaic`: the checksum of the result.
    """

    mbit_s: int
    mb_s: float
    seconds: float
    predicted_s: float | None
    over_s: float
    wait_classes_s: tuple[float, ...]
    mosaic: str

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


def figures(runs: Sequence[Run]) -> dict[str, float | None]:
    """The keys of the result; None where a run that is needed has not been made yet."""
    seconds = {run.mbit_s: run.seconds for run in runs}
    errors = [abs(run.error_pct) for run in runs if run.error_pct is not None]
    is_whole = {run.mbit_s for run in runs if run.error_pct is not None} == {*PUBLISHED_MBIT_S} - {PROFILED}
    return {
        "lowest_over_best": _over(seconds.get(LOWEST), seconds.get(BEST)),
        "doubling_saves_pct": _saved_pct(seconds.get(BEST), seconds.get(DOUBLED)),
        "worst_prediction_error_pct": max(errors) if is_whole else None,
    }


def _over(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one / other


def _saved_pct(before_s: float | None, after_s: float | None) -> float | None:
    return None if before_s is None or after_s is None else 100 * (1 - after_s / before_s)


def bars(runs: Sequence[Run]) -> list[Bar]:
    """What has to be."""
    found = figures(runs)
    mosaics = float(len({run.mosaic for run in runs})) if runs else None
    return [
        Bar(f"time at {LOWEST} over {BEST} Mb/s", found["lowest_over_best"], least=3.5, published=4.0),
        Bar(f"saved from {BEST} to {DOUBLED} Mb/s, %", found["doubling_saves_pct"], most=8.0, published=6.0),
        Bar(f"worst prediction from {PROFILED} Mb/s, %", found["worst_prediction_error_pct"], most=5.0),
        Bar("different mosaics", mosaics, most=1.0),
    ]
