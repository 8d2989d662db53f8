"""Throughput from cumulative counters: one `Sample` per interval."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import replace

from elastio.core.model import Rates, Sample
from elastio.ports import Counters
from elastio.units import MB

Reading = Mapping[str, tuple[int, int]]
# A sample is late that covers more than both: so many intervals, so many seconds.
LATE_INTERVALS, LATE_S = 5, 5.0
# `Sample.recent` covers about so much: in one second, what an application has been answered and what the volumes have
# moved for it differ by what is in flight.
RECENT_S = 3.0
# It does not reach back to a load of another kind, of which a MB took so many times as many requests, or so few.
OTHER_KIND = 1.5
DEVICES = ("adaptive", "backing", "cache")


class Sampler:
    """Takes samples from successive readings. The first reading, and one after a counter decreased, give none."""

    def __init__(self, counters: Counters, interval_s: float) -> None:
        self._counters, self._late_s = counters, max(LATE_INTERVALS * interval_s, LATE_S)
        self._readings: deque[tuple[float, Reading]] = deque()

    def take(self, now: float) -> Sample | None:
        """Read the counters; returns the sample since the previous reading, or None if there is no such reading."""
        reading, last = self._counters.read(), self._readings[-1] if self._readings else None
        sample = self._sample(last, now, reading) if last else None
        if sample is None:
            self._readings.clear()
        self._readings.append((now, reading))
        while len(self._readings) > 1 and not self._is_recent(now, reading):
            self._readings.popleft()
        return replace(sample, recent=self._sample(self._readings[0], now, reading)) if sample else None

    def _is_recent(self, now: float, reading: Reading) -> bool:
        """Whether the oldest reading is no older than need be, and of the same devices and kind of load."""
        (_, oldest), (next_at, _) = self._readings[0], self._readings[1]
        is_same = all(_rates(oldest, reading, name, RECENT_S) for name in DEVICES if name in reading)
        return next_at > now - RECENT_S and is_same and not self._is_other_kind(oldest)

    def _is_other_kind(self, oldest: Reading) -> bool:
        """Whether the newest sample is of another kind than what was moved since the oldest reading."""
        (_, last), (_, newest) = self._readings[-2], self._readings[-1]
        before, now = _requests_per_byte(oldest, last), _requests_per_byte(last, newest)
        return before is not None and now is not None and not before / OTHER_KIND <= now <= before * OTHER_KIND

    def _sample(self, since: tuple[float, Reading], now: float, reading: Reading) -> Sample | None:
        before, seconds = since[1], now - since[0]
        adaptive = _rates(before, reading, "adaptive", seconds) if seconds > 0 else None
        if adaptive is None:
            return None
        backing = _rates(before, reading, "backing", seconds) or Rates()
        cache = _rates(before, reading, "cache", seconds) or Rates()
        requests = _rates(before, reading, "requests", seconds) or Rates()
        return Sample(
            now,
            seconds,
            adaptive,
            backing,
            cache,
            is_late=seconds > self._late_s,
            counted=_rates(before, reading, "counted", seconds),
            cache_iops=(requests.read_mb_s * MB, requests.write_mb_s * MB),
        )


def _requests_per_byte(before: Reading, after: Reading) -> float | None:
    """Of the cache volume for what applications moved; None where that is not known."""
    requests, moved = _rates(before, after, "requests", 1.0), _rates(before, after, "adaptive", 1.0)
    return requests.total_mb_s / moved.total_mb_s if requests and moved and moved.total_mb_s else None


def _rates(before: Reading, after: Reading, name: str, seconds: float) -> Rates | None:
    """MB/s between two readings; None for a device that is new, gone, or another one (its counters decreased)."""
    old, new = before.get(name), after.get(name)
    if old is None or new is None or new[0] < old[0] or new[1] < old[1]:
        return None
    return Rates((new[0] - old[0]) / seconds / MB, (new[1] - old[1]) / seconds / MB)
