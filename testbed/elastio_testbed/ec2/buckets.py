"""Request throttling: a token bucket for each action, per account and region, as EC2 has it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Bucket:
    """A bucket of `capacity` tokens, refilled with `refill_per_s`."""

    capacity: float
    refill_per_s: float


# Source: "Request throttling for the Amazon EC2 API" (EC2 developer guide), default limits.
_OWN_BUCKETS = {
    "CreateVolume": Bucket(100, 5),
    "DeleteVolume": Bucket(100, 5),
    "CreateTags": Bucket(100, 10),
    "DeleteTags": Bucket(100, 10),
    "RunInstances": Bucket(5, 2),
    "TerminateInstances": Bucket(100, 5),
}
_MUTATING = Bucket(50, 5)
_READING = Bucket(100, 20)
_READING_UNFILTERED = Bucket(50, 10)
# Unfiltered, these have a smaller bucket.
_LIMITED_WHEN_UNFILTERED = frozenset({"DescribeInstances", "DescribeSnapshots", "DescribeVolumes"})
_READS = ("Describe", "Get", "List", "Search")


class RateBuckets:
    """The token buckets of all actions."""

    def __init__(self, *, enabled: bool = True, clock: Callable[[], float] = time.monotonic) -> None:
        self.enabled = enabled
        self._clock = clock
        self._lock = threading.Lock()
        self._levels: dict[tuple[str, bool], tuple[float, float]] = {}

    def take(self, action: str, *, narrowed: bool = True) -> bool:
        """Take one token and return whether there was one. `narrowed`: the call has a filter, an id or paging."""
        if not self.enabled:
            return True
        unfiltered = action in _LIMITED_WHEN_UNFILTERED and not narrowed
        with self._lock:
            bucket = _bucket(action, unfiltered)
            now = self._clock()
            level, filled_at = self._levels.get((action, unfiltered), (bucket.capacity, now))
            level = min(bucket.capacity, level + (now - filled_at) * bucket.refill_per_s)
            allowed = level >= 1
            self._levels[action, unfiltered] = (level - 1 if allowed else level, now)
        return allowed


def _bucket(action: str, unfiltered: bool) -> Bucket:
    if unfiltered:
        return _READING_UNFILTERED
    if action.startswith(_READS):
        return _READING
    return _OWN_BUCKETS.get(action, _MUTATING)
