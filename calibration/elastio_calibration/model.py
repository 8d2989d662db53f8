"""The prediction model: completion time and adjusted storage accumulation of a checkpointing application. Pure.

    T  = I*It + sum over the K checkpoints of Sc / B(Sc)
    C  = Bb*N*(T + Si/B(Si)) + Bc*M(Si)*D(Si) + sum over the K checkpoints of Bc*M(Sc)*D(Sc),    Ca = n*C

T is the completion time in seconds, Ca the adjusted storage accumulation of n VMs in AGBs (MB/s times GB times s). An
application dumps Si GB, computes for I iterations of It seconds, and dumps Sc GB K times. B(x) is the throughput of
writing x GB, D(x) the time for which the cache of that dump is paid, M(x) its size. Bb and N are bandwidth and size of
the backing volume, Bc is the bandwidth of a cache.

The published second formula has `Si/D(Si)`. A duration is needed there, so `Si/B(Si)` is used; `Reading.AS_PRINTED`
computes the other one for comparison. The publication buys the same cache for every checkpoint; here each may have
another, because the agent learns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from elastio.units import GB, MB, agbs


class Reading(StrEnum):
    """The two readings of the first bracket of the cost formula."""

    DURATION = "Si/B(Si)"
    AS_PRINTED = "Si/D(Si)"


@dataclass(frozen=True, slots=True)
class Dump:
    """One dump on one VM. `cache_mb_s` 0 and `cache_bytes` 0: no cache. `held_s`: D, the time the cache is paid for."""

    size_bytes: int
    throughput_mb_s: float
    cache_bytes: float = 0.0
    cache_mb_s: float = 0.0
    held_s: float = 0.0

    @property
    def seconds(self) -> float:
        """The time for which the application waits."""
        return self.size_bytes / MB / self.throughput_mb_s

    @property
    def cache_agbs(self) -> float:
        return agbs(self.cache_mb_s, self.cache_bytes, self.held_s)


@dataclass(frozen=True, slots=True)
class Volume:
    """The permanent volume: its bandwidth (Bb; Bc for static-fast) and its size (N)."""

    mb_s: float
    size_bytes: int


def completion_s(compute_s: float, checkpoints: Sequence[Dump]) -> float:
    """T, from the end of the initial dump to the end of the last checkpoint."""
    return compute_s + sum(dump.seconds for dump in checkpoints)


def accumulation_agbs(
    volume: Volume,
    compute_s: float,
    initial: Dump | None,
    checkpoints: Sequence[Dump],
    reading: Reading = Reading.DURATION,
) -> float:
    """C of one VM, in AGBs. `initial` None: the application writes nothing before it computes."""
    paid_s = completion_s(compute_s, checkpoints) + _initial_s(initial, reading)
    caches = sum(dump.cache_agbs for dump in (*([initial] if initial else []), *checkpoints))
    return agbs(volume.mb_s, volume.size_bytes, paid_s) + caches


def _initial_s(initial: Dump | None, reading: Reading) -> float:
    if initial is None:
        return 0.0
    if reading is Reading.DURATION:
        return initial.seconds
    return initial.size_bytes / GB / initial.held_s if initial.held_s else 0.0
