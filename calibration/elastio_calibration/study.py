"""The stages after measuring: study (summarize the record), solve (fit the curves), format (write the profile)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, median

from elastio.units import GB
from elastio_calibration.curves import holding, throughput
from elastio_calibration.errors import CalibrationError
from elastio_calibration.measurement import Measurement, Setup
from elastio_calibration.profile import Profile
from elastio_calibration.record import Record

# A repeat whose relative distance from the median of its point exceeds this is reported.
OUTLIER = 0.10


@dataclass(frozen=True, slots=True)
class PointSummary:
    """The mean of all repeats of one measurement. `spread`: (maximum - minimum) / mean of the throughput."""

    first: Measurement
    repeats: int
    throughput_mb_s: float
    held_s: float
    spread: float


@dataclass(frozen=True, slots=True)
class Study:
    points: tuple[PointSummary, ...]
    flags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Solution:
    """The errors of the curves, as relative standard deviations. `freedom` 0: no point was repeated."""

    throughput_noise: float
    throughput_interpolation: float
    holding_noise: float
    holding_interpolation: float
    freedom: int
    flags: tuple[str, ...]


def study(record: Record) -> Study:
    """Raises CalibrationError where nothing was measured with a cache."""
    groups: dict[object, list[Measurement]] = defaultdict(list)
    for made in record.measurements():
        groups[made.key].append(made)
    points = tuple(sorted((_point(group) for group in groups.values()), key=lambda p: _order(p.first)))
    if not any(p.first.setup is Setup.ADAPTIVE for p in points):
        raise CalibrationError("the record has no measurement with a cache: run the calibration first")
    flags = [f"{p.first}: measured once, so its spread is unknown" for p in points if p.repeats == 1]
    flags += [flag for group in groups.values() for flag in _outliers(group)]
    flags += [f"{e.wanted}: one attempt failed: {e.failure}" for e in record.entries if e.measurement is None]
    return Study(points, tuple(flags))


def _order(made: Measurement) -> tuple[str, bool, int, int]:
    return made.pattern, made.setup is not Setup.ADAPTIVE, made.dataset_bytes, made.cache_bytes


def _point(group: Sequence[Measurement]) -> PointSummary:
    rates = [m.throughput_mb_s for m in group]
    average = mean(rates)
    return PointSummary(
        group[0], len(group), average, mean(m.held_s for m in group), (max(rates) - min(rates)) / average
    )


def _outliers(group: Sequence[Measurement]) -> list[str]:
    rate, held = median(m.throughput_mb_s for m in group), median(m.held_s for m in group)
    slow = [m for m in group if abs(m.throughput_mb_s - rate) > OUTLIER * rate]
    long = [m for m in group if abs(m.held_s - held) > OUTLIER * held]
    return [
        *(f"{m}: one repeat reached {m.throughput_mb_s:.1f} MB/s, the median is {rate:.1f} MB/s" for m in slow),
        *(f"{m}: one cache was held for {m.held_s:.1f} s, the median is {held:.1f} s" for m in long),
    ]


def solve(measurements: Sequence[Measurement]) -> Solution:
    """The curves and their errors."""
    cached = [m for m in measurements if m.setup is Setup.ADAPTIVE]
    rate, held = throughput(cached), holding(cached)
    flags = []
    for dataset in rate.datasets:
        if len(rate.rows[dataset]) < 2:
            flags.append(
                f"datasets of {dataset / GB:.4g} GB were measured with one cache size: no other can be predicted"
            )
    if len(rate.datasets) < 2:
        flags.append("one dataset size was measured: no other can be predicted")
    return Solution(
        throughput_noise=rate.noise,
        throughput_interpolation=rate.interpolation_error,
        holding_noise=held.noise,
        holding_interpolation=held.interpolation_error,
        freedom=min(rate.freedom, held.freedom),
        flags=tuple(flags),
    )


def make_profile(record: Record) -> Profile:
    """The profile of a record."""
    header = record.header
    return Profile(
        conditions=header.conditions,
        backing_bytes=header.backing_bytes,
        measurements=record.measurements(),
        made=header.made,
        program=header.program,
        prices=header.prices,
    )


def study_text(found: Study) -> str:
    """A table of the points, and the flags."""
    heads = f"{'set-up':<12} {'pattern':<8} {'dataset GB':>10} {'cache GB':>9} {'repeats':>8} {'MB/s':>8}"
    lines = [f"{heads} {'spread':>7} {'held s':>8}"]
    for p in found.points:
        cache = f"{p.first.cache_bytes / GB:.3g}" if p.first.cache_bytes else "-"
        held = f"{p.held_s:.1f}" if p.first.cache_bytes else "-"
        lines.append(
            f"{p.first.setup:<12} {p.first.pattern:<8} {p.first.dataset_bytes / GB:>10.3g} {cache:>9} {p.repeats:>8} "
            f"{p.throughput_mb_s:>8.1f} {p.spread:>7.1%} {held:>8}"
        )
    return "\n".join([*lines, *found.flags])


def solution_text(found: Solution) -> str:
    """The errors in percent, and the flags."""
    repeats = f"from {found.freedom} repeats" if found.freedom else "unknown: nothing was repeated"
    table = (
        ("spread of one run", found.throughput_noise, found.holding_noise, repeats),
        ("interpolation", found.throughput_interpolation, found.holding_interpolation, "by leaving out inner points"),
    )
    lines = [f"{name}: throughput {rate:.2%}, holding time {held:.2%} ({how})" for name, rate, held, how in table]
    return "\n".join([*lines, *found.flags])
