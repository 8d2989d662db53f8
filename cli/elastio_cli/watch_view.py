"""What `elastio watch` shows: from what was seen and the size of the terminal to its lines. Pure.

Theory of operation. A frame has the figures from the top down in the order in which somebody at night needs them: the
phase, what is wrong, throughput against both bandwidths, dirty data, the flush, money, what is waited for. Rows that
are left are filled with charts of the last minutes, one column for each answer, the newest at the right; they are as
wide as the terminal. In a terminal that is too small, lines are cut at the right, and the last ones are left out.

What was seen is the last status, and a point for each time that it was asked for. `at_s` is the clock of the one who
watches, `wall` that of the agent; only differences of the same clock are used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, tzinfo
from itertools import takewhile
from typing import Any

from elastio.control.status import CyclePart, Status
from elastio.units import GIB, format_duration, format_size
from elastio_cli.charts import BLOCKS, Line, Style, Symbols, bar, chart, clean, clip, width, wrap
from elastio_cli.status import rows

# More than any terminal has columns.
MOST_POINTS = 600
# The time left of a flush is estimated from its speed over this time.
SPEED_S = 60.0
SILENT = "silent"


@dataclass(frozen=True, slots=True)
class Point:
    """One question. `phase` SILENT: the agent did not answer, and nothing else is known."""

    at_s: float
    phase: str
    total_mb_s: float | None = None
    dirty_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Watched:
    """`status` is the last that the agent sent, at `seen_s`; `error` why there is none since, empty: there is one.

    The phase began at `phase_since` (wall clock); not `is_exact`: at that time or before.
    """

    status: Status
    points: tuple[Point, ...]
    seen_s: float
    phase_since: float
    is_exact: bool
    error: str = ""

    @classmethod
    def first(cls, status: Status, at_s: float, begun_wall: float | None) -> Watched:
        """After the first answer; `begun_wall`: when the phase began, None: not known."""
        since = status.wall if begun_wall is None else begun_wall
        return cls(status, (_point(status, at_s),), at_s, since, begun_wall is not None)

    def answered(self, status: Status, at_s: float, begun_wall: float | None) -> Watched:
        """After one more answer; `begun_wall` counts where the phase is another one than before."""
        points = (*self.points, _point(status, at_s))[-MOST_POINTS:]
        if phase_of(status) == phase_of(self.status):
            return replace(self, status=status, points=points, seen_s=at_s, error="")
        return replace(Watched.first(status, at_s, begun_wall), points=points)

    def silent(self, error: str, at_s: float) -> Watched:
        """After a question without an answer."""
        return replace(self, points=(*self.points, Point(at_s, SILENT))[-MOST_POINTS:], error=error)

    @property
    def flush_left_s(self) -> float | None:
        """How long the flush still takes at its speed of the last minute; None: no flush, or no speed is known."""
        if self.status.phase != "flushing":
            return None
        last = self.points[-1].at_s
        recent = takewhile(lambda p: p.phase == "flushing" and last - p.at_s <= SPEED_S, reversed(self.points))
        dirty = [(p.at_s, p.dirty_bytes) for p in recent if p.dirty_bytes is not None]
        if not dirty or dirty[0][1] == 0:
            return 0.0 if dirty else None
        (end_s, left), (begin_s, before) = dirty[0], dirty[-1]
        if before <= left or end_s <= begin_s:
            return None
        return left * (end_s - begin_s) / (before - left)


def phase_of(status: Status) -> str:
    """The phase as it is shown: that of an agent that has not read the kernel yet is `starting`."""
    return status.phase if status.recovered else "starting"


def _point(status: Status, at_s: float) -> Point:
    load, backing = status.load, status.backing
    return Point(at_s, phase_of(status), load.read_mb_s + load.write_mb_s, backing.dirty_bytes if backing else None)


def begun_wall(decisions: Sequence[Mapping[str, Any]], phase: str) -> float | None:
    """When the phase began, by the agent's last decisions (oldest first); None: before them, or they do not show it."""
    last = next((d for d in reversed(decisions) if d.get("from") != d.get("to")), None)
    if last is None or last.get("to") != phase or not isinstance(last.get("wall"), int | float):
        return None
    return float(last["wall"])


LABEL, GUTTER, TEXT = 14, 8, 44
# The text behind a longer bar would be too far from its name.
MOST_BAR = 60
MOST_HEIGHT = 14
MARKS = {
    **{"idle": ".", "attaching": "a", "boosting": "B", "flushing": "f", "detaching": "d", "faulted": "!"},
    **{"starting": "s", SILENT: "?"},
}
NOTES = ("paused", "restraint", "capped", "held", "expected")
DEVICE = ("backing", "credits", "cache", "cycle", "learned size", "volumes", "agent")


@dataclass(frozen=True, slots=True)
class Format:
    """The terminal: its size, its characters and time zone, and how often it is drawn. `with_device`: also volumes."""

    columns: int = 80
    rows: int = 24
    tz: tzinfo = UTC
    interval_s: float = 2.0
    symbols: Symbols = BLOCKS
    with_device: bool = False


PHASE_STYLES = {
    **{"idle": Style.HEAD, "boosting": Style.ACTIVE, "flushing": Style.ACTIVE, "faulted": Style.BAD},
    **{"attaching": Style.WARNING, "detaching": Style.WARNING, "starting": Style.WARNING},
}


def frame(seen: Watched, now_s: float, form: Format) -> tuple[Line, ...]:
    """The lines of the terminal, at most `form.rows`, each of at most `form.columns` columns."""
    lines = [*_head(seen, now_s, form), Line(""), *_figures(seen, form)]
    foot = Line(f"every {form.interval_s:g} s; Ctrl-C ends", Style.QUIET)
    left = form.rows - len(lines) - 1
    lines += _charts(seen, left, form)
    lines = [*lines[: max(1, form.rows - 1)], foot][: form.rows]
    return tuple(Line(clip(line.text, form.columns, form.symbols), line.style) for line in lines)


def log_line(seen: Watched) -> str:
    """One line for a log, with the time in UTC: when the agent was asked last."""
    at = datetime.fromtimestamp(seen.status.wall + seen.points[-1].at_s - seen.seen_s, UTC)
    parts = [at.strftime("%Y-%m-%d %H:%M:%SZ")]
    if seen.error:
        return f"{parts[0]}  no answer: {clean(seen.error)}"
    status = seen.status
    parts += [f"{phase_of(status):<9}", _throughput(status), f"{format_size(status.dirty_bytes)} dirty"]
    parts += [text for text in (_flush(seen), _money(status)) if text]
    named = (
        ("fault", status.fault),
        ("waiting for", status.waiting_for),
        ("last error", status.last_error or status.cloud_error),
    )
    parts += [f"{name}: {clean(text)}" for name, text in named if text]
    return "  ".join(parts)


# --- the head ----------------------------------------------------------------------------------------------


def _head(seen: Watched, now_s: float, form: Format) -> list[Line]:
    status, phase = seen.status, phase_of(seen.status)
    lasted = format_duration(max(0.0, status.wall - seen.phase_since))
    begun = _clock(seen.phase_since, form.tz)
    since = f"for {lasted}, since {begun}" if seen.is_exact else f"for at least {lasted}"
    left, right = f"{phase.upper()} {since}", _clock(status.wall, form.tz)
    if width(left) + 1 + len(right) > form.columns:  # a clock that is cut tells less than none
        left, right = f"{phase.upper()} for {lasted}", right.partition(" ")[2]
    space = " " * max(1, form.columns - width(left) - len(right))
    lines = [Line(f"{left}{space}{right}", PHASE_STYLES.get(phase, Style.HEAD))]
    if seen.error:
        silent = format_duration(max(0.0, now_s - seen.seen_s))
        text = f"NO ANSWER for {silent}, asked again every {form.interval_s:g} s"
        lines += [Line(text, Style.BAD), *(Line(t, Style.BAD) for t in _wrapped(seen.error, form))]
    if status.fault:
        lines += _named("fault", status.fault, form, Style.BAD)
    return lines


def _clock(wall: float, tz: tzinfo) -> str:
    return datetime.fromtimestamp(wall, tz).strftime("%Y-%m-%d %H:%M:%S")


def _wrapped(text: str, form: Format, indent: int = 0) -> list[str]:
    lines = wrap(clean(text), max(1, form.columns - indent), 3, form.symbols)
    return [" " * indent + line for line in lines]


def _named(name: str, text: str, form: Format, style: Style = Style.PLAIN) -> list[Line]:
    """A figure, on up to three lines."""
    lines = _wrapped(text, form, LABEL)
    return [Line(f"{name:<{LABEL}}{lines[0][LABEL:]}", style), *(Line(line, style) for line in lines[1:])]


# --- figures -----------------------------------------------------------------------------------------------


def _figures(seen: Watched, form: Format) -> list[Line]:
    status, shown = seen.status, dict(rows(seen.status))
    lines = [
        Line(f"{'throughput':<{LABEL}}{_throughput(status)}"),
        *_bandwidths(status, form),
        *_dirty_lines(seen, form),
    ]
    lines += _named("cost", _money(status), form)
    lines += _named("waiting for", status.waiting_for or "nothing", form)
    for name in NOTES:
        if name in shown:
            lines += _named(name, shown[name], form, Style.WARNING)
    if status.cycle and status.cycle.failure:
        lines += _named("failure", status.cycle.failure, form, Style.BAD)
    if status.cloud_error:
        lines += _named("cloud", status.cloud_error, form, Style.BAD)
    error = "" if status.last_error == status.cloud_error else status.last_error
    lines += _named("last error", error or ("none" if not status.cloud_error else "see cloud"), form)
    if form.with_device:
        lines += [line for name in DEVICE if name in shown for line in _named(name, shown[name], form)]
    if seen.error:
        return [Line(line.text, Style.QUIET) for line in lines]
    return lines


def _throughput(status: Status) -> str:
    load = status.load
    total = load.read_mb_s + load.write_mb_s
    return f"{total:.1f} MB/s (read {load.read_mb_s:.1f}, write {load.write_mb_s:.1f})"


def _bandwidths(status: Status, form: Format) -> list[Line]:
    load, cycle = status.load, status.cycle
    total = load.read_mb_s + load.write_mb_s
    backing = f"of {load.backing_bandwidth_mb_s:.1f} MB/s, boost at {load.threshold * 100:g} %"
    lines = [_bar_line("  of backing", _share(total, load.backing_bandwidth_mb_s), backing, form)]
    if cycle is None:
        return [*lines, Line(f"{'  of cache':<{LABEL}}no cache")]
    text = f"of {cycle.bandwidth_mb_s:.1f} MB/s" + ("" if cycle.boosted_after_s is not None else ", not attached yet")
    return [*lines, _bar_line("  of cache", _share(total, cycle.bandwidth_mb_s), text, form)]


def _dirty_lines(seen: Watched, form: Format) -> list[Line]:
    status, dirty, cycle = seen.status, seen.status.dirty_bytes, seen.status.cycle
    if cycle is None:
        return [Line(f"{'dirty':<{LABEL}}{format_size(dirty)}")]
    text = f"of {format_size(cycle.size_bytes)}: {format_size(dirty)}, peak {format_size(cycle.peak_dirty_bytes)}"
    lines = [_bar_line("dirty", _share(dirty, cycle.size_bytes), text, form)]
    if status.cycle is not None and cycle.flush_progress is not None:
        lines.append(_bar_line("flush", cycle.flush_progress, _left(seen), form))
    return lines


def _bar_line(name: str, share: float, text: str, form: Format) -> Line:
    """A bar that leaves room for its text."""
    room = min(MOST_BAR, max(3, form.columns - LABEL - TEXT - 6))
    return Line(f"{name:<{LABEL}}{bar(share, room, form.symbols)} {share * 100:3.0f} % {text}")


def _share(part: float, whole: float) -> float:
    """At most 99: what is more is as far beyond any reason, and has to fit the line."""
    return min(99.0, part / whole) if whole > 0 else 0.0


def _left(seen: Watched) -> str:
    left_s = seen.flush_left_s
    time = "time left not known yet" if left_s is None else f"about {format_duration(left_s)} left"
    return f"done, {time}"


def _flush(seen: Watched) -> str:
    progress = seen.status.cycle.flush_progress if seen.status.cycle else None
    return "" if progress is None else f"flush {progress * 100:.0f} % {_left(seen)}"


def _money(status: Status) -> str:
    """What the cache costs an hour and has cost so far, and what was spent today: no sum of several currencies."""
    spend = status.spend
    cap = "" if spend.max_cost is None else f" of {spend.max_cost:g}"
    cost = f"in {spend.currency}" if " and " in spend.currency else f"{spend.cost:.4f}{cap} {spend.currency}".rstrip()
    boosts = f"{spend.boosts}" + ("" if spend.max_boosts is None else f" of {spend.max_boosts}")
    today = f"today {cost}, {boosts} boost{'s' * (boosts != '1')}"
    if not spend.known:
        today = "today not known: the ledger cannot be read"
    return "; ".join([*([] if status.cycle is None else _cycle_money(status.cycle)), today])


def _cycle_money(cycle: CyclePart) -> list[str]:
    if cycle.price_per_hour is None:
        return ["no price is known" if cycle.volume_id else "nothing is bought yet"]
    spent = [] if cycle.cost is None else [f"this boost {cycle.cost:.4f} {cycle.currency}"]
    return [*spent, f"{cycle.price_per_hour:.4f} {cycle.currency} an hour"]


# --- charts ------------------------------------------------------------------------------------------------


def _charts(seen: Watched, rows_left: int, form: Format) -> list[Line]:
    """Throughput, dirty data and phases over the last minutes, as far as rows are left: at least seven are needed."""
    across = form.columns - GUTTER
    if rows_left < 7 or across < 16:
        return []
    height = min(MOST_HEIGHT, (rows_left - 5) // 2)
    points = seen.points[-across:]
    pad = " " * (across - len(points))
    status, cycle = seen.status, seen.status.cycle
    rates = [p.total_mb_s for p in points]
    dirty = [None if p.dirty_bytes is None else p.dirty_bytes / GIB for p in points]
    bandwidth = cycle.bandwidth_mb_s if cycle else status.load.backing_bandwidth_mb_s
    most_dirty = max(0.1, *(d or 0.0 for d in dirty))
    lines = [Line("")]
    lines += _chart("MB/s", rates, max(bandwidth, *(r or 0.0 for r in rates)), height, pad, form)
    lines += _chart("dirty", dirty, most_dirty, height, pad, form)
    lines.append(Line(f"{'phase':<{GUTTER}}{pad}{''.join(MARKS.get(p.phase, '?') for p in points)}"))
    lines.append(Line(f"{'':<{GUTTER}}{_axis(points, across)}", Style.QUIET))
    known = [*dict.fromkeys(p.phase for p in points)]
    legend = ", ".join(f"{MARKS.get(phase, '?')} {'no answer' if phase == SILENT else phase}" for phase in known)
    lines.append(Line(f"{'':<{GUTTER}}{legend}", Style.QUIET))
    return lines


def _chart(name: str, values: list[float | None], most: float, height: int, pad: str, form: Format) -> list[Line]:
    """The top line has the largest value; the second its unit if there is one, else it is in front of the value."""
    unit = "GiB" if name == "dirty" else ""
    top = f"{most:.1f}" if most < 100 else f"{most:.0f}"
    labels = [f"{name} {top}" if height == 1 else top, *([name] if height > 1 else []), *([unit] if height > 2 else [])]
    lines = chart(values, most, height, form.symbols)
    labels += [""] * (len(lines) - len(labels))
    if height == 1:
        labels = [name]
    return [Line(f"{label:<{GUTTER}}"[:GUTTER] + pad + line) for label, line in zip(labels, lines, strict=False)]


def _axis(points: tuple[Point, ...], across: int) -> str:
    """How long ago the first point was, below it, and `now` at the right."""
    ago = f"{format_duration(points[-1].at_s - points[0].at_s)} ago"
    if len(points) < len(ago) + 5:
        return f"{'now':>{across}}"
    return f"{ago:<{len(points) - 3}}now".rjust(across)
