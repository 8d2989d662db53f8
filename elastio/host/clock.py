"""The two clocks."""

from __future__ import annotations

import time


class SystemClock:
    """`Clock` of the running machine. CLOCK_BOOTTIME goes on through suspend and never jumps."""

    def now(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def wall(self) -> float:
        return time.time()
