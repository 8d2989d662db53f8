"""B(x), D(x) and the learned size between the measured points: mean, noise and interpolation error.

Along the cache size the curve is a monotone cubic (PCHIP) through the means: it does not overshoot the drop where the
cache becomes too small. Between two datasets it is linear. Beyond the outermost measurements it is not defined:
OutOfRangeError.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np
from scipy.interpolate import PchipInterpolator

from elastio.units import GB
from elastio_calibration.errors import OutOfRangeError
from elastio_calibration.measurement import Measurement

# Sizes this close count as one: clouds and filesystems round.
SAME = 0.005

Rows = Mapping[int, Mapping[int, float]]
"""Dataset -> cache size -> mean, in bytes."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value of a curve.

    Relative standard deviations: `noise` of one run around the mean, `error` of the mean itself (repeats and
    interpolation). `freedom`: the degrees of freedom of the noise; 0: nothing was repeated.
    """

    value: float
    noise: float
    error: float
    freedom: int


class Curve:
    """One quantity over dataset and cache size (0: no cache). `what` is its name in errors."""

    def __init__(self, what: str, points: Iterable[tuple[int, int, float]]) -> None:
        self.what = what
        runs: dict[int, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
        for dataset, cache, value in points:
            row = runs[_near(dataset, runs)]
            row[_near(cache, row)].append(value)
        self.rows: Rows = {
            x: {m: float(np.mean(values)) for m, values in sorted(row.items())} for x, row in sorted(runs.items())
        }
        self._repeats = {(x, m): len(values) for x, row in runs.items() for m, values in row.items()}
        self.noise, self.freedom = _pooled(values for row in runs.values() for values in row.values())
        self.interpolation_error = _left_out(self.rows)

    @property
    def datasets(self) -> tuple[int, ...]:
        return tuple(self.rows)

    def caches(self, dataset: int) -> tuple[int, ...]:
        """Cache sizes that were measured for this dataset, or for both of its neighbours."""
        low, high = self._bracket(dataset)
        return tuple(m for m in self.rows[low] if any(is_same(m, other) for other in self.rows[high]))

    def only_cache(self, dataset: int) -> int | None:
        """The only cache size that this dataset was measured with; None: several, or none."""
        row = self.rows.get(_near(dataset, self.rows), {})
        return next(iter(row)) if len(row) == 1 else None

    def at(self, dataset: int, cache: int = 0) -> Estimate:
        """Raises OutOfRangeError where this lies beyond the measurements."""
        low, high = self._bracket(dataset)
        near = _near(cache, self.rows[low])
        if low == high and near in self.rows[low]:
            value = self.rows[low][near]
            return Estimate(value, self.noise, self.noise / sqrt(self._repeats[low, near]), self.freedom)
        below = self._along(low, cache)
        value = below if low == high else below + (self._along(high, cache) - below) * (dataset - low) / (high - low)
        return Estimate(value, self.noise, sqrt(self.noise**2 + self.interpolation_error**2), self.freedom)

    def _bracket(self, dataset: int) -> tuple[int, int]:
        """The measured datasets below and above this one; twice the same where it was measured itself."""
        known = sorted(self.rows)
        if not known:
            raise OutOfRangeError(f"{self.what} was not measured: calibrate it first")
        near = _near(dataset, self.rows)
        if near in self.rows:
            return near, near
        if not known[0] < dataset < known[-1]:
            raise OutOfRangeError(
                f"{self.what} was measured for datasets of {_range(known)}: {dataset / GB:.4g} GB would be "
                "extrapolation; calibrate with --datasets that enclose it"
            )
        return max(x for x in known if x < dataset), min(x for x in known if x > dataset)

    def _along(self, dataset: int, cache: int) -> float:
        row = self.rows[dataset]
        near, sizes = _near(cache, row), sorted(row)
        if near in row:
            return row[near]
        if not sizes[0] < cache < sizes[-1]:
            raise OutOfRangeError(
                f"{self.what} of a dataset of {dataset / GB:.4g} GB was measured with caches of {_range(sizes)}: "
                f"{cache / GB:.4g} GB would be extrapolation; calibrate with --caches that enclose it"
            )
        return _between(row, cache)


def throughput(measurements: Iterable[Measurement]) -> Curve:
    """B in MB/s."""
    return Curve("throughput", ((m.dataset_bytes, m.cache_bytes, m.throughput_mb_s) for m in measurements))


def holding(measurements: Iterable[Measurement]) -> Curve:
    """D in seconds."""
    return Curve("holding time", ((m.dataset_bytes, m.cache_bytes, m.held_s) for m in measurements))


def learning(measurements: Iterable[Measurement]) -> Curve:
    """The size that the agent buys next, in bytes."""
    known = ((m.dataset_bytes, m.cache_bytes, float(m.learned_bytes)) for m in measurements if m.learned_bytes)
    return Curve("the learned size", known)


def _between(row: Mapping[int, float], cache: int) -> float:
    sizes = sorted(row)
    curve = PchipInterpolator(np.array(sizes, float), np.array([row[m] for m in sizes]), extrapolate=False)
    return float(curve(float(cache)))


def is_same(a: float, b: float) -> bool:
    """Whether these count as one size."""
    return abs(a - b) <= SAME * max(abs(a), abs(b))


def _near(size: int, known: Iterable[int]) -> int:
    """The known size that counts as the same, else the size itself."""
    return next((k for k in known if is_same(size, k)), size)


def _range(sizes: Sequence[int]) -> str:
    if len(sizes) == 1:
        return f"{sizes[0] / GB:.4g} GB only"
    return f"{sizes[0] / GB:.4g} to {sizes[-1] / GB:.4g} GB"


def _pooled(groups: Iterable[Sequence[float]]) -> tuple[float, int]:
    """Relative standard deviation, pooled over all repeated points, and its degrees of freedom."""
    squares, freedom = 0.0, 0
    for values in groups:
        if len(values) > 1:
            mean = float(np.mean(values))
            squares += sum((v / mean - 1) ** 2 for v in values)
            freedom += len(values) - 1
    return (sqrt(squares / freedom) if freedom else 0.0), freedom


def _left_out(rows: Rows) -> float:
    """Root mean square of the relative errors when each inner point is predicted from its neighbours."""
    errors = [*_left_out_along(rows.values(), _between)]
    columns: dict[int, dict[int, float]] = defaultdict(dict)
    for x, row in rows.items():
        for m, value in row.items():
            columns[_near(m, columns)][x] = value
    errors += _left_out_along(columns.values(), _straight)
    return sqrt(sum(e**2 for e in errors) / len(errors)) if errors else 0.0


def _left_out_along(
    lines: Iterable[Mapping[int, float]], guess: Callable[[Mapping[int, float], int], float]
) -> Iterable[float]:
    for line in lines:
        for inner in sorted(line)[1:-1]:
            others = {size: value for size, value in line.items() if size != inner}
            yield guess(others, inner) / line[inner] - 1


def _straight(line: Mapping[int, float], size: int) -> float:
    known = sorted(line)
    return float(np.interp(size, known, [line[k] for k in known]))
