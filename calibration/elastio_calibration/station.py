"""One measurement: tell the agent a size, write a dataset, wait until the cache is gone, read the bill.

The agent boosts by itself, when the load shows: what is measured contains its sampling, the purchase and the attach, as
an application would meet them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Protocol

from elastio.core.policy import Policy
from elastio.errors import ElastioError
from elastio.units import GB, format_duration
from elastio_calibration.errors import CalibrationError
from elastio_calibration.measurement import Measurement, Setup
from elastio_calibration.record import Before, Entry, Header, RecordFile
from elastio_calibration.schedule import Schedule, Wanted, estimate, expected_s

TRIES = 2
# Load that is still there so long after everything was removed is somebody else's.
LEAVE_S = 300.0


@dataclass(frozen=True, slots=True)
class Boost:
    """One cache volume as the ledger has it."""

    sold_bytes: int
    held_s: float
    attached_s: float | None
    boost_s: float | None
    peak_in_use_percent: int
    written_through_bytes: int
    failure: str


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment of the ledger, and by how much its clock was ahead of the one that nobody sets, in seconds."""

    at: float
    ahead_s: float = 0.0


class Station(Protocol):
    """A machine with a running agent. Every method is bounded in time and raises ElastioError."""

    def header(self) -> Header:
        """Conditions and prices, as they are now."""
        ...

    def learned_bytes(self) -> int | None: ...

    def initial_bytes(self) -> int:
        """What the agent buys before it has learned anything."""
        ...

    def is_paused(self) -> bool: ...

    def learn(self, size_bytes: int) -> None:
        """The next boost buys this size."""
        ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def rest(self, limit_s: float) -> None:
        """Until there is no load, no cache and no volume left, and the next boost may start."""
        ...

    def claimed(self) -> AbstractContextManager[None]:
        """No other calibration runs here meanwhile. Raises CalibrationError where one does."""
        ...

    def check(self, points: Sequence[Wanted]) -> None:
        """Raises CalibrationError for measurements that cannot be made here, before anything is bought."""
        ...

    def prepare(self, wanted: Wanted, limit_s: float) -> None:
        """Put in place what the pattern reads, without the agent's help and before anything is measured."""
        ...

    def write(self, wanted: Wanted) -> float:
        """Seconds from the first write to the last fsync."""
        ...

    def clean(self) -> None:
        """Remove what was written."""
        ...

    def mark(self) -> Mark:
        """Now, for `boosts_since`."""
        ...

    def boosts_since(self, mark: Mark) -> tuple[Boost, ...]:
        """Raises CalibrationError where the clock by which the ledger tells times was set meanwhile."""
        ...

    def now(self) -> float:
        """Seconds, for progress."""
        ...


def calibrate(station: Station, schedule: Schedule, file: RecordFile, say: Callable[[str], None]) -> None:
    """Measure what the record does not have yet. Whatever happens, the agent gets back its size and its pause.

    Raises ElastioError when a point fails twice in a row; what was measured stays recorded. Raises CalibrationError
    where another calibration writes the record or works on the machine.
    """
    with file.claimed(), station.claimed():
        _calibrate(station, schedule, file, say)


def _calibrate(station: Station, schedule: Schedule, file: RecordFile, say: Callable[[str], None]) -> None:
    record = file.begin(station.header())
    left = record.left(schedule)
    total, pace = len(schedule.rounds()), 1.0
    conditions = record.header.conditions
    with _as_it_was(station, file, record.before, say):
        for number, wanted in enumerate(left):
            rest_s = estimate(left[number:], conditions, None).seconds * pace
            done = total - len(left) + number
            say(f"[{done + 1}/{total}] {wanted}; {format_duration(rest_s)} left")
            entry = _try(station, wanted, file, expected_s(wanted, conditions))
            say(f"        {_shown(entry)}")
            # The share of the expectation that was really needed, smoothed: the clouds' delays differ.
            pace += (entry.took_s / expected_s(wanted, conditions) - pace) / (number + 1)


def check_sizes(points: Sequence[Wanted], policy: Policy) -> None:
    """Raises CalibrationError where the agent would refuse to buy one of the caches."""
    least, most = policy.min_size_bytes, policy.caps.max_size_bytes
    for point in points:
        if point.cache_bytes and not least <= point.cache_bytes <= most:
            raise CalibrationError(
                f"{point}: the configuration allows caches of {least / GB:.3g} to {most / GB:.3g} GB (cache.*_size_gib)"
            )


def _try(station: Station, wanted: Wanted, file: RecordFile, expected: float) -> Entry:
    failure = ""
    for _ in range(TRIES):
        began = station.now()
        try:
            made = measure(station, wanted, limit_s=600 + 10 * expected)
        except CalibrationError as error:
            failure = "; ".join([str(error), *notes_of(error)])
            file.append(Entry(wanted, None, station.now() - began, failure))
            continue
        entry = Entry(wanted, made, station.now() - began)
        file.append(entry)
        return entry
    raise CalibrationError(f"{wanted} could not be measured: {failure}; the record keeps the others, run it again")


def measure(station: Station, wanted: Wanted, limit_s: float) -> Measurement:
    """Raises CalibrationError when the boost did not come about as it should."""
    station.rest(limit_s)
    with ending_with(station.clean):
        station.prepare(wanted, limit_s)
        if wanted.setup is Setup.STATIC_SLOW:
            seconds = _without_agent(station, wanted, limit_s)
            return Measurement(Setup.STATIC_SLOW, wanted.dataset_bytes, seconds, wanted.pattern)
        station.learn(wanted.cache_bytes)
        mark = station.mark()
        seconds = station.write(wanted)
        station.rest(limit_s)
        boosts = station.boosts_since(mark)
        learned = station.learned_bytes() or 0
    return _measured(wanted, seconds, boosts, learned)


def _without_agent(station: Station, wanted: Wanted, limit_s: float) -> float:
    """Seconds that the slow volume alone needs. The agent goes on again when what was written is gone."""
    station.pause()
    with (
        ending_with(station.resume),
        ending_with(lambda: station.rest(min(limit_s, LEAVE_S))),
        ending_with(station.clean),
    ):
        return station.write(wanted)


def _measured(wanted: Wanted, seconds: float, boosts: tuple[Boost, ...], learned: int) -> Measurement:
    if len(boosts) != 1:
        raise CalibrationError(f"{len(boosts)} caches were bought for one dataset, where one is expected")
    boost = boosts[0]
    if boost.failure or boost.boost_s is None:
        raise CalibrationError(f"no cache came about: {boost.failure or 'the boost ended before it was attached'}")
    if boost.boost_s >= seconds:
        times = f"{seconds:.1f} s, before the cache was there ({boost.boost_s:.1f} s)"
        raise CalibrationError(f"the dataset was written in {times}: it is too small")
    return Measurement(
        setup=Setup.ADAPTIVE,
        dataset_bytes=wanted.dataset_bytes,
        seconds=seconds,
        pattern=wanted.pattern,
        cache_bytes=boost.sold_bytes,
        held_s=boost.held_s,
        attached_s=boost.attached_s or 0.0,
        boost_s=boost.boost_s,
        peak_in_use_percent=boost.peak_in_use_percent,
        written_through_bytes=boost.written_through_bytes,
        learned_bytes=learned,
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
def _as_it_was(
    station: Station, file: RecordFile, cut_off: Before | None, say: Callable[[str], None]
) -> Iterator[None]:
    """Learned size and pause are the operator's: they come back, also when a measurement fails.

    A process that is killed gives nothing back: `cut_off` is what the record says of such a run, and the agent gets
    that. Raises CalibrationError where it does not take it.
    """
    if cut_off is not None:
        say("an earlier run was cut off: at the end of this one the agent gets back what it had before that one")
    before = cut_off or Before(station.learned_bytes(), station.is_paused())
    file.keep(before)
    with ending_with(lambda: _give_back(station, file, before)):
        _set_paused(station, False)
        yield


def _give_back(station: Station, file: RecordFile, before: Before) -> None:
    """An agent that had learned nothing buys its initial size again, not what some measurement taught it."""
    try:
        with ending_with(lambda: _set_paused(station, before.paused)):
            station.learn(station.initial_bytes() if before.learned_bytes is None else before.learned_bytes)
    except ElastioError as error:
        told = "; ".join([str(error), *notes_of(error)])
        raise CalibrationError(
            f"the agent did not get back its learned size and its pause ({told}): the same command gives them back"
        ) from error
    file.keep(None)


def _set_paused(station: Station, paused: bool) -> None:
    if station.is_paused() != paused:
        (station.pause if paused else station.resume)()


def _shown(entry: Entry) -> str:
    made = entry.measurement
    if made is None:
        raise ElastioError("an entry without a measurement is not shown")
    rate = f"{made.throughput_mb_s:.1f} MB/s over {format_duration(made.seconds)}"
    if not made.cache_bytes:
        return rate
    return f"{rate}; {made.cache_bytes / GB:.3g} GB held for {format_duration(made.held_s)}"
