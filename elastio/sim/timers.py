"""What the simulated machine will do some time later."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable

from elastio.sim.clock import SimClock

# Sums of floating-point seconds that are meant to be equal differ by less.
ROUNDING_S = 1e-6


class Timers:
    """Effects in the order of their times, those of the same time in the order in which they were asked for."""

    def __init__(self, clock: SimClock) -> None:
        self._clock = clock
        self._order = itertools.count()
        self._waiting: list[tuple[float, int, Callable[[], None]]] = []

    @property
    def next_at(self) -> float:
        """`elapsed` of the next effect; infinity while none is waiting."""
        return self._waiting[0][0] if self._waiting else math.inf

    def later(self, seconds: float, effect: Callable[[], None]) -> None:
        """Let `effect` happen in `seconds`, unless all is forgotten before."""
        heapq.heappush(self._waiting, (self._clock.elapsed() + seconds, next(self._order), effect))

    def settle(self) -> None:
        """Run the effects that are due, and those that they ask for at once."""
        while self.next_at <= self._clock.elapsed() + ROUNDING_S:
            _, _, effect = heapq.heappop(self._waiting)
            effect()

    def forget(self) -> None:
        """The power is cut: nothing that was asked for will happen."""
        self._waiting.clear()
