"""Mean, median, minimum, maximum and spread over repetitions. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Spread:
    """One quantity over `n` repetitions, in its own unit; `spread` is `max` - `min`."""

    n: int
    mean: float
    median: float
    min: float
    max: float
    spread: float

    def to_json(self) -> dict[str, Any]:
        return {key: round(value, 4) for key, value in asdict(self).items()}


def spread_of(values: Iterable[float | None]) -> Spread | None:
    """The statistics of the known values; None without any."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    least, most = min(known), max(known)
    return Spread(len(known), statistics.fmean(known), statistics.median(known), least, most, most - least)


def nearest_to_median(values: Iterable[float | None]) -> int:
    """The index of the value nearest to the median, the first of equals; 0 if none is known."""
    listed = list(values)
    overall = spread_of(listed)
    if overall is None:
        return 0
    known = [(abs(value - overall.median), n) for n, value in enumerate(listed) if value is not None]
    return min(known)[1]
