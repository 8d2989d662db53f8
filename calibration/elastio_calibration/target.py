"""Measure one point: teach the agent a size, write a dataset, wait until the cache is released, read the ledger.

The load starts the boost, as an application would: the result includes the agent's sampling, purchase and attach.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Protocol

from elastio import __version__
from elastio.accounting.rows import CycleRow
from elastio.core.model import Quote, VolumeSpec
from elastio.core.policy import Policy
from elastio.errors import ElastioError
from elastio.units import GB, format_duration
from elastio_calibration.errors import CalibrationError
from elastio_calibration.measurement import Conditions, Measurement, Price, Prices, Setup
from elastio_calibration.record import Entry, Header, RecordFile, SavedState
from elastio_calibration.schedule import Point, Schedule, estimate, expected_s

TRIES = 2
# Load that remains so long after the files were removed is from elsewhere.
LEAVE_S = 300.0


@dataclass(frozen=True, slots=True)
class LedgerPosition:
    """A time by two clocks, in seconds: the wall clock, which the ledger uses, and a monotonic one."""

    wall_s: float
    monotonic_s: float


@dataclass(frozen=True, slots=True)
class Labels:
    """Fields of `Conditions` that the VM cannot find out: volume types, a scale, how the application writes."""

    backing_type: str
    cache_type: str
    writers: int = 1
    scale: float = 1.0
    pace_mb_s: float = 0.0


class Target(Protocol):
    """A machine with a running agent. Every method returns in bounded time, or raises ElastioError."""

    def header(self) -> Header:
        """The conditions and prices as of now."""

    def locked(self) -> AbstractContextManager[None]:
        """Hold the run lock of the machine. Raises CalibrationError where another calibration has it."""

    def check(self, points: Sequence[Point]) -> None:
        """Raises CalibrationError for points that cannot be measured here, before anything is bought."""

    def agent(self) -> SavedState:
        """The size that the agent has learned, and whether it is paused."""

    def learn(self, size_bytes: int | None) -> None:
        """Have the next boost buy this size; None: the initial size of an agent that has learned nothing."""

    def set_paused(self, paused: bool) -> None:
        """Pause or resume the agent."""

    def wait_idle(self, limit_s: float) -> None:
        """Wait until there is no load, no cache and no volume left, and the next boost may start."""

    def dataset(self, point: Point, limit_s: float) -> AbstractContextManager[float]:
        """Write a dataset, and remove it at the end. The value: seconds from the first write to the last fsync.

        Files that the pattern reads are laid out before, while the agent is paused.
        """

    def position(self) -> LedgerPosition:
        """The present time, for `boosts_since`."""

    def boosts_since(self, position: LedgerPosition) -> tuple[CycleRow, ...]:
        """The boosts that began since. Raises CalibrationError where the wall clock was set meanwhile."""


def calibrate(target: Target, schedule: Schedule, file: RecordFile, say: Callable[[str], None]) -> None:
    """Measure what the record does not have yet, and restore the agent's learned size and pause in any case.

    Raises ElastioError where a point fails twice in a row; the record keeps the others. Raises CalibrationError where
    another calibration uses the record or the machine.
    """
    with file.locked(), target.locked():
        _calibrate(target, schedule, file, say)


def _calibrate(target: Target, schedule: Schedule, file: RecordFile, say: Callable[[str], None]) -> None:
    record = file.begin(target.header())
    left = record.remaining(schedule)
    total, ratio = len(schedule.rounds()), 1.0
    conditions = record.header.conditions
    with _restoring(target, file, record.saved, say):
        for number, point in enumerate(left):
            rest_s = estimate(left[number:], conditions, None).seconds * ratio
            done = total - len(left) + number
            say(f"[{done + 1}/{total}] {point}; {format_duration(rest_s)} left")
            entry = _try(target, point, file, expected_s(point, conditions))
            say(f"        {_summary(entry)}")
            # The ratio of measured to expected time, averaged: the delays of clouds differ.
            ratio += (entry.took_s / expected_s(point, conditions) - ratio) / (number + 1)


def check_sizes(points: Sequence[Point], policy: Policy) -> None:
    """Raises CalibrationError for a cache that the agent would refuse to buy."""
    least, most = policy.min_size_bytes, policy.caps.max_size_bytes
    for point in points:
        if point.cache_bytes and not least <= point.cache_bytes <= most:
            text = (
                f"{point}: the configuration allows caches of {least / GB:.3g} to {most / GB:.3g} GB (cache.*_size_gib)"
            )
            raise CalibrationError(text, code="cache.max_size_gib")


def _try(target: Target, point: Point, file: RecordFile, expected: float) -> Entry:
    failure = ""
    for _ in range(TRIES):
        began = target.position().monotonic_s
        try:
            made = measure(target, point, limit_s=600 + 10 * expected)
        except CalibrationError as error:
            failure = "; ".join([str(error), *notes_of(error)])
            file.append(Entry(point, None, target.position().monotonic_s - began, failure))
            continue
        entry = Entry(point, made, target.position().monotonic_s - began)
        file.append(entry)
        return entry
    raise CalibrationError(
        f"{point} could not be measured: {failure}; the record keeps the other points, repeat the command"
    )


def measure(target: Target, point: Point, limit_s: float) -> Measurement:
    """Raises CalibrationError where the boost did not take place as expected."""
    target.wait_idle(limit_s)
    if point.setup is Setup.STATIC_SLOW:
        seconds = _without_agent(target, point, limit_s)
        return Measurement(Setup.STATIC_SLOW, point.dataset_bytes, seconds, point.pattern)
    target.learn(point.cache_bytes)
    position = target.position()
    with target.dataset(point, limit_s) as seconds:
        target.wait_idle(limit_s)
        boosts, learned = target.boosts_since(position), target.agent().learned_bytes or 0
        now_wall = target.position().wall_s
    return _measured(point, seconds, boosts, now_wall, learned)


def _without_agent(target: Target, point: Point, limit_s: float) -> float:
    """Seconds without a cache. The agent resumes after the files are removed."""
    with (
        paused(target),
        ending_with(lambda: target.wait_idle(min(limit_s, LEAVE_S))),
        target.dataset(point, limit_s) as seconds,
    ):
        return seconds


@contextmanager
def paused(target: Target) -> Iterator[None]:
    """Pause the agent meanwhile. One that was paused before stays paused."""
    before = target.agent().paused
    _set_paused(target, True)
    with ending_with(lambda: _set_paused(target, before)):
        yield


def _measured(point: Point, seconds: float, boosts: tuple[CycleRow, ...], now_wall: float, learned: int) -> Measurement:
    if len(boosts) != 1:
        raise CalibrationError(f"{len(boosts)} caches were bought for one dataset instead of one", code="boosts")
    (boost,) = boosts
    boost_s = boost.steps.boost_s
    if boost.failure or boost_s is None:
        failure = boost.failure or "the boost ended before it was attached"
        raise CalibrationError(f"no cache was attached: {failure}", code="boost.failed")
    if boost_s >= seconds:
        times = f"{seconds:.1f} s, before the cache was attached ({boost_s:.1f} s)"
        raise CalibrationError(f"the dataset was written in {times}: it is too small", code="dataset.too_small")
    return Measurement(
        setup=Setup.ADAPTIVE,
        dataset_bytes=point.dataset_bytes,
        seconds=seconds,
        pattern=point.pattern,
        cache_bytes=boost.provisioned_size_bytes,
        held_s=boost.billed_s(0.0, now_wall),
        attached_s=boost.steps.attached_s or 0.0,
        boost_s=boost_s,
        peak_in_use_percent=boost.peak_in_use_percent,
        written_through_bytes=boost.written_through_bytes,
        learned_bytes=learned,
    )


def header_of(
    policy: Policy,
    labels: Labels,
    *,
    kernel: str,
    cloud: str,
    instance_type: str,
    sample_interval_s: float,
    backing_bytes: int,
    wall_s: float,
    prices: Prices | None,
) -> Header:
    """The header of a record that begins at `wall_s` with an agent of this policy."""
    conditions = Conditions(
        kernel=kernel,
        cloud=cloud,
        instance_type=instance_type,
        backing_mb_s=policy.backing_bandwidth_mb_s,
        cache_mb_s=policy.cache_bandwidth_mb_s,
        utilization_threshold=policy.utilization_threshold,
        inactivity_delay_s=policy.inactivity_delay_s,
        sample_interval_s=sample_interval_s,
        drain_mb_s=policy.drain_bandwidth_mb_s,
        **asdict(labels),
    )
    made = datetime.fromtimestamp(wall_s, UTC).isoformat(timespec="seconds")
    return Header(conditions, backing_bytes, made, f"elastio {__version__}", prices)


def prices_of(
    quote: Callable[[VolumeSpec], Quote], policy: Policy, backing_bytes: int, cache_sizes: Sequence[int]
) -> Prices:
    """The provider's prices for the volumes of the three set-ups. Raises ElastioError."""
    slow = quote(VolumeSpec(backing_bytes, policy.backing_bandwidth_mb_s))
    fast = quote(VolumeSpec(backing_bytes, policy.cache_bandwidth_mb_s))
    caches = [quote(VolumeSpec(size, policy.bought_bandwidth_mb_s)) for size in cache_sizes]
    return Prices(
        currency=slow.currency,
        source=slow.price_source,
        minimum_s=slow.minimum_s,
        slow_per_hour=slow.price_per_hour,
        fast_per_hour=fast.price_per_hour,
        caches=tuple(dict.fromkeys(Price(q.spec.size_bytes, q.price_per_hour) for q in caches)),
        step_s=slow.step_s,
    )


@contextmanager
def ending_with(step: Callable[[], None]) -> Iterator[None]:
    """Call `step` at the end in any case. Where the block raised, an error of `step` becomes a note of that error."""
    try:
        yield
    except BaseException as error:
        try:
            step()
        except ElastioError as another:
            error.add_note(str(another))
        raise
    step()


def notes_of(error: BaseException) -> list[str]:
    """What failed after this error."""
    return list(getattr(error, "__notes__", ()))


@contextmanager
def _restoring(
    target: Target, file: RecordFile, unrestored: SavedState | None, say: Callable[[str], None]
) -> Iterator[None]:
    """Restore learned size and pause, which are the operator's, also where a measurement fails.

    A killed process restores nothing: `unrestored` is the state that such a run left in the record; it is restored
    then. Raises CalibrationError where that fails.
    """
    if unrestored is not None:
        say("an earlier run was killed: at its end this one restores the state that the agent had before it")
    before = unrestored or target.agent()
    file.keep(before)
    with ending_with(lambda: _restore(target, file, before)):
        _set_paused(target, False)
        yield


def _restore(target: Target, file: RecordFile, before: SavedState) -> None:
    """An agent that had learned nothing buys its initial size again, not the size of the last measurement."""
    try:
        with ending_with(lambda: _set_paused(target, before.paused)):
            target.learn(before.learned_bytes)
    except ElastioError as error:
        reason = "; ".join([str(error), *notes_of(error)])
        raise CalibrationError(
            f"the agent's learned size and pause were not restored ({reason}): the same command restores them"
        ) from error
    file.keep(None)


def _set_paused(target: Target, paused: bool) -> None:
    if target.agent().paused != paused:
        target.set_paused(paused)


def _summary(entry: Entry) -> str:
    made = entry.measurement
    if made is None:
        raise ElastioError("an entry without a measurement has no summary")
    rate = f"{made.throughput_mb_s:.1f} MB/s over {format_duration(made.seconds)}"
    if not made.cache_bytes:
        return rate
    return f"{rate}; {made.cache_bytes / GB:.3g} GB held for {format_duration(made.held_s)}"
