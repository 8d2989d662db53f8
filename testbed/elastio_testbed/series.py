"""The data of a run's picture: its records, reduced to what is stored in the result. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from elastio_testbed.bandwidth_use import intervals_of
from elastio_testbed.experiment import Setup
from elastio_testbed.rates import Points, rates_of
from elastio_testbed.trial import Evidence

# About the number of columns of the picture.
MOST_POINTS = 500
# Seconds that are shown after the last dump and after the deletion of the last volume.
AFTER_S = 3.0


@dataclass(frozen=True, slots=True)
class Series:
    """One set-up. Times in seconds since its first dump began, rates in MB/s (reads and writes), sizes in GB.

    `phases` and `volumes` are (begin, end, which) and (begin, end, GB).
    """

    setup: str
    rates: dict[str, Points]
    phases: tuple[tuple[float, float, str], ...]
    volumes: tuple[tuple[float, float, float], ...]
    end_s: float

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def from_json(row: Mapping[str, Any]) -> Series:
    """From the output of `to_json`, or from a file with it."""
    return Series(
        setup=str(row["setup"]),
        rates={role: tuple((t, v) for t, v in points) for role, points in row["rates"].items()},
        phases=tuple((begin, end, name) for begin, end, name in row["phases"]),
        volumes=tuple((begin, end, size) for begin, end, size in row["volumes"]),
        end_s=float(row["end_s"]),
    )


def series_of(setup: Setup, evidence: Evidence) -> Series:
    """The records of one set-up, limited to its run: recording starts before it and may continue after it."""
    origin = float(evidence.dumps[0]["began"])
    gone = [volume["deleted_at"] for volume in evidence.volumes if volume["deleted_at"] is not None]
    end = max([float(evidence.dumps[-1]["ended"]), *gone]) + AFTER_S
    timeline = [line for line in evidence.timeline if origin - AFTER_S <= line["t"] <= end]
    is_static = setup in {Setup.STATIC_SLOW, Setup.STATIC_FAST}
    rates = {
        role: tuple((round(t - origin, 2), round(v, 2)) for t, v in thinned(points, MOST_POINTS))
        for role, points in rates_of(timeline, evidence.serial, is_static=is_static).items()
    }
    volumes = tuple(
        (round(v["created_at"] - origin, 2), round((v["deleted_at"] or end) - origin, 2), round(v["size_gb"], 4))
        for v in evidence.volumes
    )
    phases = tuple(
        (round(begin - origin, 2), round(until - origin, 2), phase)
        for begin, until, phase in intervals_of(evidence.decisions, end)
        if origin - AFTER_S <= begin <= end
    )
    return Series(setup.value, rates, phases, volumes, round(end - origin, 2))


def thinned(points: Sequence[tuple[float, float]], most: int) -> list[tuple[float, float]]:
    """At most about `most` points, each the mean of its neighbours: the area under the line is preserved."""
    group = -(-len(points) // most) if points else 1
    found = []
    for first in range(0, len(points), group):
        part = points[first : first + group]
        found.append((part[-1][0], sum(v for _, v in part) / len(part)))
    return found
