"""The picture of a run as inline SVG: colours come from the page, so that it is readable in light and dark. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from elastio_testbed.series import Shown

WIDTH, LEFT, RIGHT = 960, 52, 8
PANEL, GAP, TOP, BOTTOM = 104, 34, 26, 40
STEPS = (1, 2, 2.5, 5, 10)


def ticks(most: float, wanted: int = 5) -> list[float]:
    """Round values from 0 to at least `most`, about `wanted` of them."""
    if most <= 0:
        return [0.0, 1.0]
    rough = most / wanted
    power = 10 ** math.floor(math.log10(rough))
    step = next(s * power for s in STEPS if s * power >= rough * 0.999)
    return [n * step for n in range(math.ceil(most / step - 1e-9) + 1)]


def picture(runs: Sequence[Shown]) -> str:
    """One panel of throughput per set-up, one of cache size for each that bought caches, on one axis of time."""
    end_s = max(run.end_s for run in runs)
    bought = [run for run in runs if run.volumes]
    most_mb_s = max((v for run in runs for points in run.rates.values() for _, v in points), default=1.0)
    most_gb = max((size for run in bought for _, _, size in run.volumes), default=1.0)
    panels = [_throughput(run, n, end_s, most_mb_s) for n, run in enumerate(runs)]
    panels += [_volumes(run, len(runs) + n, end_s, most_gb) for n, run in enumerate(bought)]
    height = TOP + len(panels) * (PANEL + GAP) + BOTTOM - GAP
    axis = _time_axis(end_s, height - BOTTOM)
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="Throughput and cache size over time">'
        f"{''.join(panels)}{axis}</svg>"
    )


def _x(seconds: float, end_s: float) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * min(1.0, max(0.0, seconds / end_s))


def _frame(title: str, n: int, most: float, unit: str) -> tuple[float, float, str]:
    """Bottom of the panel, the value at its top, and its title, grid and labels."""
    top = TOP + n * (PANEL + GAP)
    bottom = top + PANEL
    values = ticks(most, 3)
    parts = [f'<text class="name" x="{LEFT}" y="{top - 8}">{escape(title)}</text>']
    for value in values:
        y = bottom - PANEL * value / values[-1]
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="tick" x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>')
    parts.append(f'<text class="tick" x="{WIDTH - RIGHT}" y="{top - 8}" text-anchor="end">{unit}</text>')
    return bottom, values[-1], "".join(parts)


def _throughput(run: Shown, n: int, end_s: float, most: float) -> str:
    bottom, most, frame = _frame(run.setup, n, most, "MB/s")
    bands = [_band(begin, end, end_s, bottom, phase) for begin, end, phase in run.phases if phase != "idle"]
    lines = []
    for role, points in run.rates.items():
        path = " ".join(f"{_x(t, end_s):.1f},{bottom - PANEL * v / most:.1f}" for t, v in points if t >= 0)
        lines.append(f'<polyline class="{role.split()[0]}" points="{path}"/>')
    return f"{''.join(bands)}{frame}{''.join(lines)}"


def _band(begin: float, end: float, end_s: float, bottom: float, phase: str) -> str:
    left, right = _x(begin, end_s), _x(end, end_s)
    return (
        f'<rect class="{escape(phase)}" x="{left:.1f}" y="{bottom - PANEL}" width="{right - left:.1f}" '
        f'height="{PANEL}"><title>{escape(phase)}</title></rect>'
    )


def _volumes(run: Shown, n: int, end_s: float, most: float) -> str:
    bottom, most, frame = _frame(f"{run.setup}: cache volume held, as the cloud saw it", n, most, "GB")
    boxes = []
    for begin, end, size_gb in run.volumes:
        left, right, height = _x(begin, end_s), _x(end, end_s), PANEL * size_gb / most
        boxes.append(
            f'<rect class="held" x="{left:.1f}" y="{bottom - height:.1f}" width="{right - left:.1f}" '
            f'height="{height:.1f}"><title>{size_gb:g} GB for {end - begin:.1f} s</title></rect>'
        )
    return frame + "".join(boxes)


def _time_axis(end_s: float, y: float) -> str:
    labels = [
        f'<text class="tick" x="{_x(t, end_s):.1f}" y="{y + 18}" text-anchor="middle">{t:g}</text>'
        for t in ticks(end_s, 8)
        if t <= end_s
    ]
    middle = (LEFT + WIDTH - RIGHT) / 2
    said = "seconds since the set-up's first dump began"
    return "".join(labels) + f'<text class="tick" x="{middle}" y="{y + 36}" text-anchor="middle">{said}</text>'
