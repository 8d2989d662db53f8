"""Credits of throughput-optimised volumes. Pure.

Theory of operation. The size of such a volume sets two rates. It earns credits at the base rate, until its bucket is
full, and each byte that it moves costs one. With credits it moves up to the burst rate; without, up to the base rate:

    d balance / dt = base - moved      0 <= balance <= capacity
    moved <= burst where balance > 0, else <= base

A full bucket holds as many bytes as the volume has. A volume of constant speed is the same with base = burst and an
empty bucket, so that one model serves both.

A flush can wait, an application cannot. So a flush spends credits only down to a reserve, and from there on no more
than the base rate leaves: the reserve stays for reads, which no cache can serve before it has seen them.

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

    def flush_mb_s(self, balance_bytes: float, applications_mb_s: float) -> float:
        """The most that a flush may write while applications move this much on the volume."""
        most = self.burst_mb_s if balance_bytes > self.reserve_bytes else self.base_mb_s
        return max(0.0, min(most, self.available_mb_s(balance_bytes)) - applications_mb_s)


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
