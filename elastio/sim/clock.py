"""Time that moves only when a test or the simulation advances it, and effects that come later."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable


class SimClock:
    """`ports.Clock` on simulated time, plus `elapsed`, which continues through reboots.

    The cloud uses `elapsed`. The agent sees `now`, which starts again at every boot, as CLOCK_BOOTTIME does.
    """

    def __init__(self, now: float = 1000.0, wall: float = 1_767_225_600.0) -> None:
        self._elapsed = 0.0
        self._boot_offset = now
        self._wall_offset = wall

    def now(self) -> float:
        """Seconds since the last boot."""
        return self._elapsed + self._boot_offset

    def wall(self) -> float:
        """Seconds since the epoch, with the error that `jump_wall` added."""
        return self._elapsed + self._wall_offset

    def elapsed(self) -> float:
        """Seconds of simulated time since this clock was made."""
        return self._elapsed

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass. Raises ValueError for a negative number."""
        if seconds < 0:
            raise ValueError(f"time cannot go back by {-seconds} s")
        self._elapsed += seconds

    def advance_to(self, elapsed: float) -> None:
        """Let time pass until `elapsed()` is exactly `elapsed`, so that sums of steps do not drift."""
        if elapsed < self._elapsed:
            raise ValueError(f"time cannot go back to {elapsed} s")
        self._elapsed = elapsed

    def jump_wall(self, seconds: float) -> None:
        """Step the time of day, as a time server or an operator does. `now` is not affected."""
        self._wall_offset += seconds

    def reboot(self, now: float = 10.0) -> None:
        """Restart `now`: the machine booted `now` seconds ago."""
        self._boot_offset = now - self._elapsed


# Sums of floating-point seconds that should be equal differ by less than this.
ROUNDING_S = 1e-6


class Timers:
    """Effects ordered by time; those of the same time in the order in which they were scheduled."""

    def __init__(self, clock: SimClock) -> None:
        self._clock = clock
        self._order = itertools.count()
        self._waiting: list[tuple[float, int, Callable[[], None]]] = []

    @property
    def next_at(self) -> float:
        """`elapsed` of the next effect; infinite if there is none."""
        return self._waiting[0][0] if self._waiting else math.inf

    def later(self, seconds: float, effect: Callable[[], None]) -> None:
        """Schedule `effect` in `seconds`."""
        heapq.heappush(self._waiting, (self._clock.elapsed() + seconds, next(self._order), effect))

    def settle(self) -> None:
        """Apply the effects that are due, including those that they schedule for now."""
        while self.next_at <= self._clock.elapsed() + ROUNDING_S:
            _, _, effect = heapq.heappop(self._waiting)
            effect()

    def forget(self) -> None:
        """Drop all effects, as a power cut does."""
        self._waiting.clear()
