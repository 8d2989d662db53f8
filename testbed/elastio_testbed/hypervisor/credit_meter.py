"""A disk with credits: a thread that keeps the bucket of one disk, and limits the disk to what its balance allows.

Theory of operation. A volume with credits earns them at its base rate, spends one for each byte that it moves, and
moves up to its burst rate while there are any (`strategy.credits`). QEMU's own burst limits (`bps-total-max`, with
`bps-total-max-length`) are such a bucket too, but it begins full in each QEMU and its level cannot be read. So QEMU
enforces a plain limit, and this thread replaces it: every POLL_S it reads how many bytes the disk has moved, reckons
the balance, and sets the most that the balance can pay for until the next poll. So the disk never moves what it has no
credits for, and is never faster than the cloud's; while it has many, the limit is the burst rate and is not changed.

The thread is the only one that sets the limit of this disk while it runs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol, Self

from elastio.strategy.credits import CreditBucket
from elastio.units import MB
from elastio_testbed.hypervisor.errors import HypervisorError

POLL_S = 0.5
# A limit that differs by less is not set again.
LEAST_CHANGE = 0.02


class Disks(Protocol):
    """The part of a virtual machine that is used here."""

    def moved_bytes(self, serial: str) -> int:
        """Bytes that the guest has read from and written to a disk so far."""

    def set_limit(self, serial: str, bytes_per_second: int | None, iops: int | None = None) -> None:
        """Change the limit of a disk."""


class CreditMeter:
    """Keeps the bucket of the disk `serial`, which holds `first_bytes` at the start. Use as a context manager."""

    def __init__(
        self,
        disks: Disks,
        serial: str,
        bucket: CreditBucket,
        first_bytes: float,
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.balance_bytes = self.least_bytes = min(first_bytes, bucket.capacity_bytes)
        self._disks, self._serial, self._bucket, self._now = disks, serial, bucket, now
        self._seen: tuple[float, int] | None = None
        self._limit_mb_s: float | None = None
        self._stop = threading.Event()
        self._trouble: HypervisorError | None = None
        self._thread = threading.Thread(target=self._run, name=f"credits-{serial}", daemon=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    @property
    def least_share(self) -> float:
        """The lowest balance so far, as a share of a full bucket."""
        return self.least_bytes / self._bucket.capacity_bytes

    def start(self) -> None:
        """Limit the disk, and begin to count. Raises HypervisorError."""
        self.turn()
        self._thread.start()

    def stop(self) -> None:
        """Count a last time and leave the last limit in force. Raises HypervisorError if the disk was lost."""
        self._end()
        if self._trouble is not None:
            raise self._trouble
        self.turn()

    def turn(self) -> None:
        """One poll. Raises HypervisorError."""
        now, moved = self._now(), self._disks.moved_bytes(self._serial)
        if self._seen is not None:
            seconds, used_mb = now - self._seen[0], (moved - self._seen[1]) / MB
            if seconds > 0:
                self.balance_bytes = self._bucket.after(self.balance_bytes, used_mb / seconds, seconds)
        self._seen = now, moved
        self.least_bytes = min(self.least_bytes, self.balance_bytes)
        self._limit(self._bucket.sustained_mb_s(self.balance_bytes, POLL_S))

    def _limit(self, mb_s: float) -> None:
        before = self._limit_mb_s
        if before is not None and abs(mb_s - before) <= LEAST_CHANGE * before:
            return
        self._disks.set_limit(self._serial, round(mb_s * MB))
        self._limit_mb_s = mb_s

    def _run(self) -> None:
        while not self._stop.wait(POLL_S):
            try:
                self.turn()
            except HypervisorError as error:
                self._trouble = error
                return

    def _end(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
