"""Request throttling: a token bucket for each action, per account and region, as EC2 has it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

# Tokens, and those refilled per second.
Bucket = tuple[float, float]
# Source: "Request throttling for the Amazon EC2 API" (EC2 developer guide), default limits.
_OWN_BUCKETS: dict[str, Bucket] = {
    "CreateVolume": (100, 5),
    "DeleteVolume": (100, 5),
    "CreateTags": (100, 10),
    "DeleteTags": (100, 10),
    "RunInstances": (5, 2),
    "TerminateInstances": (100, 5),
}
_MUTATING = (50, 5)
_READING = (100, 20)
_READING_UNFILTERED = (50, 10)
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
            capacity, refill_per_s = _bucket(action, unfiltered)
            now = self._clock()
            level, filled_at = self._levels.get((action, unfiltered), (capacity, now))
            level = min(capacity, level + (now - filled_at) * refill_per_s)
            allowed = level >= 1
            self._levels[action, unfiltered] = (level - 1 if allowed else level, now)
        return allowed


def _bucket(action: str, unfiltered: bool) -> Bucket:
    if unfiltered:
        return _READING_UNFILTERED
    if action.startswith(_READS):
        return _READING
    return _OWN_BUCKETS.get(action, _MUTATING)
