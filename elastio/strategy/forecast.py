"""The next burst, predicted from the bursts before it. Pure.

Theory of operation. Batch jobs compute for a fixed time and then write: the *gap* between the end of a burst and the
begin of the next is constant, whatever the writing takes. Timers and checkpoints of databases begin at fixed times: the
*period* between two begins is constant. Both are known for every pair of bursts. The one that varies less predicts the
next burst, by the ratio of the median absolute deviation (MAD) to the median, which one odd interval does not move:

    expected begin = end of the last burst + median gap          or        begin of the last burst + median period

Nothing else is guessed. A load with other patterns has a large ratio, its predictions miss, and misses silence it.

Every burst is also predicted on paper, from what was known before it. A prediction is a *hit* if the burst began within
`tolerance_s` of it. The confidence is the share of hits among the last RECORD predictions, and after MISSES misses in a
row there is no forecast at all until the next hit on paper. A random load is hit by chance now and then, which ends the
silence, but not the low confidence: with a least confidence of 0.8 nothing is bought for it. A load that changed its
rhythm is missed until the median has followed, and trusted again four hits later.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import StrEnum
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from elastio.core.model import Forecast

# Intervals that must be known, unless a caller is content with fewer, and how many of the last ones count.
LEAST_INTERVALS = 2
KEPT_INTERVALS = 5
# Predictions on paper that the confidence is taken from.
RECORD = 5
# Misses in a row that silence a forecaster.
MISSES = 3
# Bursts that are looked at; older ones tell nothing about the next.
KEPT_BURSTS = 32
# The quantile of the bursts' sizes that a forecast promises: too little room costs more than too much.
SIZE_QUANTILE = 0.9


class Burst(NamedTuple):
    """One past burst. Times are seconds of one clock."""

    begun_at: float
    ended_at: float
    written_bytes: int


class Basis(StrEnum):
    """What the next burst is predicted from."""

    GAP = "gap"
    PERIOD = "period"


class Interval(NamedTuple):
    """The interval that varies least. `spread` is MAD over median; `low_s` and `high_s` are its quartiles."""

    basis: Basis
    median_s: float
    low_s: float
    high_s: float
    spread: float


class Attempt(NamedTuple):
    """One burst that was predicted on paper. `error_s`: by how much it began later than predicted."""

    basis: Basis
    error_s: float


def quantile(values: Sequence[float], share: float) -> float:
    """The least value that at least this share of the values does not exceed. Raises ValueError without values."""
    ordered = sorted(values)
    if not ordered:
        raise ValueError("no values have no quantile")
    return ordered[max(0, math.ceil(share * len(ordered) - 1e-9) - 1)]


def steadiest(bursts: Sequence[Burst], least: int = LEAST_INTERVALS) -> Interval | None:
    """The gap or the period between the last bursts, whichever varies less; None: fewer than `least` are known."""
    if len(bursts) <= least:
        return None
    return min((_interval(basis, _intervals(bursts, basis)) for basis in Basis), key=lambda i: i.spread)


def _intervals(bursts: Sequence[Burst], basis: Basis) -> list[float]:
    """The last gaps or periods."""
    pairs = list(pairwise(bursts))[-KEPT_INTERVALS:]
    return [after.begun_at - (before.ended_at if basis is Basis.GAP else before.begun_at) for before, after in pairs]


def _interval(basis: Basis, seconds: Sequence[float]) -> Interval:
    middle = median(seconds)
    deviation = median(abs(s - middle) for s in seconds)
    spread = deviation / middle if middle > 0 else math.inf
    return Interval(basis, middle, quantile(seconds, 0.25), quantile(seconds, 0.75), spread)


def next_begin(bursts: Sequence[Burst], least: int = LEAST_INTERVALS) -> tuple[Basis, float] | None:
    """When the burst after these is expected to begin, and from what; None: too few are known."""
    interval = steadiest(bursts, least)
    if interval is None:
        return None
    last = bursts[-1]
    since = last.ended_at if interval.basis is Basis.GAP else last.begun_at
    return interval.basis, since + interval.median_s


def attempts(bursts: Sequence[Burst], least: int = LEAST_INTERVALS) -> tuple[Attempt, ...]:
    """Every burst that could be predicted, from the bursts before it, oldest first."""
    kept = bursts[-KEPT_BURSTS:]
    found = []
    for index, burst in enumerate(kept):
        expected = next_begin(kept[:index], least)
        if expected is not None:
            found.append(Attempt(expected[0], burst.begun_at - expected[1]))
    return tuple(found)


def recent_errors(bursts: Sequence[Burst], least: int = LEAST_INTERVALS) -> tuple[float, ...]:
    """By how much the last bursts began later than predicted, in seconds, oldest first.

    Before MISSES of them were predicted: how far the known intervals are from their median.
    """
    past = attempts(bursts, least)
    if len(past) >= MISSES:
        return tuple(a.error_s for a in past[-RECORD:])
    interval = steadiest(bursts, least)
    if interval is None:
        return ()
    return tuple(s - interval.median_s for s in _intervals(bursts, interval.basis))


def confidence(past: Sequence[Attempt], tolerance_s: float) -> float:
    """The share of hits among the last predictions, 0 to 1; 1 without any: the intervals alone speak then."""
    hits = [abs(a.error_s) <= tolerance_s for a in past[-RECORD:]]
    return sum(hits) / len(hits) if hits else 1.0


def is_silent(past: Sequence[Attempt], tolerance_s: float) -> bool:
    """The last MISSES predictions were all wrong."""
    last = past[-MISSES:]
    return len(last) == MISSES and all(abs(a.error_s) > tolerance_s for a in last)


def forecast(bursts: Sequence[Burst], now: float, tolerance_s: float, least: int = LEAST_INTERVALS) -> Forecast | None:
    """The next burst; None: too few are known, the forecaster is silent, or the burst is overdue by the tolerance.

    Bursts are in their order and ended. Before anything was predicted, intervals that differ by more than
    `tolerance_s` are no basis for a forecast.
    """
    kept = bursts[-KEPT_BURSTS:]
    expected, interval = next_begin(kept, least), steadiest(kept, least)
    if expected is None or interval is None or now > expected[1] + tolerance_s:
        return None
    past = attempts(kept, least)
    if is_silent(past, tolerance_s) or (not past and interval.high_s - interval.low_s > tolerance_s):
        return None
    written = quantile([b.written_bytes for b in kept[-KEPT_INTERVALS:]], SIZE_QUANTILE)
    return Forecast(expected[1], int(written), confidence(past, tolerance_s))
