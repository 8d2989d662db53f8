"""Time that moves only when told to."""

from __future__ import annotations


class SimClock:
    """`ports.Clock` on simulated time, plus `elapsed`, which goes on through reboots.

    The cloud lives in `elapsed`; the agent sees `now`, which starts again at every boot, as CLOCK_BOOTTIME does.
    """

    def __init__(self, now: float = 1000.0, wall: float = 1_767_225_600.0) -> None:
        self._elapsed = 0.0
        self._boot_offset = now
        self._wall_offset = wall

    def now(self) -> float:
        """Seconds since the last boot."""
        return self._elapsed + self._boot_offset

    def wall(self) -> float:
        """Seconds since the epoch, as wrong as `jump_wall` made it."""
        return self._elapsed + self._wall_offset

    def elapsed(self) -> float:
        """Seconds of simulated time since this clock was made."""
        return self._elapsed

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass. Raises ValueError for a negative number: time never goes back."""
        if seconds < 0:
            raise ValueError(f"time cannot go back by {-seconds} s")
        self._elapsed += seconds

    def advance_to(self, elapsed: float) -> None:
        """Let time pass until `elapsed()` is `elapsed` exactly, so that sums of steps do not drift."""
        if elapsed < self._elapsed:
            raise ValueError(f"time cannot go back to {elapsed} s")
        self._elapsed = elapsed

    def jump_wall(self, seconds: float) -> None:
        """Step the time of day, as a time server or an operator does; `now` does not notice."""
        self._wall_offset += seconds

    def reboot(self, now: float = 10.0) -> None:
        """Start counting `now` again: the machine booted `now` seconds ago."""
        self._boot_offset = now - self._elapsed
