"""The lower bound of the cost of a cache for its burst. Pure.

A burst of S bytes that fills a cache volume's bandwidth Bc, and is flushed afterwards at Bb, needs a cache of S for
`S/Bc + S/Bb` seconds: `Bc * S * (S/Bc + S/Bb)`. This can be improved: with Bb bought in addition to Bc, S * Bb/Bc has
been written back when the burst ends, so a cache of `S * (1 - Bb/Bc)` for S/Bb seconds is enough
(docs/explanation/writeback.md). bcache absorbs writes only up to a share of a cache set's buckets, so S is divided by
that share in both cases.
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
    """AGBs of the smallest cache that absorbs `dumped_bytes` at full bandwidth and is flushed meanwhile."""
    kept = dumped_bytes * (1 - speed.backing / speed.cache) / share
    return agbs((speed.cache + speed.backing) / MB, kept, dumped_bytes / speed.backing)


def naive_agbs(dumped_bytes: float, speed: Bandwidths, share: float = DIRTY_SHARE) -> float:
    """AGBs of a cache that is flushed only after the burst."""
    seconds = dumped_bytes / speed.cache + dumped_bytes / speed.backing
    return agbs(speed.cache / MB, dumped_bytes / share, seconds)


def dumped_by_boost(boosts: Sequence[tuple[float, float]], dumps: Sequence[Mapping[str, Any]]) -> list[int]:
    """Bytes dumped in each boost. A dump belongs to the first boost, (begin, end), that it overlaps."""
    dumped = [0] * len(boosts)
    for dump in dumps:
        for n, (begin, end) in enumerate(boosts):
            if dump["began"] < end and begin < dump["ended"]:
                dumped[n] += int(dump["bytes"])
                break
    return dumped


def ratio(spent: float, bound: float) -> float | None:
    """The cost as a multiple of the bound; None without a bound."""
    return round(spent / bound, 4) if bound else None
