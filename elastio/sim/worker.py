"""A worker without processes. A job is done at once; its result arrives when its simulated time is over."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from elastio.errors import InvariantError
from elastio.sim.clock import ROUNDING_S, SimClock

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
