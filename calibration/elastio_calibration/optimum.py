"""Choose the cache size for the checkpoints from all calibrated sizes, by a deadline or a budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from elastio.units import GB, format_duration
from elastio_calibration.application import Application
from elastio_calibration.errors import InfeasibleError, OutOfRangeError
from elastio_calibration.predict import CacheSizes, Forecast, Predictor


@dataclass(frozen=True, slots=True)
class Candidate:
    """A cache size M(Sc) at a bandwidth Bc, with its forecast."""

    cache_bytes: int
    cache_mb_s: float
    forecast: Forecast

    def __str__(self) -> str:
        return f"a cache of {self.cache_bytes / GB:.4g} GB at {self.cache_mb_s:.4g} MB/s"


@dataclass(frozen=True, slots=True)
class Goal:
    """At most one limit; without one the cheapest is best. `max_agbs` and `max_cost` are for all VMs together."""

    max_time_s: float | None = None
    max_agbs: float | None = None
    max_cost: float | None = None


@dataclass(frozen=True, slots=True)
class Candidates:
    """The sizes to choose from, and a reason for each calibrated size that is not among them."""

    accepted: tuple[Candidate, ...]
    refused: tuple[str, ...]


def candidates(
    predictors: Sequence[Predictor], application: Application, initial_bytes: int | None = None
) -> Candidates:
    """Every calibrated cache size of every profile (each has its own bandwidth Bc), by bandwidth and size.

    `initial_bytes` None: the initial dump gets the same cache, or the only one that it was calibrated with. Raises
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
                refused.append(f"a cache of {cache / GB:.4g} GB at {mb_s:.4g} MB/s is not a candidate: {error}")
                continue
            found.append(Candidate(cache, mb_s, forecast))
    if not found:
        raise OutOfRangeError(refused[0] if refused else "no cache size was calibrated for this dataset")
    return Candidates(tuple(sorted(found, key=lambda c: (c.cache_mb_s, c.cache_bytes))), tuple(dict.fromkeys(refused)))


def best(accepted: Sequence[Candidate], goal: Goal) -> Candidate:
    """The cheapest that meets the deadline; within a budget the fastest. Raises InfeasibleError, naming the nearest.

    A deadline is compared with the upper end of the interval where there is one, because one run must meet it. The
    cheapest has the fewest AGBs; with a budget in currency the least cost, and sizes without a price are skipped.
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
            f"no calibrated cache size costs at most {goal.max_agbs:.0f} AGBs: the cheapest, {least}, costs "
            f"{_price(least):.0f} AGBs"
        )
    return min(kept, key=lambda c: (c.forecast.completion_s.value, _price(c)))


def _within_cost(accepted: Sequence[Candidate], most: float) -> Candidate:
    priced = [(c.forecast.cost.value, c) for c in accepted if c.forecast.cost is not None]
    if not priced:
        raise InfeasibleError(
            "the profile has no price for these caches with this backing volume: use --max-agbs",
            code="prices",
        )
    kept = [(cost, c) for cost, c in priced if cost <= most]
    if not kept:
        least, cheapest = min(priced, key=lambda pair: pair[0])
        text = f"no calibrated cache size costs at most {most:g}: the cheapest, {cheapest}, costs {least:.4g}"
        raise InfeasibleError(text)
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
