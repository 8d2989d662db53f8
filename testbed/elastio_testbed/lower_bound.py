"""The least that a cache could have cost for the bursts it served. Pure.

A burst of S bytes that fills a cache volume's bandwidth Bc, and is flushed afterwards at Bb, needs a cache of S for
`S/Bc + S/Bb` seconds: `Bc * S * (S/Bc + S/Bb)`. That is not the least. With Bb bought on top of Bc, S * Bb/Bc has
flowed back when the burst ends: a cache of `S * (1 - Bb/Bc)`, for S/Bb seconds in all (docs/explanation/writeback.md).
bcache absorbs writes only up to a share of a cache set's buckets, so what S needs is S divided by that share, for both.
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


def least_agbs(dumped_bytes: float, speed: Bandwidths, share: float = DIRTY_SHARE) -> float:
    """AGBs of the smallest cache that absorbs `dumped_bytes` at full bandwidth and is flushed so meanwhile."""
    kept = dumped_bytes * (1 - speed.backing / speed.cache) / share
    return agbs((speed.cache + speed.backing) / MB, kept, dumped_bytes / speed.backing)


def naive_agbs(dumped_bytes: float, speed: Bandwidths, share: float = DIRTY_SHARE) -> float:
    """The same where nothing is flushed before the burst has ended."""
    seconds = dumped_bytes / speed.cache + dumped_bytes / speed.backing
    return agbs(speed.cache / MB, dumped_bytes / share, seconds)


def dumped_by_boost(phases: Sequence[tuple[float, float]], dumps: Sequence[Mapping[str, Any]]) -> list[int]:
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
