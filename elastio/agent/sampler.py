"""Throughput from cumulative counters: one `Sample` per interval."""

from __future__ import annotations

from collections.abc import Mapping

from elastio.core.model import Rates, Sample
from elastio.ports import Counters
from elastio.units import MB

Reading = Mapping[str, tuple[int, int]]
# A sample is late that covers more than both: so many intervals, so many seconds.
LATE_INTERVALS, LATE_S = 5, 5.0


class Sampler:
    """Takes samples from successive readings. The first reading, and one after a counter decreased, give none."""

    def __init__(self, counters: Counters, interval_s: float) -> None:
        self._counters, self._late_s = counters, max(LATE_INTERVALS * interval_s, LATE_S)
        self._last: tuple[float, Reading] | None = None

    def take(self, now: float) -> Sample | None:
        """Read the counters; returns the sample since the previous reading, or None if there is no such reading."""
        reading = self._counters.read()
        last, self._last = self._last, (now, reading)
        if last is None or now <= last[0] or "adaptive" not in reading or "adaptive" not in last[1]:
            return None
        seconds = now - last[0]
        adaptive = _rates(last[1], reading, "adaptive", seconds)
        if adaptive is None:
            return None
        backing = _rates(last[1], reading, "backing", seconds) or Rates()
        cache = _rates(last[1], reading, "cache", seconds) or Rates()
        counted = _rates(last[1], reading, "counted", seconds)
        return Sample(now, seconds, adaptive, backing, cache, is_late=seconds > self._late_s, counted=counted)


def _rates(before: Reading, after: Reading, name: str, seconds: float) -> Rates | None:
    """MB/s between two readings; None for a device that is new, gone, or another one (its counters decreased)."""
    old, new = before.get(name), after.get(name)
    if old is None or new is None or new[0] < old[0] or new[1] < old[1]:
        return None
    return Rates((new[0] - old[0]) / seconds / MB, (new[1] - old[1]) / seconds / MB)
