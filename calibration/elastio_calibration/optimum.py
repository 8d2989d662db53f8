"""Which cache size for the checkpoints? Every calibrated one is tried; those that meet the goal compete."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from elastio.units import GB, format_duration
from elastio_calibration.application import Application
from elastio_calibration.errors import InfeasibleError, OutOfRangeError
from elastio_calibration.predict import CacheSizes, Forecast, Predictor


@dataclass(frozen=True, slots=True)
class Candidate:
    """M(Sc) at a bandwidth Bc, and what it leads to."""

    cache_bytes: int
    cache_mb_s: float
    forecast: Forecast

    def __str__(self) -> str:
        return f"a cache of {self.cache_bytes / GB:.4g} GB at {self.cache_mb_s:.4g} MB/s"


@dataclass(frozen=True, slots=True)
class Goal:
    """At most one of the three; none: the cheapest. `max_agbs` and `max_cost` are over all VMs."""

    max_time_s: float | None = None
    max_agbs: float | None = None
    max_cost: float | None = None


@dataclass(frozen=True, slots=True)
class Candidates:
    """The sizes to choose from, and why the other calibrated sizes are not among them."""

    accepted: tuple[Candidate, ...]
    refused: tuple[str, ...]


def candidates(
    predictors: Sequence[Predictor], application: Application, initial_bytes: int | None = None
) -> Candidates:
    """Every calibrated cache size of every profile (each has its own bandwidth Bc), by size.

    `initial_bytes` None: the first dump gets the same cache, or the only one that it was calibrated with. Raises
    OutOfRangeError where no size was calibrated for both the initial dump and the checkpoints.
    """
    found, refused = [], []
    for predictor in predictors:
        mb_s = predictor.profile.conditions.cache_mb_s
        for cache in predictor.throughput.caches(application.checkpoint_bytes):
            first = cache if initial_bytes is None else initial_bytes
            sizes = CacheSizes(first, cache, initial_is_asked=initial_bytes is not None)
            try:
                forecast = predictor.adaptive(application, sizes)
            except OutOfRangeError as error:
                refused.append(f"a cache of {cache / GB:.4g} GB at {mb_s:.4g} MB/s cannot be offered: {error}")
                continue
            found.append(Candidate(cache, mb_s, forecast))
    if not found:
        raise OutOfRangeError(refused[0] if refused else "no cache size was calibrated for this dataset")
    return Candidates(tuple(sorted(found, key=lambda c: (c.cache_mb_s, c.cache_bytes))), tuple(dict.fromkeys(refused)))


def best(accepted: Sequence[Candidate], goal: Goal) -> Candidate:
    """The cheapest that meets the deadline; under a cost cap the fastest. Raises InfeasibleError naming the nearest.

    A deadline is held against the upper end of the interval where there is one: it shall be met by the run that comes.
    Cheap is what has few AGBs; under a cap in currency, what costs little, and what has no price is left out.
    """
    if goal.max_time_s is not None:
        kept = [c for c in accepted if c.forecast.completion_s.safe_high <= goal.max_time_s]
        if not kept:
            raise InfeasibleError(_too_slow(accepted, goal.max_time_s))
        return min(kept, key=lambda c: (_price(c), c.forecast.completion_s.value))
    if goal.max_cost is not None:
        return _within_cost(accepted, goal.max_cost)
    if goal.max_agbs is None:
        return min(accepted, key=lambda c: (_price(c), c.forecast.completion_s.value))
    kept = [c for c in accepted if _price(c) <= goal.max_agbs]
    if not kept:
        least = min(accepted, key=_price)
        raise InfeasibleError(
            f"nothing costs as little as {goal.max_agbs:.0f} AGBs: the cheapest, {least}, costs "
            f"{_price(least):.0f} AGBs"
        )
    return min(kept, key=lambda c: (c.forecast.completion_s.value, _price(c)))


def _within_cost(accepted: Sequence[Candidate], most: float) -> Candidate:
    priced = [(c.forecast.cost.value, c) for c in accepted if c.forecast.cost is not None]
    if not priced:
        raise InfeasibleError(
            "no price is known for any of these caches beside such a backing volume: give the limit in AGBs with "
            "--max-agbs",
            code="prices",
        )
    kept = [(cost, c) for cost, c in priced if cost <= most]
    if not kept:
        least, cheapest = min(priced, key=lambda pair: pair[0])
        raise InfeasibleError(f"nothing costs as little as {most:g}: the cheapest, {cheapest}, costs {least:.4g}")
    return min(kept, key=lambda pair: (pair[1].forecast.completion_s.value, pair[0]))[1]


def _price(choice: Candidate) -> float:
    return choice.forecast.agbs.value


def _too_slow(accepted: Sequence[Candidate], max_time_s: float) -> str:
    fastest = min(accepted, key=lambda c: c.forecast.completion_s.safe_high)
    reached = fastest.forecast.completion_s.safe_high
    return (
        f"no calibrated cache size meets {format_duration(max_time_s)}: the fastest, {fastest}, needs up to "
        f"{format_duration(reached)} ({reached:.1f} s)"
    )
