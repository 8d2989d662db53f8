"""One place where faults strike calls, for the simulated cloud and the simulated host alike."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

from elastio.errors import ElastioError
from elastio.sim.faults import Fault, FaultPlan, Kind

T = TypeVar("T")


class Meter:
    """Adds up what calls take, over all the ports that one job of a worker may use."""

    def __init__(self) -> None:
        self.seconds = 0.0


class FaultInjector:
    """Carries out calls under a fault plan and tells how long each took.

    `seconds` is the simulated duration of the last call; infinite when no answer came, so that a worker sees a
    time-out. Without a worker such a call raises its error at once: adapters bound every call themselves.
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
        """`call` gets the fault when it is one that shows in the effect and not in the answer."""
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
            # Nobody waits for this answer any more; tests may ask what came of it.
            self.late_errors.append(error)
        finally:
            self.seconds = of_the_last_call

    def _error(self, fault: Fault, op: str) -> ElastioError:
        kind, text = self._errors[fault.kind]
        return kind(f"{op}: {text} (simulated)", code=fault.kind)
