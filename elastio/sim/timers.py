"""Effects that the simulated machine applies later."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable

from elastio.sim.clock import SimClock

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
