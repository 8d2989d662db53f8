"""The two clocks."""

from __future__ import annotations

import time


class SystemClock:
    """`ports.Clock` of the running machine. CLOCK_BOOTTIME includes suspend and never jumps."""

    def now(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def wall(self) -> float:
        return time.time()
