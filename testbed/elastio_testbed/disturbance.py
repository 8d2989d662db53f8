"""One burst that is disturbed on purpose: the guest's disks are slow for a while, as can happen in a cloud."""

from __future__ import annotations

from typing import Protocol

# Bandwidth is divided by this, for so long, so long after the expected start of the burst.
DIVISOR, LASTS_S, INTO_S = 3, 10.0, 1.0


class Disks(Protocol):
    """The part of a virtual machine that is used here."""

    def limits(self) -> dict[str, int | None]:
        """Bytes per second of each plugged disk, by serial."""

    def set_limit(self, serial: str, bytes_per_second: int | None, iops: int | None = None) -> None:
        """Change the limit of a disk."""


class Disturbance:
    """Slows the disks of one guest in its burst number `burst`, counted from 1. Bursts are `compute_s` apart."""

    def __init__(self, disks: Disks, burst: int, compute_s: float) -> None:
        self._disks, self._burst, self._compute_s = disks, burst, compute_s
        self._begin: float | None = None
        self._before: dict[str, int] = {}
        self.is_over = False

    def update(self, bursts_done: int, now: float) -> None:
        """Start or end the disturbance if it is time. To be called about once a second."""
        if self._begin is None and bursts_done >= self._burst - 1:
            self._begin = now + INTO_S + (self._compute_s if bursts_done else 0)
        if self._begin is None or now < self._begin or self.is_over:
            return
        limits = self._disks.limits()
        if now < self._begin + LASTS_S:
            for serial, limit in limits.items():
                # A cache may be attached meanwhile.
                if limit is not None and serial not in self._before:
                    self._before[serial] = limit
                    self._disks.set_limit(serial, limit // DIVISOR)
            return
        self.end()

    def end(self) -> None:
        """Restore the limits. Idempotent."""
        if not self.is_over:
            self.is_over = True
            for serial in self._before.keys() & self._disks.limits().keys():
                self._disks.set_limit(serial, self._before[serial])

    @property
    def has_struck(self) -> bool:
        """Whether any disk was slowed."""
        return bool(self._before)
