"""One measurement: tell the agent a size, write a dataset, wait until the cache is gone, read the bill.

The agent boosts by itself, when the load shows: what is measured contains its sampling, the purchase and the attach, as
an application would meet them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from elastio import __version__
from elastio.core.model import Quote, VolumeSpec
from elastio.core.policy import Policy
from elastio.errors import ElastioError
from elastio.units import GB, format_duration
from elastio_calibration.errors import CalibrationError
from elastio_calibration.measurement import Conditions, Measurement, Price, Prices, Setup
from elastio_calibration.record import Entry, Header, RecordFile, SavedState
from elastio_calibration.schedule import Point, Schedule, estimate, expected_s

TRIES = 2
# Load that is still there so long after everything was removed is somebody else's.
LEAVE_S = 300.0


@dataclass(frozen=True, slots=True)
class Boost:
    """One cache volume as the ledger has it."""

    provisioned_bytes: int
    held_s: float
    attached_s: float | None
    boost_s: float | None
    peak_in_use_percent: int
    written_through_bytes: int
    failure: str


@dataclass(frozen=True, slots=True)
class LedgerPosition:
    """A moment by both clocks, in seconds: the one that the ledger's rows carry, and one that nobody sets."""

    wall_s: float
    monotonic_s: float


@dataclass(frozen=True, slots=True)
class Labels:
    """What nobody can find out from inside: types of volumes, a laboratory's scale, how the application writes."""

    backing_type: str
    cache_type: str
    writers: int = 1
    scale: float = 1.0
    pace_mb_s: float = 0.0


class Target(Protocol):
    """A machine with a running agent. Every method is bounded in time and raises ElastioError."""

    def header(self) -> Header:
        """Conditions and prices, as they are now."""
        ...

    def locked(self) -> AbstractContextManager[None]:
        """No other calibration runs here meanwhile. Raises CalibrationError where one does."""
        ...

    def check(self, points: Sequence[Point]) -> None:
        """Raises CalibrationError for measurements that cannot be made here, before anything is bought."""
        ...

    def agent(self) -> SavedState:
        """The size that the agent has learned, and whether it is paused."""
        ...

    def learn(self, size_bytes: int | None) -> None:
        """The next boost buys this size; None: what the agent buys before it has learned anything."""
        ...

    def set_paused(self, paused: bool) -> None:
        """Pause the agent, or end its pause."""
        ...

    def wait_idle(self, limit_s: float) -> None:
        """Until there is no load, no cache and no volume left, and the next boost may start."""
        ...

    def dataset(self, point: Point, limit_s: float) -> AbstractContextManager[float]:
        """Write one and remove it again: gives the seconds from the first write to the last fsync.

        What the pattern reads is put in place before, without the agent's help.
        """
        ...

    def position(self) -> LedgerPosition:
        """Now, for `boosts_since`."""
        ...

    def boosts_since(self, position: LedgerPosition) -> tuple[Boost, ...]:
        """Raises CalibrationError where the clock by which the ledger tells times was set meanwhile."""
        ...


def calibrate(target: Target, schedule: Schedule, file: RecordFile, say: Callable[[str], None]) -> None:
    """Measure what the record does not have yet. Whatever happens, the agent gets back its size and its pause.

    Raises ElastioError when a point fails twice in a row; what was measured stays recorded. Raises CalibrationError
    where another calibration writes the record or works on the machine.
    """
    with file.locked(), target.locked():
        _calibrate(target, schedule, file, say)


def _calibrate(target: Target, schedule: Schedule, file: RecordFile, say: Callable[[str], None]) -> None:
    record = file.begin(target.header())
    left = record.remaining(schedule)
    total, pace = len(schedule.rounds()), 1.0
    conditions = record.header.conditions
    with _restoring(target, file, record.saved, say):
        for number, point in enumerate(left):
            rest_s = estimate(left[number:], conditions, None).seconds * pace
            done = total - len(left) + number
            say(f"[{done + 1}/{total}] {point}; {format_duration(rest_s)} left")
            entry = _try(target, point, file, expected_s(point, conditions))
            say(f"        {_shown(entry)}")
            # The share of the expectation that was really needed, smoothed: the clouds' delays differ.
            pace += (entry.took_s / expected_s(point, conditions) - pace) / (number + 1)


def check_sizes(points: Sequence[Point], policy: Policy) -> None:
    """Raises CalibrationError where the agent would refuse to buy one of the caches."""
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
    raise CalibrationError(f"{point} could not be measured: {failure}; the record keeps the others, run it again")


def measure(target: Target, point: Point, limit_s: float) -> Measurement:
    """Raises CalibrationError when the boost did not come about as it should."""
    target.wait_idle(limit_s)
    if point.setup is Setup.STATIC_SLOW:
        seconds = _without_agent(target, point, limit_s)
        return Measurement(Setup.STATIC_SLOW, point.dataset_bytes, seconds, point.pattern)
    target.learn(point.cache_bytes)
    position = target.position()
    with target.dataset(point, limit_s) as seconds:
        target.wait_idle(limit_s)
        boosts, learned = target.boosts_since(position), target.agent().learned_bytes or 0
    return _measured(point, seconds, boosts, learned)


def _without_agent(target: Target, point: Point, limit_s: float) -> float:
    """Seconds that the slow volume alone needs. The agent goes on again when what was written is gone."""
    with (
        paused(target),
        ending_with(lambda: target.wait_idle(min(limit_s, LEAVE_S))),
        target.dataset(point, limit_s) as seconds,
    ):
        return seconds


@contextmanager
def paused(target: Target) -> Iterator[None]:
    """The agent begins no boost meanwhile. One that was paused before stays so."""
    before = target.agent().paused
    _set_paused(target, True)
    with ending_with(lambda: _set_paused(target, before)):
        yield


def _measured(point: Point, seconds: float, boosts: tuple[Boost, ...], learned: int) -> Measurement:
    if len(boosts) != 1:
        raise CalibrationError(f"{len(boosts)} caches were bought for one dataset, where one is expected")
    boost = boosts[0]
    if boost.failure or boost.boost_s is None:
        raise CalibrationError(f"no cache came about: {boost.failure or 'the boost ended before it was attached'}")
    if boost.boost_s >= seconds:
        times = f"{seconds:.1f} s, before the cache was attached ({boost.boost_s:.1f} s)"
        raise CalibrationError(f"the dataset was written in {times}: it is too small", code="dataset.too_small")
    return Measurement(
        setup=Setup.ADAPTIVE,
        dataset_bytes=point.dataset_bytes,
        seconds=seconds,
        pattern=point.pattern,
        cache_bytes=boost.provisioned_bytes,
        held_s=boost.held_s,
        attached_s=boost.attached_s or 0.0,
        boost_s=boost.boost_s,
        peak_in_use_percent=boost.peak_in_use_percent,
        evicted_bytes=boost.written_through_bytes,
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
    """Of a record that is begun now, at `wall_s`, with an agent of this policy."""
    conditions = Conditions(
        kernel=kernel,
        cloud=cloud,
        instance_type=instance_type,
        backing_type=labels.backing_type,
        cache_type=labels.cache_type,
        backing_mb_s=policy.backing_bandwidth_mb_s,
        cache_mb_s=policy.cache_bandwidth_mb_s,
        utilization_threshold=policy.utilization_threshold,
        inactivity_delay_s=policy.inactivity_delay_s,
        sample_interval_s=sample_interval_s,
        writers=labels.writers,
        scale=labels.scale,
        drain_mb_s=policy.drain_bandwidth_mb_s,
        pace_mb_s=labels.pace_mb_s,
    )
    made = datetime.fromtimestamp(wall_s, UTC).isoformat(timespec="seconds")
    return Header(conditions, backing_bytes, made, f"elastio {__version__}", prices)


def prices_of(
    quote: Callable[[VolumeSpec], Quote], policy: Policy, backing_bytes: int, cache_sizes: Sequence[int]
) -> Prices:
    """What the provider asks for the volumes of the three set-ups. Raises ElastioError."""
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
    )


@contextmanager
def ending_with(step: Callable[[], None]) -> Iterator[None]:
    """`step` follows in any case. What ended the block counts for more than an error of `step`, which is its note."""
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
    """What else failed after it."""
    return list(getattr(error, "__notes__", ()))


@contextmanager
def _restoring(
    target: Target, file: RecordFile, cut_off: SavedState | None, say: Callable[[str], None]
) -> Iterator[None]:
    """Learned size and pause are the operator's: they come back, also when a measurement fails.

    A process that is killed gives nothing back: `cut_off` is what the record says of such a run, and the agent gets
    that. Raises CalibrationError where it does not take it.
    """
    if cut_off is not None:
        say("an earlier run was cut off: at the end of this one the agent gets back what it had before that one")
    before = cut_off or target.agent()
    file.keep(before)
    with ending_with(lambda: _restore(target, file, before)):
        _set_paused(target, False)
        yield


def _restore(target: Target, file: RecordFile, before: SavedState) -> None:
    """An agent that had learned nothing buys its initial size again, not what some measurement taught it."""
    try:
        with ending_with(lambda: _set_paused(target, before.paused)):
            target.learn(before.learned_bytes)
    except ElastioError as error:
        told = "; ".join([str(error), *notes_of(error)])
        raise CalibrationError(
            f"the agent did not get back its learned size and its pause ({told}): the same command gives them back"
        ) from error
    file.keep(None)


def _set_paused(target: Target, paused: bool) -> None:
    if target.agent().paused != paused:
        target.set_paused(paused)


def _shown(entry: Entry) -> str:
    made = entry.measurement
    if made is None:
        raise ElastioError("an entry without a measurement is not shown")
    rate = f"{made.throughput_mb_s:.1f} MB/s over {format_duration(made.seconds)}"
    if not made.cache_bytes:
        return rate
    return f"{rate}; {made.cache_bytes / GB:.3g} GB held for {format_duration(made.held_s)}"
