"""Credits of throughput-optimised volumes. Pure.

Theory of operation. The size of such a volume sets two rates. It earns credits at the base rate, until its bucket is
full, and each byte that it moves costs one. With credits it moves up to the burst rate; without, up to the base rate:

    d balance / dt = base - moved      0 <= balance <= capacity
    moved <= burst where balance > 0, else <= base

A full bucket holds as many bytes as the volume has. A volume of constant speed is the same with base = burst and an
empty bucket, so that one model serves both.

A flush can wait, an application cannot. So a flush spends credits only down to a reserve, and from there on no more
than the base rate leaves: the reserve stays for reads, which no cache can serve before it has seen them. Flushing D
bytes at a rate f takes D/f seconds, in which base * D/f credits are earned. So with C credits above the reserve

    D (1 - base/burst) <= C     the flush may run at the burst rate
    else                        f = base * D / (D - C): the balance reaches the reserve at the end of the flush

and this even rate ends at the same time as one that spends the credits first and then continues at the base rate, with
a higher balance all the way, also if a burst comes before the end.

What was not observed is assumed to be the worst: an agent that was not running takes it that the volume moved its burst
rate all the time. So a balance by model is too low rather than too high.

Small requests are not in the model. EBS counts a request below 1 MiB as 1 MiB unless it follows the one before it, so
that random requests spend credits many times faster than bytes do.

Source: AWS, *Throughput Optimized HDD and Cold HDD volumes*, EBS User Guide.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from elastio.units import MB

# Share of a full bucket below which a flush leaves the credits to applications.
RESERVE = 0.1
# A flush whose even rate is above this share of the burst rate is not slowed down: it would gain nothing.
NEAR_BURST = 0.9
# A flush gets at least this share of the base rate: a cache that is not flushed costs money all the time.
LEAST_FLUSH = 0.5
TIB = 1024**4


@dataclass(frozen=True, slots=True)
class CreditBucket:
    """The rates of one volume in MB/s, and the bytes of credit that it can hold."""

    base_mb_s: float
    burst_mb_s: float
    capacity_bytes: float = 0.0

    @property
    def reserve_bytes(self) -> float:
        """The credits that a flush leaves."""
        return RESERVE * self.capacity_bytes

    def available_mb_s(self, balance_bytes: float) -> float:
        """The most that the volume moves with this balance."""
        return self.burst_mb_s if balance_bytes > 0 else self.base_mb_s

    def after(self, balance_bytes: float, moved_mb_s: float, seconds: float) -> float:
        """The balance after the volume moved this much for `seconds`, at most `available_mb_s`."""
        earned = (self.base_mb_s - moved_mb_s) * MB * seconds
        return min(self.capacity_bytes, max(0.0, balance_bytes + earned))

    def lasts_s(self, balance_bytes: float, moved_mb_s: float, down_to_bytes: float = 0.0) -> float:
        """Seconds until the balance is down to `down_to_bytes` at this rate; infinite if it never is, or already is."""
        spent = (moved_mb_s - self.base_mb_s) * MB
        left = balance_bytes - down_to_bytes
        return left / spent if spent > 0 and left > 0 else math.inf

    def least_s(self, balance_bytes: float, moved_bytes: float) -> float:
        """The shortest time in seconds in which the volume moves so many bytes, from this balance on."""
        return max(moved_bytes / self.burst_mb_s, (moved_bytes - balance_bytes) / self.base_mb_s) / MB

    def sustained_mb_s(self, balance_bytes: float, seconds: float) -> float:
        """The most that the volume can move evenly for so many seconds with this balance."""
        return min(self.burst_mb_s, self.base_mb_s + balance_bytes / MB / seconds)

    def flush_limit_mb_s(self, balance_bytes: float, dirty_bytes: float, applications_mb_s: float) -> float | None:
        """The most at which `dirty_bytes` may be flushed so that the reserve is left; None: no limit is needed.

        Applications move `applications_mb_s` on the volume meanwhile. The limit is never below LEAST_FLUSH of the base.
        """
        spare = max(0.0, balance_bytes - self.reserve_bytes)
        if dirty_bytes * (1 - self.base_mb_s / self.burst_mb_s) <= spare:
            return None
        even = self.base_mb_s * dirty_bytes / (dirty_bytes - spare)
        if even >= NEAR_BURST * self.burst_mb_s:
            return None
        return max(LEAST_FLUSH * self.base_mb_s, even - applications_mb_s)

    def flush_mb_s(self, balance_bytes: float, applications_mb_s: float) -> float:
        """The most that a flush may write while applications move this much on the volume."""
        most = self.burst_mb_s if balance_bytes > self.reserve_bytes else self.base_mb_s
        return max(0.0, min(most, self.available_mb_s(balance_bytes)) - applications_mb_s)


@dataclass(frozen=True, slots=True)
class CreditBalance:
    """The credits of a volume at one time (CLOCK_BOOTTIME), by model."""

    balance_bytes: float
    at: float

    def unobserved(self, bucket: CreditBucket, until: float) -> CreditBalance:
        """The balance after a time in which nobody watched: as if the volume had moved its burst rate."""
        seconds = max(0.0, until - self.at)
        return CreditBalance(bucket.after(self.balance_bytes, bucket.burst_mb_s, seconds), max(until, self.at))

    def observed(self, bucket: CreditBucket, moved_mb_s: float, seconds: float) -> CreditBalance:
        """The balance after the volume was seen to move this much for `seconds`."""
        return CreditBalance(bucket.after(self.balance_bytes, moved_mb_s, seconds), self.at + seconds)


@dataclass(frozen=True, slots=True)
class CreditRule:
    """How a volume type derives its rates from the size: MB/s per TiB, and the most of each in MB/s."""

    base_mb_s_per_tib: float
    burst_mb_s_per_tib: float
    most_base_mb_s: float = math.inf
    most_burst_mb_s: float = math.inf

    def bucket(self, size_bytes: float) -> CreditBucket:
        """The bucket of a volume of this size."""
        tib = size_bytes / TIB
        base = min(self.most_base_mb_s, self.base_mb_s_per_tib * tib)
        burst = min(self.most_burst_mb_s, self.burst_mb_s_per_tib * tib)
        return CreditBucket(base, max(base, burst), size_bytes)


def constant(mb_s: float) -> CreditBucket:
    """A volume that has one speed and no credits."""
    return CreditBucket(mb_s, mb_s)
