"""Time that moves only when a test or the simulation advances it, effects that come later; workers without processes.

A job of a worker is done at once; its result arrives when its simulated time is over.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from elastio.errors import InvariantError


class SimClock:
    """`ports.Clock` on simulated time, plus `elapsed`, which continues through reboots.

    The cloud uses `elapsed`. The agent sees `now`, which starts again at every boot, as CLOCK_BOOTTIME does.
    """

    def __init__(self, now: float = 1000.0, wall: float = 1_767_225_600.0) -> None:
        self._elapsed = 0.0
        self._boot_offset = now
        self._wall_offset = wall

    def now(self) -> float:
        """Seconds since the last boot."""
        return self._elapsed + self._boot_offset

    def wall(self) -> float:
        """Seconds since the epoch, with the error that `jump_wall` added."""
        return self._elapsed + self._wall_offset

    def elapsed(self) -> float:
        """Seconds of simulated time since this clock was made."""
        return self._elapsed

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass. Raises ValueError for a negative number."""
        if seconds < 0:
            raise ValueError(f"time cannot go back by {-seconds} s")
        self._elapsed += seconds

    def advance_to(self, elapsed: float) -> None:
        """Let time pass until `elapsed()` is exactly `elapsed`, so that sums of steps do not drift."""
        if elapsed < self._elapsed:
            raise ValueError(f"time cannot go back to {elapsed} s")
        self._elapsed = elapsed

    def jump_wall(self, seconds: float) -> None:
        """Step the time of day, as a time server or an operator does. `now` is not affected."""
        self._wall_offset += seconds

    def reboot(self, now: float = 10.0) -> None:
        """Restart `now`: the machine booted `now` seconds ago."""
        self._boot_offset = now - self._elapsed


# Sums of floating-point seconds that should be equal differ by less than this.
ROUNDING_S = 1e-6


class Timers:
    """Effects ordered by time; those of the same time in the order in which they were scheduled."""

    def __init__(self, clock: SimClock) -> None:
        self._clock = clock
        self._order = itertools.count()
        self._waiting: list[tuple[float, int, Callable[[], None]]] = []

    @property
    def next_at(self) -> float:
        """`elapsed` of the next effect; infinite if there is none."""
        return self._waiting[0][0] if self._waiting else math.inf

    def later(self, seconds: float, effect: Callable[[], None]) -> None:
        """Schedule `effect` in `seconds`."""
        heapq.heappush(self._waiting, (self._clock.elapsed() + seconds, next(self._order), effect))

    def settle(self) -> None:
        """Apply the effects that are due, including those that they schedule for now."""
        while self.next_at <= self._clock.elapsed() + ROUNDING_S:
            _, _, effect = heapq.heappop(self._waiting)
            effect()

    def forget(self) -> None:
        """Drop all effects, as a power cut does."""
        self._waiting.clear()


Job = TypeVar("Job")
Result = TypeVar("Result")


@dataclass(slots=True)
class _Underway(Generic[Job, Result]):
    job: Job
    due_at: float
    timeout_s: float
    answers: bool
    result: Result | None = None
    error: Exception | None = None


class SimWorker(Generic[Job, Result]):
    """One job at a time. `seconds` is called after the job and returns how long it took."""

    def __init__(
        self,
        execute: Callable[[Job], Result],
        clock: SimClock,
        seconds: Callable[[Job], float],
        *,
        lost: Callable[[Job, float], Result] | None = None,
    ) -> None:
        self._execute = execute
        self._clock = clock
        self._seconds = seconds
        self._lost = lost
        self._underway: _Underway[Job, Result] | None = None

    @property
    def busy(self) -> bool:
        """True from `submit` until `poll` has delivered."""
        return self._underway is not None

    @property
    def trouble(self) -> str:
        """No worker can fail to start here."""
        return ""

    def submit(self, job: Job, timeout_s: float) -> None:
        """Start a job. Raises InvariantError while another one runs."""
        if self._underway is not None:
            raise InvariantError(f"worker is busy with {self._underway.job}", code="worker.busy")
        result: Result | None = None
        error: Exception | None = None
        try:
            result = self._execute(job)
        except Exception as raised:  # delivered by poll, when its time is over
            error = raised
        took = self._seconds(job)
        due_at = self._clock.now() + min(took, timeout_s)
        self._underway = _Underway(job, due_at, timeout_s, took <= timeout_s, result, error)

    def poll(self) -> Result | None:
        """The result once its time is over, else None. Raises what the job raised.

        After the time-out: the result of `lost(job, timeout_s)`, or TimeoutError without one.
        """
        underway = self._underway
        if underway is None or self._clock.now() + ROUNDING_S < underway.due_at:
            return None
        self._underway = None
        if not underway.answers:
            if self._lost is None:
                raise TimeoutError(f"no answer in {underway.timeout_s:g} s: {underway.job}")
            return self._lost(underway.job, underway.timeout_s)
        if underway.error is not None:
            raise underway.error
        return underway.result

    def next_event_at(self) -> float | None:
        """`clock.now()` when `poll` will deliver; None while no job runs."""
        return self._underway.due_at if self._underway else None

    def lose(self) -> None:
        """The child was killed. What it did stays done, and there will be no answer."""
        if self._underway is not None:
            self._underway.due_at, self._underway.answers = self._clock.now(), False

    def abandon(self) -> None:
        """Drop the job, as a killed agent does. What it did stays done."""
        self._underway = None
