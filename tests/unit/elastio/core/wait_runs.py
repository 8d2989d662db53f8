"""Runs whose account is known, as the moments that a sampler would have read of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from elastio.core.waits import DiskCount, Instant, Totals, sample_of
from elastio.units import KIB, MB

STEP_S = 0.02


@dataclass(frozen=True)
class Stretch:
    """`seconds` in which so many tasks run and wait, and the disk and another one move `mb_s` and `other_mb_s`."""

    seconds: float
    running: int = 0
    waiting: int = 0
    mb_s: float = 0.0
    other_mb_s: float = 0.0
    request_bytes: int = 512 * KIB
    delayed: float = 0.0


def moments(run: Iterable[Stretch]) -> list[Instant]:
    """A moment each STEP_S, with what delay accounting would have counted."""
    at = moved = requests = busy = other = 0.0
    found: list[Instant] = []
    for stretch in run:
        for _ in range(round(stretch.seconds / STEP_S)):
            disk = DiskCount(round(moved), round(requests), busy)
            found.append(Instant(at, stretch.running, stretch.waiting, disk, {"vdb": other}, stretch.delayed * STEP_S))
            at += STEP_S
            moved += stretch.mb_s * MB * STEP_S
            requests += stretch.mb_s * MB * STEP_S / stretch.request_bytes
            busy += STEP_S if stretch.mb_s else 0.0
            other += STEP_S if stretch.other_mb_s else 0.0
    return found


def totals(found: Sequence[Instant], cap_mb_s: float | None = None, per_sample: int = 50) -> Totals:
    """The sums over samples of a second."""
    made = Totals()
    for first in range(0, len(found) - 1, per_sample):
        sample = sample_of(found[first : first + per_sample + 1])
        if sample is not None:
            made = made.added(sample, cap_mb_s)
    return made
