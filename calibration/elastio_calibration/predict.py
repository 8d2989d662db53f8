"""From a profile and an application to completion time and cost of the three set-ups, with intervals.

An interval holds 95 % of single runs, as far as the repeats of the calibration tell: the spread of one run around the
mean (independent from dump to dump) and the uncertainty of the mean itself (the same for every dump of one kind).
Without repeats there is no interval.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import sqrt

from scipy.stats import t as student

from elastio.units import agbs, format_duration
from elastio_calibration import prices
from elastio_calibration.application import Application
from elastio_calibration.curves import Curve, Estimate, holding, learning, throughput
from elastio_calibration.errors import OutsideError
from elastio_calibration.measurement import Setup
from elastio_calibration.model import Dump, Volume, accumulation_agbs, completion_s
from elastio_calibration.profile import Profile

CERTAINTY = 0.95


@dataclass(frozen=True, slots=True)
class Interval:
    """`low` and `high` None: nothing was measured twice, so the spread is unknown."""

    value: float
    low: float | None = None
    high: float | None = None

    @property
    def safe_high(self) -> float:
        """The upper end, or the value where no interval is known."""
        return self.value if self.high is None else self.high


@dataclass(frozen=True, slots=True)
class Forecast:
    """One set-up. `completion_s` is T, `agbs` Ca over all VMs; `cost` None: no prices are known."""

    setup: Setup
    completion_s: Interval
    agbs: Interval
    cost: float | None
    initial: Dump | None
    checkpoints: tuple[Dump, ...]
    notes: tuple[str, ...] = ()

    @property
    def checkpoint_cache_bytes(self) -> float:
        """M(Sc) of the last checkpoint: what the agent has learned by then."""
        return self.checkpoints[-1].cache_bytes


@dataclass(frozen=True, slots=True)
class CacheSizes:
    """What is bought: `initial_bytes` first; then `checkpoint_bytes` each time, or (None) what the agent learns."""

    initial_bytes: int
    checkpoint_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class _Written:
    """A dump and how sure its two figures are."""

    dump: Dump
    rate: Estimate
    held: Estimate | None = None


@dataclass(frozen=True, slots=True)
class _Course:
    """What a set-up does over a whole run."""

    setup: Setup
    volume: Volume
    initial: _Written | None
    checkpoints: tuple[_Written, ...]
    notes: tuple[str, ...] = field(default=())


class Predictor:
    """Predicts from one profile. `backing_bytes` is N; by default that of the machine that was calibrated."""

    def __init__(self, profile: Profile, backing_bytes: int | None = None, pattern: str = "write") -> None:
        self.profile = profile
        self.backing_bytes = backing_bytes or profile.backing_bytes
        usable = [m for m in profile.measurements if m.pattern == pattern]
        cached = [m for m in usable if m.setup is Setup.ADAPTIVE]
        self.throughput, self.holding, self.learning = throughput(cached), holding(cached), learning(cached)
        self._static: dict[Setup, Curve] = {
            setup: throughput(m for m in usable if m.setup is setup) for setup in (Setup.STATIC_SLOW, Setup.STATIC_FAST)
        }
        self._known: dict[tuple[int, int], _Written] = {}

    def all_setups(self, application: Application, sizes: CacheSizes) -> tuple[Forecast, ...]:
        """static-slow, static-fast and adaptive."""
        statics = (self.static(setup, application) for setup in (Setup.STATIC_SLOW, Setup.STATIC_FAST))
        return (*statics, self.adaptive(application, sizes))

    def static(self, setup: Setup, application: Application) -> Forecast:
        """One volume, slow or fast. Where its throughput was not measured it is the bandwidth that is reserved."""
        conditions = self.profile.conditions
        mb_s = conditions.backing_mb_s if setup is Setup.STATIC_SLOW else conditions.cache_mb_s
        notes: dict[str, None] = {}

        def written(size_bytes: int) -> _Written:
            try:
                rate = self._static[setup].at(size_bytes)
            except OutsideError:
                rate = Estimate(mb_s, 0.0, 0.0, 0)
                notes[f"{setup}: not measured at this size, taken at its reserved {mb_s:.4g} MB/s"] = None
            return _Written(Dump(size_bytes, rate.value), rate)

        initial = written(application.initial_bytes) if application.initial_bytes else None
        checkpoints = (written(application.checkpoint_bytes),) * application.checkpoints
        volume = Volume(mb_s, self.backing_bytes)
        return self._forecast(_Course(setup, volume, initial, checkpoints, tuple(notes)), application)

    def adaptive(self, application: Application, sizes: CacheSizes) -> Forecast:
        """The adaptive device. Raises OutsideError where a dataset and its cache were not calibrated."""
        initial = None
        size = sizes.initial_bytes
        if application.initial_bytes:
            initial = self._written(application.initial_bytes, size)
            size = self._next(application.initial_bytes, size, sizes)
        elif sizes.checkpoint_bytes is not None:
            size = sizes.checkpoint_bytes
        checkpoints = []
        for _ in range(application.checkpoints):
            checkpoints.append(self._written(application.checkpoint_bytes, size))
            size = self._next(application.checkpoint_bytes, size, sizes)
        volume = Volume(self.profile.conditions.backing_mb_s, self.backing_bytes)
        notes = _overlap(application, checkpoints)
        return self._forecast(_Course(Setup.ADAPTIVE, volume, initial, tuple(checkpoints), notes), application)

    def _next(self, dataset: int, cache: int, sizes: CacheSizes) -> int:
        if sizes.checkpoint_bytes is not None:
            return sizes.checkpoint_bytes
        return round(self.learning.at(dataset, cache).value)

    def _written(self, dataset: int, cache: int) -> _Written:
        if (dataset, cache) not in self._known:
            rate, held = self.throughput.at(dataset, cache), self.holding.at(dataset, cache)
            dump = Dump(dataset, rate.value, cache, self.profile.conditions.bought_mb_s, held.value)
            self._known[dataset, cache] = _Written(dump, rate, held)
        return self._known[dataset, cache]

    def _forecast(self, course: _Course, application: Application) -> Forecast:
        dumps = tuple(w.dump for w in course.checkpoints)
        initial = course.initial.dump if course.initial else None
        compute_s, vms = application.compute_s, application.vms
        total = completion_s(compute_s, dumps)
        spent = vms * accumulation_agbs(course.volume, compute_s, initial, dumps)
        every = (*([course.initial] if course.initial else []), *course.checkpoints)
        per_second = vms * agbs(course.volume.mb_s, course.volume.size_bytes, 1.0)
        agbs_spread = sqrt((per_second * _time_spread(every)) ** 2 + (vms * _holding_spread(every)) ** 2)
        known = self.profile.prices
        paid_s = total + (initial.seconds if initial else 0.0)
        bought = (*([initial] if initial else []), *dumps)
        return Forecast(
            setup=course.setup,
            completion_s=_interval(total, _time_spread(course.checkpoints), course.checkpoints),
            agbs=_interval(spent, agbs_spread, every),
            cost=None if known is None else prices.cost(known, course.setup, paid_s, bought, vms),
            initial=initial,
            checkpoints=dumps,
            notes=course.notes,
        )


def _overlap(application: Application, checkpoints: Sequence[_Written]) -> tuple[str, ...]:
    held_s = max(w.dump.held_s for w in checkpoints)
    if held_s <= application.interval_s:
        return ()
    note = (
        f"adaptive: a cache is held for {format_duration(held_s)} and the next checkpoint comes after "
        f"{format_duration(application.interval_s)} of computing: bursts would meet the flush of the one before, "
        "which no calibration covers, so real times are longer"
    )
    return (note,)


def _time_spread(written: Sequence[_Written]) -> float:
    """Standard deviation of the time of all dumps together."""
    return _spread((w.dump.seconds, w.rate, (w.dump.size_bytes, w.dump.cache_bytes)) for w in written)


def _holding_spread(written: Sequence[_Written]) -> float:
    """Standard deviation of the AGBs of all caches together."""
    return _spread(
        (w.dump.cache_agbs, w.held, (w.dump.size_bytes, w.dump.cache_bytes)) for w in written if w.held is not None
    )


def _spread(parts: Iterable[tuple[float, Estimate, tuple[float, float]]]) -> float:
    own = 0.0
    shared: dict[tuple[float, float], float] = defaultdict(float)
    for amount, estimate, key in parts:
        own += (amount * estimate.noise) ** 2
        shared[key] += amount * estimate.error
    return sqrt(own + sum(s**2 for s in shared.values()))


def _interval(value: float, spread: float, written: Sequence[_Written]) -> Interval:
    freedom = min(w.rate.freedom if w.held is None else min(w.rate.freedom, w.held.freedom) for w in written)
    if freedom < 1:
        return Interval(value)
    half = float(student.ppf((1 + CERTAINTY) / 2, freedom)) * spread
    return Interval(value, max(0.0, value - half), value + half)
