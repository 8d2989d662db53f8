"""One burst that is disturbed on purpose: the guest's disks are slow for a while, as in a cloud with a bad moment."""

from __future__ import annotations

from typing import Protocol

# To a third, for so long, so long after the burst was to begin.
DIVISOR, LASTS_S, INTO_S = 3, 10.0, 1.0


class Disks(Protocol):
    """The side of a hypervisor that is needed here."""

    def limits(self) -> dict[str, int | None]:
        """Bytes per second of each disk plugged, by serial."""

    def set_limit(self, serial: str, bytes_per_second: int | None, iops: int | None = None) -> None:
        """Change a cap."""


class Disturbance:
    """Slows the disks of one guest in its burst number `burst`, counted from 1. `compute_s` lie between two bursts."""

    def __init__(self, disks: Disks, burst: int, compute_s: float) -> None:
        self._disks, self._burst, self._compute_s = disks, burst, compute_s
        self._begin: float | None = None
        self._before: dict[str, int] = {}
        self.is_over = False

    def look(self, bursts_done: int, now: float) -> None:
        """Call it every second or so; its time may be cut short by `end`."""
        if self._begin is None and bursts_done >= self._burst - 1:
            self._begin = now + INTO_S + (self._compute_s if bursts_done else 0)
        if self._begin is None or now < self._begin or self.is_over:
            return
        limits = self._disks.limits()
        if now < self._begin + LASTS_S:
            for serial, limit in limits.items():
                # A cache may come while it lasts.
                if limit is not None and serial not in self._before:
                    self._before[serial] = limit
                    self._disks.set_limit(serial, limit // DIVISOR)
            return
        self.end()

    def end(self) -> None:
        """Have the disks as fast as they were. Nothing happens the second time."""
        if not self.is_over:
            self.is_over = True
            for serial in self._before.keys() & self._disks.limits().keys():
                self._disks.set_limit(serial, self._before[serial])

    @property
    def has_struck(self) -> bool:
        """Whether any disk was slow."""
        return bool(self._before)
