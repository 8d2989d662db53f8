"""The start times of the set-ups of a side-by-side run, such that no two of them dump at the same time. Pure.

The guests share the processors of one machine. While computing they are idle, so only dumps must not overlap. Flushes
of a cache are a light load; they do not overlap with the dumps of other set-ups where that can be avoided.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

from elastio_testbed.experiment import Scaled, Setup

# A dump takes longer than its size over the bandwidth: fsync, the filesystem, the wait for a cache.
SLACK = 1.05
SLACK_S = 2.0
# The granularity of start times, in parts of one iteration of the slowest set-up.
PARTS = 80
ROUNDS = 8

Spans = tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Busy:
    """When a set-up is busy, in seconds since its start: `dumps` of the application, `flushes` of its cache."""

    dumps: Spans
    flushes: Spans = ()


def busy(scaled: Scaled, setup: Setup) -> Busy:
    """From the earliest start to the latest end of each dump: the uncertainty adds up from dump to dump.

    A dump on a slow volume needs no more processor time than a flush. Only dumps at the speed of the fast volume have
    to be kept apart.
    """
    if setup is Setup.STATIC_SLOW:
        return Busy(())
    speed = scaled.fast_bytes_s if setup is Setup.STATIC_FAST else scaled.cache_bytes_s
    # A workload that moves more data than its dumps does so around them.
    times = scaled.experiment.workload.moved_bytes(scaled) / sum(scaled.dumps_bytes)
    earliest = latest = 0.0
    dumps, flushes = [], []
    for size in (dump * times for dump in scaled.dumps_bytes):
        end = latest + size / speed * SLACK + SLACK_S
        dumps.append((earliest, end))
        flushes.append((end, end + scaled.inactivity_delay_s + size / scaled.backing_bytes_s))
        earliest += size / speed + scaled.compute_each_s
        latest = end + scaled.compute_each_s
    is_cached = setup not in {Setup.STATIC_SLOW, Setup.STATIC_FAST}
    return Busy(tuple(dumps), tuple(flushes) if is_cached else ())


def starts(scaled: Scaled, setups: Sequence[Setup]) -> dict[Setup, float]:
    """The start time of each set-up in seconds; the first set-up starts at 0.

    Minimizes the overlap of dumps, then that of dumps with flushes, then the start times. See `overlap_s` for the
    overlap that remains.
    """
    work = {setup: busy(scaled, setup) for setup in setups}
    longest = max((b[0] - a[0] for w in work.values() for a, b in pairwise(w.dumps)), default=0.0)
    tries = [longest * part / PARTS for part in range(PARTS * len(setups))]
    chosen: dict[Setup, float] = {}
    for setup in setups:
        chosen[setup] = _best(work, chosen, setup, tries) if chosen else 0.0
    for _ in range(ROUNDS):
        before = dict(chosen)
        for setup in setups[1:]:
            others = {s: at for s, at in chosen.items() if s is not setup}
            chosen[setup] = _best(work, others, setup, tries)
        if chosen == before:
            break
    return chosen


def overlap_s(scaled: Scaled, chosen: Mapping[Setup, float]) -> float:
    """Seconds in which dumps of two set-ups may overlap, if no dump takes longer than expected."""
    return _cost({setup: busy(scaled, setup) for setup in chosen}, chosen)[0]


def _best(work: Mapping[Setup, Busy], others: Mapping[Setup, float], setup: Setup, tries: Sequence[float]) -> float:
    return min(tries, key=lambda at: (*_cost(work, {**others, setup: at}), at))


def _cost(work: Mapping[Setup, Busy], chosen: Mapping[Setup, float]) -> tuple[float, float]:
    dumps = flushes = 0.0
    for (a, at_a), (b, at_b) in combinations(chosen.items(), 2):
        dumps += _common(work[a].dumps, at_a, work[b].dumps, at_b)
        flushes += _common(work[a].flushes, at_a, work[b].dumps, at_b)
        flushes += _common(work[a].dumps, at_a, work[b].flushes, at_b)
    return round(dumps, 3), round(flushes, 3)


def _common(a: Spans, at_a: float, b: Spans, at_b: float) -> float:
    """Seconds that both sets of spans cover, each shifted by its start time."""
    return sum(
        max(0.0, min(end_a + at_a, end_b + at_b) - max(begin_a + at_a, begin_b + at_b))
        for begin_a, end_a in a
        for begin_b, end_b in b
    )
