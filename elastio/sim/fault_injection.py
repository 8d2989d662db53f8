"""Where faults strike calls, of the simulated cloud and of the simulated host."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

from elastio.errors import ElastioError
from elastio.sim.faults import Fault, FaultPlan, Kind

T = TypeVar("T")


class Meter:
    """Adds up the duration of calls, over all the ports that one job of a worker may use."""

    def __init__(self) -> None:
        self.seconds = 0.0


class FaultInjector:
    """Executes calls under a fault plan and measures how long each took.

    `seconds` is the simulated duration of the last call; infinite if no answer came, so that a worker times out.
    Without a worker such a call raises its error at once, as adapters bound every call themselves.
    """

    def __init__(
        self,
        faults: FaultPlan,
        later: Callable[[float, Callable[[], None]], None],
        errors: dict[Kind, tuple[type[ElastioError], str]],
        meter: Meter | None = None,
    ) -> None:
        self.faults = faults
        self.meter = meter or Meter()
        self.seconds = 0.0
        self.late_errors: list[ElastioError] = []
        self._later = later
        self._errors = errors

    def run(self, op: str, seconds: float, call: Callable[[Fault | None], T]) -> T:
        """`call` gets the fault if it changes the effect and not the answer."""
        self.seconds = seconds
        try:
            return self._strike(op, self.faults.take(op), call)
        finally:
            self.meter.seconds += self.seconds

    def _strike(self, op: str, fault: Fault | None, call: Callable[[Fault | None], T]) -> T:
        if fault is None:
            return call(None)
        if fault.kind is Kind.HANG:
            self.seconds = math.inf
            raise self._error(fault, op)
        if fault.kind is Kind.LATE_SUCCESS:
            self.seconds = math.inf
            self._later(fault.seconds, lambda: self._late(call))
            raise self._error(fault, op)
        if fault.kind in {Kind.LOSE_REPLY, Kind.HALF}:
            call(fault)
            raise self._error(fault, op)
        if fault.kind in self._errors:
            raise self._error(fault, op)
        return call(fault)

    def _late(self, call: Callable[[Fault | None], T]) -> None:
        of_the_last_call = self.seconds
        try:
            call(None)
        except ElastioError as error:
            # Nobody waits for this answer any more. Tests may look at it.
            self.late_errors.append(error)
        finally:
            self.seconds = of_the_last_call

    def _error(self, fault: Fault, op: str) -> ElastioError:
        kind, text = self._errors[fault.kind]
        return kind(f"{op}: {text} (simulated)", code=fault.kind)
