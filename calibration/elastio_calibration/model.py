"""The prediction model: completion time and adjusted storage accumulation of a checkpointing application. Pure.

    T  = I*It + sum over the K checkpoints of Sc / B(Sc)
    C  = Bb*N*(T + Si/B(Si)) + Bc*M(Si)*D(Si) + sum over the K checkpoints of Bc*M(Sc)*D(Sc),    Ca = n*C

The published second formula reads `Si/D(Si)`. A duration is needed there, so `Si/B(Si)` is taken; `Reading.AS_PRINTED`
computes the other one, to compare. The publication buys the same cache for every checkpoint; here each may have its
own, because the agent learns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from elastio.units import GB, MB, agbs


class Reading(StrEnum):
    """How the first bracket of the cost formula is read."""

    DURATION = "Si/B(Si)"
    AS_PRINTED = "Si/D(Si)"


@dataclass(frozen=True, slots=True)
class Dump:
    """One dump on one VM. `cache_mb_s` 0 and `cache_bytes` 0: no cache; `held_s` is D, while the cache is paid for."""

    size_bytes: int
    throughput_mb_s: float
    cache_bytes: float = 0.0
    cache_mb_s: float = 0.0
    held_s: float = 0.0

    @property
    def seconds(self) -> float:
        """How long the application waits for it."""
        return self.size_bytes / MB / self.throughput_mb_s

    @property
    def cache_agbs(self) -> float:
        return agbs(self.cache_mb_s, self.cache_bytes, self.held_s)


@dataclass(frozen=True, slots=True)
class Volume:
    """The permanent volume: its bandwidth (Bb, in static-fast Bc) and its size (N)."""

    mb_s: float
    size_bytes: int


def completion_s(compute_s: float, checkpoints: Sequence[Dump]) -> float:
    """T: from the end of the initial dump to the end of the last checkpoint."""
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
