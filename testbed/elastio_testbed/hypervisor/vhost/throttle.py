"""A limit on the sum of reads and writes: a bucket that leaks, with the constants of QEMU's throttle groups.

A request passes while the bucket holds at most what leaks in BURST_S, and then adds its size to it; otherwise it waits
until so much has leaked. So short bursts pass, and the long-run rate is exact.
https://gitlab.com/qemu-project/qemu/-/blob/master/docs/throttle.txt
"""

from __future__ import annotations

from dataclasses import dataclass

BURST_S = 0.1


@dataclass(slots=True)
class Bucket:
    """`rate`: units per second that leak; 0 is no limit."""

    rate: float
    level: float = 0.0
    leaked_at: float = 0.0

    def wait_s(self, now: float) -> float:
        """Seconds until the next request may pass; 0 if it may now."""
        if not self.rate:
            return 0.0
        self.level = max(0.0, self.level - self.rate * (now - self.leaked_at))
        self.leaked_at = now
        return max(0.0, self.level / self.rate - BURST_S)


class Throttle:
    """The limits of one disk, in bytes and in requests per second; None is no limit."""

    def __init__(self, bytes_per_second: int | None, iops: int | None) -> None:
        self._bytes, self._requests = Bucket(bytes_per_second or 0), Bucket(iops or 0)

    def wait_s(self, now: float) -> float:
        """Seconds until the next request may pass."""
        return max(self._bytes.wait_s(now), self._requests.wait_s(now))

    def account(self, length: int) -> None:
        """A request of that many bytes has passed."""
        self._bytes.level += length
        self._requests.level += 1
