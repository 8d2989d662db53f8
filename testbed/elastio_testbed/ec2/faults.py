"""Faults that are injected into calls of the API and into the life cycle."""

from __future__ import annotations

import random
import threading
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum

# The metadata service is not an API action, but a fault may name it; "*" does not include it.
IMDS = "Imds"


class FaultKind(StrEnum):
    """The effect on the call, or on the life cycle that it starts."""

    LATENCY = "latency"
    """Carried out and answered `seconds` later."""
    THROTTLE = "throttle"
    """503 RequestLimitExceeded; not carried out."""
    ERROR = "error"
    """The error `code`; not carried out."""
    HTTP = "http"
    """HTTP `status` with an HTML page, as a proxy sends it; not carried out."""
    DROP_BEFORE = "drop_before"
    """The connection is closed; not carried out."""
    DROP_AFTER = "drop_after"
    """Carried out, and the connection closed without a response."""
    STALL_AFTER = "stall_after"
    """Carried out at once and answered `seconds` later."""
    STUCK_ATTACHING = "stuck_attaching"
    """The attachment stays `attaching` for `seconds`, or until it is detached when `seconds` is 0."""
    STUCK_DETACHING = "stuck_detaching"
    """The attachment becomes `busy` for `seconds`, or until the next DetachVolume when `seconds` is 0."""
    CREATE_ERROR = "create_error"
    """The volume goes from `creating` to `error`."""
    SLOW = "slow"
    """The transition takes `seconds` longer."""


CALL_KINDS = frozenset(
    {
        FaultKind.LATENCY,
        FaultKind.THROTTLE,
        FaultKind.ERROR,
        FaultKind.HTTP,
        FaultKind.DROP_BEFORE,
        FaultKind.DROP_AFTER,
        FaultKind.STALL_AFTER,
    }
)


@dataclass(frozen=True)
class Fault:
    """One fault. `action` is an API action, "Imds", or "*" for every API action.

    `times`: the number of calls that are hit, None for all. `probability`: the chance of hitting a matching call.
    """

    kind: FaultKind
    action: str = "*"
    times: int | None = 1
    probability: float = 1.0
    seconds: float = 0.0
    code: str = ""
    status: int = 502

    def hits(self, action: str) -> bool:
        """Whether the fault applies to that action."""
        return self.action == action or (self.action == "*" and action != IMDS)


@dataclass
class _Armed:
    fault: Fault
    left: int | None


class Faults:
    """The active faults. They may be changed at run time from any thread; chance comes from a seeded generator."""

    def __init__(self, seed: int = 1) -> None:
        self._lock = threading.Lock()
        self._rng = random.Random(seed)
        self._armed: list[_Armed] = []

    def add(self, *faults: Fault) -> None:
        """Append faults to the active ones; the first match is used."""
        with self._lock:
            self._armed += [_Armed(fault, fault.times) for fault in faults]

    def replace(self, faults: Iterable[Fault]) -> None:
        """Replace all active faults."""
        with self._lock:
            self._armed = [_Armed(fault, fault.times) for fault in faults]

    def clear(self) -> None:
        """Remove all faults. What a fault has made stuck stays stuck."""
        self.replace(())

    def revoke_credentials(self, code: str = "AuthFailure") -> None:
        """Refuse every API call with `code` until faults are cleared."""
        self.add(Fault(FaultKind.ERROR, code=code, times=None))

    def pending(self) -> list[dict[str, object]]:
        """The active faults as plain data, with the remaining `times`."""
        with self._lock:
            return [{**asdict(armed.fault), "times": armed.left} for armed in self._armed]

    def take(self, action: str, kinds: Collection[FaultKind]) -> Fault | None:
        """The fault of one of these kinds that hits this call of `action`, or None. A hit is counted."""
        with self._lock:
            for armed in self._armed:
                fault = armed.fault
                if fault.kind in kinds and fault.hits(action) and self._rng.random() < fault.probability:
                    if armed.left is not None:
                        armed.left -= 1
                    self._armed = [each for each in self._armed if each.left != 0]
                    return fault
        return None
