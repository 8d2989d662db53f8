"""One panel of an SVG picture: its scales, grid, bands, lines and bars. Pure.

Positions are those of the picture: x to the right, y downwards, in its own units. Colours are classes; the page has
them for light, dark and paper.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import Element

from elastio_adviser.page.markup import tag


@dataclass(frozen=True, slots=True)
class Panel:
    """A rectangle in which `begin` to `end` goes to the right and 0 to `most` upwards."""

    left: float
    top: float
    width: float
    height: float
    begin: float
    end: float
    most: float

    def x(self, value: float) -> float:
        span = self.end - self.begin
        share = (value - self.begin) / span if span > 0 else 0.0
        return round(self.left + self.width * min(1.0, max(0.0, share)), 1)

    def y(self, value: float) -> float:
        share = value / self.most if self.most > 0 else 0.0
        return round(self.top + self.height * (1 - min(1.0, max(0.0, share))), 1)

    @property
    def bottom(self) -> float:
        return self.top + self.height


def nice(most: float) -> tuple[float, float]:
    """The end of an axis that begins at 0, and the step of its grid: at most five steps of 1, 2 or 5 times a power."""
    if most <= 0:
        return 1.0, 1.0
    power = 10.0 ** math.floor(math.log10(most / 5))
    step = next(power * factor for factor in (1, 2, 5, 10, 20) if most <= 5 * power * factor * (1 + 1e-9))
    return step * min(5, math.ceil(most / step - 1e-9)), step


def grid(panel: Panel, step: float, unit: str) -> list[Element]:
    """Horizontal lines at each step with their values; the unit is above the axis."""
    made = [tag("text", unit, x=panel.left - 6, y=panel.top - 12, class_="axis end")]
    for number in range(round(panel.most / step) + 1):
        value = number * step
        y = panel.y(value)
        made.append(tag("line", x1=panel.left, x2=panel.left + panel.width, y1=y, y2=y, class_="grid"))
        text = f"{value:g}" if step < 1 else f"{value:,.0f}"
        made.append(tag("text", text, x=panel.left - 6, y=y + 4, class_="axis end"))
    return made


def band(panel: Panel, begin: float, end: float, kind: str) -> Element:
    """A stretch of the panel, from its top to its bottom."""
    left, right = panel.x(begin), panel.x(end)
    width = round(right - left, 1)
    return tag("rect", x=left, y=panel.top, width=width, height=panel.height, class_=f"band {kind}")


def line(panel: Panel, points: Iterable[tuple[float, float | None]], kind: str) -> Element:
    """A line through the points; it has a gap where a value is None."""
    path, pen = [], "M"
    for at, value in points:
        if value is None:
            pen = "M"
            continue
        path.append(f"{pen}{panel.x(at):g} {panel.y(value):g}")
        pen = "L"
    return tag("path", d="".join(path), class_=f"line {kind}")


def area(panel: Panel, points: Sequence[tuple[float, float | None]], kind: str) -> Element:
    """The area below the points, stretch by stretch between gaps."""
    path: list[str] = []
    stretch: list[tuple[float, float]] = []
    for at, value in (*points, (panel.end, None)):
        if value is not None:
            stretch.append((at, value))
            continue
        if len(stretch) > 1:
            tops = "".join(f"L{panel.x(a):g} {panel.y(v):g}" for a, v in stretch)
            first, last = panel.x(stretch[0][0]), panel.x(stretch[-1][0])
            path.append(f"M{first:g} {panel.bottom:g}{tops}L{last:g} {panel.bottom:g}Z")
        stretch = []
    return tag("path", d="".join(path), class_=f"area {kind}")


def limit(panel: Panel, value: float, text: str, kind: str) -> list[Element]:
    """A dashed line across the panel with its name at the right end, above it."""
    y = panel.y(value)
    right = panel.left + panel.width
    return [
        tag("line", x1=panel.left, x2=right, y1=y, y2=y, class_=f"limit {kind}"),
        tag("text", text, x=right - 4, y=y - 4, class_=f"name end {kind}"),
    ]
