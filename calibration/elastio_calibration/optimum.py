"""Which cache size for the checkpoints? Every calibrated one is tried; those that meet the wish compete."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from elastio.units import GB, format_duration
from elastio_calibration.application import Application
from elastio_calibration.errors import ImpossibleError, OutsideError
from elastio_calibration.predict import CacheSizes, Forecast, Predictor


@dataclass(frozen=True, slots=True)
class Choice:
    """M(Sc) at a bandwidth Bc, and what it leads to."""

    cache_bytes: int
    cache_mb_s: float
    forecast: Forecast

    def __str__(self) -> str:
        return f"a cache of {self.cache_bytes / GB:.4g} GB at {self.cache_mb_s:.4g} MB/s"


@dataclass(frozen=True, slots=True)
class Wish:
    """At most one of the three; none: the cheapest. `max_agbs` and `max_cost` are over all VMs."""

    max_time_s: float | None = None
    max_agbs: float | None = None
    max_cost: float | None = None


def choices(
    predictors: Sequence[Predictor], application: Application, initial_bytes: int | None = None
) -> tuple[Choice, ...]:
    """Every calibrated cache size of every profile (each has its own bandwidth Bc), by size.

    `initial_bytes` None: the first dump gets the same cache. Raises OutsideError where no size was calibrated for both
    the initial dump and the checkpoints.
    """
    found, refused = [], []
    for predictor in predictors:
        for cache in predictor.throughput.caches(application.checkpoint_bytes):
            sizes = CacheSizes(cache if initial_bytes is None else initial_bytes, cache)
            try:
                forecast = predictor.adaptive(application, sizes)
            except OutsideError as error:
                refused.append(str(error))
                continue
            found.append(Choice(cache, predictor.profile.conditions.cache_mb_s, forecast))
    if not found:
        raise OutsideError(refused[0] if refused else "no cache size was calibrated for this dataset")
    return tuple(sorted(found, key=lambda c: (c.cache_mb_s, c.cache_bytes)))


def best(offered: Sequence[Choice], wish: Wish) -> Choice:
    """The cheapest that meets the deadline; under a cost cap the fastest. Raises ImpossibleError naming the nearest.

    A deadline is held against the upper end of the interval where there is one: it shall be met by the run that comes.
    """
    if wish.max_time_s is not None:
        kept = [c for c in offered if c.forecast.completion_s.safe_high <= wish.max_time_s]
        if not kept:
            raise ImpossibleError(_too_slow(offered, wish.max_time_s))
        return min(kept, key=lambda c: (_price(c), c.forecast.completion_s.value))
    if wish.max_agbs is None and wish.max_cost is None:
        return min(offered, key=lambda c: (_price(c), c.forecast.completion_s.value))
    kept = [c for c in offered if _affordable(c, wish)]
    if not kept:
        raise ImpossibleError(_too_dear(offered, wish))
    return min(kept, key=lambda c: (c.forecast.completion_s.value, _price(c)))


def _price(choice: Choice) -> float:
    return choice.forecast.agbs.value


def _affordable(choice: Choice, wish: Wish) -> bool:
    forecast = choice.forecast
    if wish.max_cost is not None:
        if forecast.cost is None:
            raise ImpossibleError("the profile holds no prices: give the limit in AGBs with --max-agbs")
        return forecast.cost <= wish.max_cost
    return wish.max_agbs is None or forecast.agbs.value <= wish.max_agbs


def _too_slow(offered: Sequence[Choice], max_time_s: float) -> str:
    fastest = min(offered, key=lambda c: c.forecast.completion_s.safe_high)
    reached = fastest.forecast.completion_s.safe_high
    return (
        f"no calibrated cache size meets {format_duration(max_time_s)}: the fastest, {fastest}, needs up to "
        f"{format_duration(reached)} ({reached:.1f} s)"
    )


def _too_dear(offered: Sequence[Choice], wish: Wish) -> str:
    cheapest = min(offered, key=_price)
    if wish.max_cost is not None:
        least = cheapest.forecast.cost or 0.0
        return f"nothing costs as little as {wish.max_cost:g}: the cheapest, {cheapest}, costs {least:.4f}"
    return (
        f"nothing costs as little as {wish.max_agbs:.0f} AGBs: the cheapest, {cheapest}, costs "
        f"{cheapest.forecast.agbs.value:.0f} AGBs"
    )
