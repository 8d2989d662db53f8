"""Predict completion time and cost of the three set-ups from a profile and an application, with intervals.

An interval contains 95 % of single runs, estimated from the repeats of the calibration: the spread of one run around
the mean (independent between dumps) and the error of the mean itself (the same for all dumps of one size and cache).
Without repeats there is no interval.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import hypot, sqrt

from scipy.stats import t as student

from elastio.units import GB, agbs, format_duration
from elastio_calibration import prices
from elastio_calibration.application import Application
from elastio_calibration.curves import Curve, Estimate, holding, is_same, learning, throughput
from elastio_calibration.errors import OutOfRangeError
from elastio_calibration.measurement import Setup
from elastio_calibration.model import Dump, Volume, accumulation_agbs, completion_s
from elastio_calibration.profile import Profile

CERTAINTY = 0.95


@dataclass(frozen=True, slots=True)
class Interval:
    """`low` and `high` None: nothing was repeated, so the spread is unknown."""

    value: float
    low: float | None = None
    high: float | None = None

    @property
    def safe_high(self) -> float:
        """The upper end, or the value where the interval is unknown."""
        return self.value if self.high is None else self.high


@dataclass(frozen=True, slots=True)
class Forecast:
    """One set-up: `completion_s` is T; `agbs` (Ca) and `cost` are for all VMs; `cost` None: no prices."""

    setup: Setup
    completion_s: Interval
    agbs: Interval
    cost: Interval | None
    initial: Dump | None
    checkpoints: tuple[Dump, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CacheSizes:
    """The caches to buy: `initial_bytes` first; then `checkpoint_bytes`, or (None) the size that the agent learns.

    `initial_is_asked` False: where the first dump was calibrated with only one cache, it gets that one instead.
    """

    initial_bytes: int
    checkpoint_bytes: int | None = None
    initial_is_asked: bool = True


@dataclass(frozen=True, slots=True)
class _Written:
    """A dump with the estimates of its two figures."""

    dump: Dump
    rate: Estimate
    held: Estimate | None = None


@dataclass(frozen=True, slots=True)
class _Course:
    """All dumps of one set-up over a whole run."""

    setup: Setup
    volume: Volume
    initial: _Written | None
    checkpoints: tuple[_Written, ...]
    notes: tuple[str, ...] = field(default=())


class Predictor:
    """Predicts from one profile. `backing_bytes` is N; by default the calibrated size.

    The prices are for volumes of the calibrated size: with another N there is no cost.
    """

    def __init__(self, profile: Profile, backing_bytes: int | None = None, pattern: str = "write") -> None:
        self.profile = profile
        self.backing_bytes = backing_bytes or profile.backing_bytes
        fits = is_same(self.backing_bytes, profile.backing_bytes)
        self.prices = profile.prices if fits else None
        self._unpriced = () if fits or profile.prices is None else (_other_size(profile.backing_bytes),)
        usable = [m for m in profile.measurements if m.pattern == pattern]
        cached = [m for m in usable if m.setup is Setup.ADAPTIVE]
        self.throughput, self.holding, self.learning = throughput(cached), holding(cached), learning(cached)
        self._static: dict[Setup, Curve] = {
            setup: throughput(m for m in usable if m.setup is setup) for setup in (Setup.STATIC_SLOW, Setup.STATIC_FAST)
        }
        self._known: dict[tuple[int, int], _Written] = {}
        self._learned: dict[tuple[int, int], int] = {}

    def all_setups(self, application: Application, sizes: CacheSizes) -> tuple[Forecast, ...]:
        """static-slow, static-fast and adaptive."""
        statics = (self.static(setup, application) for setup in (Setup.STATIC_SLOW, Setup.STATIC_FAST))
        return (*statics, self.adaptive(application, sizes))

    def static(self, setup: Setup, application: Application) -> Forecast:
        """One slow or fast volume. Its provisioned bandwidth stands for a throughput that was not measured."""
        conditions = self.profile.conditions
        mb_s = conditions.backing_mb_s if setup is Setup.STATIC_SLOW else conditions.cache_mb_s
        notes: dict[str, None] = {}

        def written(size_bytes: int) -> _Written:
            try:
                rate = self._static[setup].at(size_bytes)
            except OutOfRangeError:
                rate = Estimate(mb_s, 0.0, 0.0, 0)
                notes[f"{setup}: not measured at this size; its provisioned {mb_s:.4g} MB/s are used"] = None
            return _Written(Dump(size_bytes, rate.value), rate)

        initial = written(application.initial_bytes) if application.initial_bytes else None
        checkpoints = (written(application.checkpoint_bytes),) * application.checkpoints
        volume = Volume(mb_s, self.backing_bytes)
        return self._forecast(_Course(setup, volume, initial, checkpoints, tuple(notes)), application)

    def adaptive(self, application: Application, sizes: CacheSizes) -> Forecast:
        """The adaptive device. Raises OutOfRangeError where a dataset and its cache were not calibrated."""
        written: list[_Written] = []
        notes: dict[str, None] = {}
        size, is_asked = sizes.initial_bytes, sizes.initial_is_asked
        if not application.initial_bytes and sizes.checkpoint_bytes is not None:
            size, is_asked = sizes.checkpoint_bytes, True
        for dataset in _datasets(application):
            if written:
                size, is_asked = self._next(written[-1].dump.size_bytes, size, sizes)
            if not is_asked:
                size = self._only(dataset, size, notes)
            written.append(self._written(dataset, size))
        notes |= dict.fromkeys(_overlap(application, written))
        initial, checkpoints = (written[0], written[1:]) if application.initial_bytes else (None, written)
        volume = Volume(self.profile.conditions.backing_mb_s, self.backing_bytes)
        course = _Course(Setup.ADAPTIVE, volume, initial, tuple(checkpoints), tuple(notes))
        return self._forecast(course, application)

    def _next(self, dataset: int, cache: int, sizes: CacheSizes) -> tuple[int, bool]:
        """The size of the next cache, and whether the caller asked for it."""
        if sizes.checkpoint_bytes is not None:
            return sizes.checkpoint_bytes, True
        if (dataset, cache) not in self._learned:
            self._learned[dataset, cache] = round(self.learning.at(dataset, cache).value)
        return self._learned[dataset, cache], False

    def _only(self, dataset: int, cache: int, notes: dict[str, None]) -> int:
        """The only cache size that this dataset was calibrated with, else the size that would be bought."""
        only = self.throughput.only_cache(dataset)
        if only is None or is_same(only, cache):
            return cache
        notes[
            f"adaptive: dumps of {dataset / GB:.4g} GB were calibrated only with a cache of {only / GB:.4g} GB, which "
            "is used instead of the size that the agent would buy"
        ] = None
        return only

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
        caches = _holding_spread(every, lambda dump: dump.cache_agbs)
        agbs_spread = hypot(per_second * _time_spread(every), vms * caches)
        return Forecast(
            setup=course.setup,
            completion_s=_interval(total, _time_spread(course.checkpoints), course.checkpoints),
            agbs=_interval(spent, agbs_spread, every),
            cost=self._cost(course.setup, total + (initial.seconds if initial else 0.0), every, vms),
            initial=initial,
            checkpoints=dumps,
            notes=(*course.notes, *self._unpriced),
        )

    def _cost(self, setup: Setup, paid_s: float, written: Sequence[_Written], vms: int) -> Interval | None:
        known = self.prices
        if known is None:
            return None
        value = prices.cost(known, setup, paid_s, [w.dump for w in written], vms)
        if value is None:
            return None
        per_second = (prices.permanent_per_hour(known, setup) or 0.0) / 3600
        caches = _holding_spread(written, lambda dump: prices.of_cache(known, dump) or 0.0)
        return _interval(value, vms * hypot(per_second * _time_spread(written), caches), written)


def _other_size(calibrated_bytes: int) -> str:
    return f"no cost: the prices are for a backing volume of {calibrated_bytes / GB:.4g} GB, and N differs"


def _datasets(application: Application) -> tuple[int, ...]:
    """The sizes of all dumps, in order."""
    first = (application.initial_bytes,) if application.initial_bytes else ()
    return first + (application.checkpoint_bytes,) * application.checkpoints


def _overlap(application: Application, written: Sequence[_Written]) -> tuple[str, ...]:
    """A note where a dump begins before the cache of the previous one is released. A cache is held from about the
    beginning of its dump."""
    left_s = max((w.dump.held_s - w.dump.seconds for w in written[:-1]), default=0.0)
    if left_s <= application.interval_s:
        return ()
    note = (
        f"adaptive: a cache is held for {format_duration(left_s)} after its dump, and the next dump begins after "
        f"{format_duration(application.interval_s)} of computing: it overlaps the previous flush, which the "
        "calibration does not cover; time and caches of the real run may differ"
    )
    return (note,)


def _time_spread(written: Sequence[_Written]) -> float:
    """Standard deviation of the total time of all dumps."""
    return _spread((w.dump.seconds, w.rate, (w.dump.size_bytes, w.dump.cache_bytes)) for w in written)


def _holding_spread(written: Sequence[_Written], price: Callable[[Dump], float]) -> float:
    """Standard deviation of the total cost of all caches; `price` is proportional to the time a cache is held."""
    return _spread(
        (price(w.dump), w.held, (w.dump.size_bytes, w.dump.cache_bytes)) for w in written if w.held is not None
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
