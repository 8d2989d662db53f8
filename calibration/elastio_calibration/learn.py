"""Derive an application from one benchmark run: from the samples in the agent's ledger, or from a throughput trace.

The first burst is the initial dump, the others are checkpoints. The benchmark needs at least one of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from elastio.accounting.history_store import read_samples
from elastio.accounting.ledger import Ledger
from elastio.units import GB, MB
from elastio_adviser.rates import Rate
from elastio_adviser.traces import read_csv
from elastio_calibration.application import ApplicationError

# A burst ends after QUIET_S below this share of the highest write rate.
QUIET_SHARE, QUIET_S = 0.1, 10.0
EVER = 1e12


@dataclass(frozen=True, slots=True)
class Burst:
    """Begin and end in seconds since the first sample, and bytes written."""

    began_s: float
    ended_s: float
    size_bytes: float


def from_trace(path: Path, device: str = "") -> dict[str, Any]:
    """From a CSV file of throughput; `device` selects one of several. Raises ElastioError for fewer than two bursts."""
    return _described(bursts(read_csv(path, device)), str(path))


def bursts(rates: Sequence[Rate]) -> tuple[Burst, ...]:
    """Periods of writing, separated by QUIET_S with little or none."""
    least = QUIET_SHARE * max((r.write_mb_s for r in rates), default=0.0)
    found: list[Burst] = []
    for r in rates:
        if r.write_mb_s <= least:
            continue
        moved, ended = r.write_mb_s * MB * r.seconds, r.at_s + r.seconds
        if found and r.at_s - found[-1].ended_s < QUIET_S:
            found[-1] = Burst(found[-1].began_s, ended, found[-1].size_bytes + moved)
        else:
            found.append(Burst(r.at_s, ended, moved))
    return tuple(found)


def from_ledger(path: Path, device: str = "") -> dict[str, Any]:
    """From the samples of a ledger that holds one benchmark run; `device` (UUID) selects one. Raises ElastioError.

    Its cycles are not enough: they do not have the bytes written before the cache was attached.
    """
    if not path.exists():
        raise ApplicationError(f"there is no ledger at {path}")
    if not path.stat().st_size:
        raise ApplicationError(f"{path} is empty: no agent has written to it")
    with Ledger(path, read_only=True) as ledger:
        sampled = read_samples(ledger.file, 0.0, EVER)
    known = [uuid for uuid in sampled if device in ("", uuid)]
    if len(known) != 1:
        raise ApplicationError(_not_one_device(path, device, list(sampled)), code="device" if sampled else "empty")
    runs = sampled[known[0]]
    begun = runs[0].begun_wall
    return _described(
        bursts([Rate(r.begun_wall - begun, r.seconds, r.read_mb_s, r.write_mb_s) for r in runs]), str(path)
    )


def _not_one_device(path: Path, device: str, known: Sequence[str]) -> str:
    if not known:
        return f"{path} has no samples: use a trace with --learn-trace"
    if device:
        return f"{path} has no samples of {device}; it has those of {', '.join(known)}"
    return f"{path} has samples of {len(known)} devices: select one with --device ({', '.join(known)})"


def _described(found: Sequence[Burst], source: str) -> dict[str, Any]:
    if len(found) < 2:
        raise ApplicationError(
            f"{source} shows {len(found)} burst{'s' if len(found) != 1 else ''}: a benchmark run has an initial dump "
            "and at least one checkpoint",
            code="bursts",
        )
    first, *later = found
    gaps = [b.began_s - a.ended_s for a, b in zip(found, later, strict=False)]
    return {
        "initial_gb": first.size_bytes / GB,
        "checkpoint_gb": mean(b.size_bytes for b in later) / GB,
        "checkpoints": len(later),
        "iterations": len(later),
        "iteration_s": max(0.0, mean(gaps)),
    }
