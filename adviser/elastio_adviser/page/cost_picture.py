"""The picture of the last month: each day's cost, beside that of a volume that is always fast. Pure.

In currency where every price is known, else in AGBs, which are always known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import Element

from elastio.accounting.report import DayLine
from elastio_adviser.page.markup import tag
from elastio_adviser.page.plot import Panel, grid, nice

MOST_DAYS = 31
WIDTH, HEIGHT, LEFT, RIGHT = 960.0, 270.0, 84.0, 16.0


@dataclass(frozen=True, slots=True)
class Bar:
    """One day: the backing volume alone, the caches on top of it, and a volume that is always fast; None: not known."""

    day: str
    backing: float | None
    caches: float | None
    fast: float | None


def bars(days: Sequence[DayLine]) -> tuple[tuple[Bar, ...], str]:
    """The last days and their unit: the currency, or AGBs if no day has all its prices in one currency."""
    shown = days[-MOST_DAYS:]
    currencies = {d.cost.currency for d in shown if d.cost.saved is not None}
    if len(currencies) == 1:
        return tuple(_priced(d, currencies) for d in shown), currencies.pop()
    made = (Bar(d.day.isoformat(), d.cost.backing_agbs, d.cost.cache_agbs, d.cost.static_fast_agbs) for d in shown)
    return tuple(made), "AGBs"


def _priced(line: DayLine, currencies: set[str]) -> Bar:
    cost, day = line.cost, line.day.isoformat()
    if cost.baseline is None or cost.paid is None or cost.currency not in currencies:
        return Bar(day, None, None, None)
    return Bar(day, cost.baseline, cost.paid - cost.baseline, cost.static_fast)


def picture(days: Sequence[DayLine]) -> Element:
    """A bar for each day, with an outline as high as the fast volume; a day whose prices are not known has a `?`."""
    shown, unit = bars(days)
    most, step = nice(max([0.0, *(max((b.backing or 0.0) + (b.caches or 0.0), b.fast or 0.0) for b in shown)]) * 1.02)
    panel = Panel(LEFT, 30, WIDTH - LEFT - RIGHT, HEIGHT - 70, 0, max(len(shown), 7), most)
    made = tag("svg", viewBox=f"0 0 {WIDTH:g} {HEIGHT:g}", role="img", class_="month")
    made.append(tag("title", f"Cost of each day in {unit}, beside a volume that is always fast"))
    made.extend(grid(panel, step, f"{unit} a day"))
    for number, each in enumerate(shown):
        made.extend(_bar(panel, number, each, unit))
    every = 1 + (len(shown) - 1) // 16
    for number, each in enumerate(shown):
        if number % every == 0:
            made.append(tag("text", each.day[5:], x=panel.x(number + 0.5), y=panel.bottom + 18, class_="axis middle"))
    return made


def _bar(panel: Panel, number: int, each: Bar, unit: str) -> list[Element]:
    left, width = panel.x(number + 0.15), round(panel.x(number + 0.85) - panel.x(number + 0.15), 1)
    if each.backing is None or each.caches is None:
        return [tag("text", "?", x=panel.x(number + 0.5), y=panel.bottom - 4, class_="axis middle")]
    fast = "not known" if each.fast is None else f"{each.fast:,.4g}"
    about = f"{each.day}: backing {each.backing:,.4g}, caches {each.caches:,.4g}, always fast {fast} {unit}"
    made = []
    for low, high, kind in (
        (0.0, each.backing, "backing"),
        (each.backing, each.backing + each.caches, "cache"),
        (0.0, each.fast or 0.0, "fast"),
    ):
        y, height = panel.y(high), round(panel.y(low) - panel.y(high), 1)
        if height > 0:
            made.append(tag("rect", tag("title", about), x=left, y=y, width=width, height=height, class_=f"bar {kind}"))
    return made
