"""Puts samples of throughput together: one recording for each volume. Pure.

A sample is used once. What two files say about the same time must be equal, else nothing is said about the volume: a
sample that counts twice, or that is taken for another volume's, would be a peak that never was.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise

from elastio.units import format_duration
from elastio_adviser.rates import Rate, TraceError

READ, WRITTEN = "read", "written"
# A volume that nothing names.
UNNAMED = "volume"
CLOSE_S = 1e-3
Point = tuple[float, float, float]  # begin in seconds, length in seconds, MB/s


@dataclass(frozen=True, slots=True)
class Series:
    """Means of one direction of one volume, in any order. `source`: the file.

    `resolution_s`: by how much its times may be off.
    """

    volume: str
    direction: str
    points: tuple[Point, ...]
    source: str
    resolution_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Recording:
    """The throughput of one volume. `has_read`, `has_written`: whether the files had that direction.

    `missing_s`: for how long a direction that they had has no sample; this counts as quiet.
    """

    volume: str
    rates: tuple[Rate, ...]
    has_read: bool
    has_written: bool
    missing_s: float = 0.0


def combine(found: Sequence[Series]) -> tuple[Recording, ...]:
    """Puts the series of each volume together, by name. Raises TraceError where two contradict each other."""
    parts: dict[tuple[str, str], list[Series]] = defaultdict(list)
    for series in found:
        if series.points:
            parts[series.volume, series.direction].append(series)
    volumes = sorted({volume for volume, _ in parts})
    if not volumes:
        raise TraceError("the files hold no samples of read or written bytes", code="samples")
    return tuple(
        _recording(volume, parts.get((volume, READ), []), parts.get((volume, WRITTEN), [])) for volume in volumes
    )


def _recording(volume: str, reads: Sequence[Series], writes: Sequence[Series]) -> Recording:
    read, written = joined(reads), joined(writes)
    rates = merged(read, written)
    seen_s, shortest_s = sum(r.seconds for r in rates), min(seconds for _, seconds, _ in (*read, *written))
    missing_s = max(seen_s - sum(seconds for _, seconds, _ in points) for points in (read, written) if points)
    return Recording(volume, rates, bool(read), bool(written), missing_s if missing_s > shortest_s - CLOSE_S else 0.0)


def joined(parts: Sequence[Series]) -> list[Point]:
    """The points of all parts, one after the other. Raises TraceError.

    Equal values at an equal time are one sample. Where times are rounded, a later sample begins at the end of the one
    before it.
    """
    if len(parts) > 1 and parts[0].volume == UNNAMED:
        raise TraceError(
            f"{_names(parts)} have {parts[0].direction} bytes of volumes that nothing names: put the volume's ID into "
            "the label, the Id or the file's name",
            code="volume",
        )
    found: list[Point] = []
    before: tuple[Point, Series] | None = None
    for point, series in sorted(((p, s) for s in parts for p in s.points), key=lambda each: each[0]):
        if before is not None and _is_same(before[0], point):
            continue
        begin, seconds, mb_s = point
        overlap_s = found[-1][0] + found[-1][1] - begin if found else 0.0
        if before is not None and overlap_s > CLOSE_S:
            if overlap_s > min(series.resolution_s, seconds / 2):
                raise _contradiction(*before, point, series)
            begin, seconds = begin + overlap_s, seconds - overlap_s
        found.append((begin, seconds, mb_s))
        before = point, series
    return found


def _is_same(one: Point, other: Point) -> bool:
    return (
        abs(one[0] - other[0]) < CLOSE_S
        and abs(one[1] - other[1]) < CLOSE_S
        and math.isclose(one[2], other[2], rel_tol=1e-6, abs_tol=1e-9)
    )


def _contradiction(one: Point, first: Series, other: Point, second: Series) -> TraceError:
    begin, end = max(one[0], other[0]), min(one[0] + one[1], other[0] + other[1])
    if first is not second:
        firsts, seconds = first.points, second.points
        begin = max(min(p[0] for p in firsts), min(p[0] for p in seconds))
        end = min(max(p[0] + p[1] for p in firsts), max(p[0] + p[1] for p in seconds))
    return overlap(_names((first, second)), first.direction, first.volume, begin, end)


def overlap(sources: str, direction: str, volume: str, begin_s: float, end_s: float) -> TraceError:
    """The error where two samples of a volume are about the same time and not equal. Times are since the epoch."""
    when = f"from {_when(begin_s)} to {_when(end_s)}"
    return TraceError(
        f"{sources}: {direction} bytes of {volume} are there twice {when}, and differ: leave one of them out or cut "
        "it; of two that watch the same volume choose one, and two volumes need different names",
        code="overlap",
    )


def _when(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}"


def _names(parts: Sequence[Series]) -> str:
    return " and ".join(dict.fromkeys(series.source for series in parts))


def merged(read: Sequence[Point], written: Sequence[Point]) -> tuple[Rate, ...]:
    """Both directions on one time line that begins at 0. Time without a sample counts as quiet."""
    edges = sorted({round(at, 3) for begin, seconds, _ in (*read, *written) for at in (begin, begin + seconds)})
    reads, writes = _at(read), _at(written)
    return tuple(
        Rate(begin - edges[0], end - begin, reads(begin), writes(begin)) for begin, end in pairwise(edges)
    )  # fmt: skip


def _at(points: Sequence[Point]) -> Callable[[float], float]:
    """The MB/s at a time; called with ascending times."""
    index = 0

    def look_up(at: float) -> float:
        nonlocal index
        while index < len(points) and points[index][0] + points[index][1] <= at + 5e-4:
            index += 1
        return points[index][2] if index < len(points) and points[index][0] <= at + 5e-4 else 0.0

    return look_up


def interval_s(times: Sequence[Sequence[float]], name: str) -> float:
    """The period of the samples of one document, whose series have these times. No document says it.

    It is the distance of two samples, and all distances are multiples of it. Raises TraceError where another period
    would explain the times as well: if fewer than half of the distances are it, or two series disagree.
    """
    found = set()
    for each in times:
        stamps = sorted({round(at * 1000) for at in each})
        distances = [after - before for before, after in pairwise(stamps)]
        if not distances:
            continue
        least = min(distances)
        if math.gcd(*distances) != least or 2 * distances.count(least) < len(distances):
            raise TraceError(
                f"{name}: the times of the samples do not tell the period that each is about: ask for a sample for "
                "each period, with FILL(m1, 0) in CloudWatch",
                code="period",
            )
        found.add(least / 1000)
    if not found:
        raise TraceError(f"{name} holds 1 sample of a metric: at least 2 are needed", code="samples")
    if len(found) > 1:
        shown = " and ".join(format_duration(seconds) for seconds in sorted(found))
        raise TraceError(
            f"{name}: samples are {shown} apart, and nothing says whether these are periods or gaps: give each period "
            "in a file of its own",
            code="period",
        )
    return found.pop()
