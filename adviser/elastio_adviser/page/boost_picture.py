"""The picture of one boost: throughput against both bandwidths, dirty data, and the phases behind them. Pure.

It is drawn from the ledger: when each step of the cycle was seen, and the samples of the device around it. Times are
seconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, tzinfo
from xml.etree.ElementTree import Element

from elastio.accounting.history import SampleRun
from elastio.accounting.rows import CycleRow
from elastio.units import GIB, MB
from elastio_adviser.page.markup import tag
from elastio_adviser.page.plot import Panel, area, band, grid, limit, line, nice

# About the number of columns that the eye can tell apart; it bounds the size of a picture.
MOST_BINS = 300
# Shown before and after the boost, as a share of it, and at least so many seconds.
MARGIN, LEAST_MARGIN_S = 0.05, 10.0
WIDTH, LEFT, RIGHT = 960.0, 64.0, 16.0


@dataclass(frozen=True, slots=True)
class Course:
    """One boost as the ledger has it. `times`: when each step was seen. `backing_mb_s` None: not known."""

    row: CycleRow
    times: Mapping[str, float]
    runs: tuple[SampleRun, ...]
    backing_mb_s: float | None
    until: float

    @property
    def end(self) -> float:
        """The end of the bill, or of the report if it is open."""
        return max(self.row.started_wall + 1.0, *self.row.span(self.until))

    @property
    def window(self) -> tuple[float, float]:
        """What the picture shows."""
        return window(self.row, self.until)


@dataclass(frozen=True, slots=True)
class Bin:
    """One column. None: nothing was observed; no dirty data was recorded."""

    at: float
    total_mb_s: float | None
    dirty_gib: float | None


def window(row: CycleRow, until: float) -> tuple[float, float]:
    """The boost and a margin on both sides."""
    begin, end = row.started_wall, max(row.started_wall + 1.0, *row.span(until))
    margin = max(LEAST_MARGIN_S, MARGIN * (end - begin))
    return begin - margin, min(until, end + margin)


def phases(course: Course) -> list[tuple[float, float, str]]:
    """Begin, end and name of each phase. If the load returned during a flush, only the last flush is one."""
    times, end = course.times, course.end
    clean = times.get("clean", times.get("detached", end))
    starts = (
        ("attaching", course.row.started_wall),
        ("boosting", times.get("boosted")),
        ("flushing", times.get("quiet")),
        ("detaching", clean if "boosted" in times else None),
    )
    known = [(name, min(at, end)) for name, at in starts if at is not None]
    found = []
    for (name, begin), after in zip(known, [*(at for _, at in known[1:]), end], strict=True):
        if after > begin:
            found.append((begin, after, name))
    return found


def bins(runs: Sequence[SampleRun], begin: float, end: float) -> list[Bin]:
    """The samples in at most MOST_BINS columns of equal length; bytes are kept, those outside excluded."""
    count = int(min(MOST_BINS, max(2.0, end - begin)))
    step = (end - begin) / count
    moved, seconds = [0.0] * count, [0.0] * count
    dirty: list[int | None] = [None] * count
    for run in runs:
        first, last = (min(count - 1, max(0, int((at - begin) / step))) for at in (run.begun_wall, run.ended_wall))
        for number in range(first, last + 1):
            low = begin + number * step
            shared = min(run.ended_wall, low + step) - max(run.begun_wall, low)
            if shared > 0:
                seconds[number] += shared
                moved[number] += (run.read_bytes + run.written_bytes) * shared / run.seconds
                dirty[number] = run.dirty_bytes
    return [
        Bin(
            begin + (number + 0.5) * step,
            moved[number] / seconds[number] / MB if seconds[number] > 0 else None,
            None if (bytes_ := dirty[number]) is None else bytes_ / GIB,
        )
        for number in range(count)
    ]


def picture(course: Course, tz: tzinfo) -> Element:
    """The whole picture; without samples it has the phases and the largest amount of dirty data alone."""
    begin, end = course.window
    columns = bins(course.runs, begin, end)
    height = 300.0
    made = tag("svg", viewBox=f"0 0 {WIDTH:g} {height:g}", role="img", class_="boost")
    about = f"Throughput, dirty data and phases of the boost of {_clock(course.row.started_wall, tz)}"
    made.append(tag("title", about))
    made.extend(_throughput(course, columns, begin, end))
    made.extend(_dirty(course, columns, begin, end))
    made.extend(_times(begin, end, height, tz))
    return made


def _throughput(course: Course, columns: Sequence[Bin], begin: float, end: float) -> list[Element]:
    row = course.row
    seen = max((c.total_mb_s or 0.0 for c in columns), default=0.0)
    most, step = nice(max(seen, row.bandwidth_mb_s, course.backing_mb_s or 0.0) * 1.05)
    panel = Panel(LEFT, 34, WIDTH - LEFT - RIGHT, 130, begin, end, most)
    made = [*_bands(course, panel), *grid(panel, step, "MB/s"), *_names(course, panel)]
    points = [(c.at, c.total_mb_s) for c in columns]
    made += [area(panel, points, "application"), line(panel, points, "application")]
    made += limit(panel, row.bandwidth_mb_s, f"cache {row.bandwidth_mb_s:.0f} MB/s", "cache")
    if course.backing_mb_s is not None:
        made += limit(panel, course.backing_mb_s, f"backing {course.backing_mb_s:.0f} MB/s", "backing")
    return made


def _dirty(course: Course, columns: Sequence[Bin], begin: float, end: float) -> list[Element]:
    peak = course.row.peak_dirty_bytes / GIB
    most, step = nice(max(peak, *(c.dirty_gib or 0.0 for c in columns), 0.1) * 1.05)
    panel = Panel(LEFT, 206, WIDTH - LEFT - RIGHT, 60, begin, end, most)
    points = [(c.at, c.dirty_gib) for c in columns]
    made = [*_bands(course, panel), *grid(panel, step if most / step <= 3 else 2 * step, "dirty GiB")]
    if any(c.dirty_gib is not None for c in columns):
        made += [area(panel, points, "dirty"), line(panel, points, "dirty")]
        return made
    return made + limit(panel, peak, f"at most {peak:.1f} GiB; its course was not recorded", "dirty")


def _bands(course: Course, panel: Panel) -> list[Element]:
    return [band(panel, *phase) for phase in phases(course)]


def _names(course: Course, panel: Panel) -> list[Element]:
    """The names of the phases above the panel, each where it fits; the legend of the page has all."""
    made = []
    for begin, end, name in phases(course):
        left, right = panel.x(begin), panel.x(end)
        if right - left >= 7.5 * len(name):
            made.append(tag("text", name, x=round((left + right) / 2, 1), y=panel.top - 8, class_="axis middle"))
    return made


def _times(begin: float, end: float, height: float, tz: tzinfo) -> list[Element]:
    """Five moments below the panels."""
    made = []
    for number in range(5):
        at = begin + (end - begin) * number / 4
        x = LEFT + (WIDTH - LEFT - RIGHT) * number / 4
        side = "start" if number == 0 else "end" if number == 4 else "middle"
        made.append(tag("text", _clock(at, tz, "%H:%M:%S"), x=round(x, 1), y=height - 14, class_=f"axis {side}"))
    return made


def _clock(wall: float, tz: tzinfo, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    return datetime.fromtimestamp(wall, tz).strftime(form)
