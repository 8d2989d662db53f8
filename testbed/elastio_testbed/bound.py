"""The least that a cache could have cost for the bursts it served. Pure.

A burst of S bytes takes S/Bc to be written to the cache and S/Bb to be written back. A cache that is attached for
exactly that long, at exactly the size that the dirty data needs, costs `Bc * M * (S/Bc + S/Bb)`. bcache absorbs writes
only up to a share of a cache set's buckets, so what S needs is S divided by that share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elastio.units import MB, agbs

# bch_cutoff_writeback, the share for asynchronous writes, as systemd/modprobe.d/elastio.conf sets it.
DIRTY_SHARE = 0.70


@dataclass(frozen=True, slots=True)
class Bandwidths:
    """Bytes per second of the two volumes."""

    backing: float
    cache: float


def phase_bound_agbs(dumped_bytes: float, speed: Bandwidths, share: float = DIRTY_SHARE) -> float:
    """AGBs of the smallest cache that absorbs `dumped_bytes`, held no longer than the bytes need to pass through it."""
    seconds = dumped_bytes / speed.cache + dumped_bytes / speed.backing
    return agbs(speed.cache / MB, dumped_bytes / share, seconds)


def dumped_by_phase(phases: Sequence[tuple[float, float]], dumps: Sequence[Mapping[str, Any]]) -> list[int]:
    """Bytes dumped in each phase. A dump belongs to the first phase, `(begin, end)`, that it overlaps."""
    dumped = [0] * len(phases)
    for dump in dumps:
        for n, (begin, end) in enumerate(phases):
            if dump["began"] < end and begin < dump["ended"]:
                dumped[n] += int(dump["bytes"])
                break
    return dumped


def ratio(spent: float, bound: float) -> float | None:
    """How many times the bound was spent; None where there is no bound."""
    return round(spent / bound, 4) if bound else None
