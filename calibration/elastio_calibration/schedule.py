"""The points to measure, their repeats, and an estimate of time, AGBs and cost before anything is bought."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from elastio.units import GB, MB, agbs
from elastio_calibration.deserialize import MOST
from elastio_calibration.errors import CalibrationError
from elastio_calibration.measurement import Conditions, Prices, Setup

# Sequential, 1 MiB at a time, with an fsync at the end.
WRITE = "write"
MOST_GB = MOST / GB
# Seconds for purchase, attach, detach and deletion together, and the pause before the next measurement.
OVERHEAD_S = 30.0


@dataclass(frozen=True, slots=True)
class Point:
    """One point of the grid; `cache_bytes` 0: without a cache."""

    dataset_bytes: int
    cache_bytes: int = 0
    pattern: str = WRITE

    @property
    def setup(self) -> Setup:
        return Setup.ADAPTIVE if self.cache_bytes else Setup.STATIC_SLOW

    def __str__(self) -> str:
        cache = f"cache {self.cache_bytes / GB:.3g} GB" if self.cache_bytes else "no cache"
        return f"{self.pattern} {self.dataset_bytes / GB:.3g} GB, {cache}"


@dataclass(frozen=True, slots=True)
class Schedule:
    """The points in order, each measured `repeats` times, in rounds: an interrupted run still covers the grid."""

    points: tuple[Point, ...]
    repeats: int

    def rounds(self) -> tuple[tuple[int, Point], ...]:
        return tuple((number, point) for number in range(self.repeats) for point in self.points)


@dataclass(frozen=True, slots=True)
class Preset:
    """Sizes in GB (10^9). `paired`: each dataset only with the cache at the same place."""

    datasets_gb: tuple[float, ...]
    caches_gb: tuple[float, ...]
    repeats: int
    paired: bool = False


PRESETS = {
    # The minimum to predict one application: its two dumps, each with its cache, once.
    "minimal": Preset((4, 5), (6, 10), 1, paired=True),
    "standard": Preset((3, 4, 6), (4, 6, 8, 12), 2),
    # The published extended calibration, repeated.
    "extended": Preset((3, 4, 6, 9), (2, 4, 6, 8, 10, 12), 3),
}


def schedule(preset: Preset, *, static: bool = True, scale: float = 1.0, pattern: str = WRITE) -> Schedule:
    """Raises CalibrationError for an empty grid, sizes out of range, and paired lists of unequal length."""
    if not preset.datasets_gb or not preset.caches_gb or preset.repeats < 1:
        raise CalibrationError("a calibration needs a dataset, a cache size and at least one repeat", code="empty")
    if min(*preset.datasets_gb, *preset.caches_gb, scale) <= 0:
        raise CalibrationError("datasets, cache sizes and the scale must be above 0")
    if not max(*preset.datasets_gb, *preset.caches_gb) * scale <= MOST_GB:
        raise CalibrationError(f"datasets and cache sizes must be at most {MOST_GB:g} GB")
    if preset.paired and len(preset.datasets_gb) != len(preset.caches_gb):
        raise CalibrationError(
            f"the minimal plan pairs each dataset with one cache: {len(preset.datasets_gb)} datasets "
            f"and {len(preset.caches_gb)} caches were given",
            code="pairs",
        )
    datasets = [_bytes(gb, scale) for gb in preset.datasets_gb]
    caches = [_bytes(gb, scale) for gb in preset.caches_gb]
    pairs = zip(datasets, caches, strict=True) if preset.paired else ((x, m) for x in datasets for m in caches)
    alone = [Point(x, 0, pattern) for x in datasets] if static else []
    return Schedule((*(Point(x, m, pattern) for x, m in pairs), *alone), preset.repeats)


def _bytes(size_gb: float, scale: float) -> int:
    return max(MB, round(size_gb * GB * scale))


def size_bytes(size_gb: float) -> int:
    """Bytes from GB. Raises CalibrationError below one byte and above MOST_GB."""
    if not 1 / GB <= size_gb <= MOST_GB:
        raise CalibrationError(
            f"{size_gb:g} GB is not the size of a volume: it must be between one byte and {MOST_GB:g} GB"
        )
    return round(size_gb * GB)


@dataclass(frozen=True, slots=True)
class Estimate:
    """`cost` None: prices are unknown."""

    seconds: float
    agbs: float
    cost: float | None


def expected_s(point: Point, conditions: Conditions) -> float:
    """Seconds for one measurement, with its flush and the pause after it."""
    slow_s = point.dataset_bytes / MB / conditions.backing_mb_s
    if not point.cache_bytes:
        return slow_s + OVERHEAD_S / 2
    return point.dataset_bytes / MB / conditions.cache_mb_s + max(slow_s, conditions.inactivity_delay_s) + OVERHEAD_S


def estimate(points: Sequence[Point], conditions: Conditions, prices: Prices | None) -> Estimate:
    """Time and cost of measuring these points. Only the caches count: the backing volume is paid for anyway."""
    seconds = sum(expected_s(p, conditions) for p in points)
    spent = sum(agbs(conditions.bought_mb_s, p.cache_bytes, expected_s(p, conditions)) for p in points)
    return Estimate(seconds, spent, None if prices is None else _cost(points, conditions, prices))


def _cost(points: Sequence[Point], conditions: Conditions, prices: Prices) -> float | None:
    quoted = {p.size_bytes: p.per_hour for p in prices.caches}
    total = 0.0
    for point in points:
        if point.cache_bytes:
            # A cloud sells sizes in steps: take the next larger quoted one.
            larger = [size for size in quoted if size >= 0.999 * point.cache_bytes]
            if not larger:
                return None
            held_s = prices.billing.billed_s(expected_s(point, conditions))
            total += quoted[min(larger)] * held_s / 3600
    return total
