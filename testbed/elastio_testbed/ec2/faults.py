"""Faults: what goes wrong on purpose, how often, and at which API action."""

from __future__ import annotations

import random
import threading
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from enum import StrEnum

from elastio_testbed.ec2.errors import SettingError

# The metadata service is no API action, but faults may name it: "*" does not include it.
IMDS = "Imds"


class FaultKind(StrEnum):
    """What happens to the call, or to the life cycle that it starts."""

    LATENCY = "latency"
    """Answered, and done, `seconds` later."""
    THROTTLE = "throttle"
    """503 RequestLimitExceeded; nothing done."""
    ERROR = "error"
    """The error `code`; nothing done."""
    HTTP = "http"
    """HTTP `status` with an HTML page, as a proxy would send it; nothing done."""
    DROP_BEFORE = "drop_before"
    """The connection is cut; nothing done."""
    DROP_AFTER = "drop_after"
    """Done, but the connection is cut instead of an answer."""
    STALL_AFTER = "stall_after"
    """Done at once, answered `seconds` later."""
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
_ONLY_AT = {
    FaultKind.STUCK_ATTACHING: "AttachVolume",
    FaultKind.STUCK_DETACHING: "DetachVolume",
    FaultKind.CREATE_ERROR: "CreateVolume",
}


@dataclass(frozen=True)
class Fault:
    """One fault. `action` is an API action, "Imds", or "*" for every API action.

    `times`: how many calls it hits, None for all; `probability`: of hitting a call that it could hit.
    Raises SettingError when the numbers make no sense or the kind lacks what it needs.
    """

    kind: FaultKind
    action: str = "*"
    times: int | None = 1
    probability: float = 1.0
    seconds: float = 0.0
    code: str = ""
    status: int = 502

    def __post_init__(self) -> None:
        if self.times is not None and self.times < 1:
            raise SettingError(f"times must be 1 or more, or None, got {self.times}")
        if not 0 < self.probability <= 1:
            raise SettingError(f"probability must be in (0, 1], got {self.probability}")
        if self.seconds < 0:
            raise SettingError(f"seconds must be 0 or more, got {self.seconds}")
        if self.kind is FaultKind.ERROR and not self.code:
            raise SettingError("a fault of kind 'error' needs a code")
        if not 400 <= self.status <= 599:
            raise SettingError(f"status must be 400 to 599, got {self.status}")
        only = _ONLY_AT.get(self.kind)
        if only is not None and self.action not in ("*", only):
            raise SettingError(f"{self.kind} happens at {only}, not at {self.action}")

    @classmethod
    def from_json(cls, value: object) -> Fault:
        """A fault from decoded JSON with the names of the fields. Raises SettingError for anything else."""
        known = {field.name for field in fields(cls)}
        if not isinstance(value, Mapping) or not set(value) <= known or "kind" not in value:
            raise SettingError(f"a fault is an object with 'kind' and any of {sorted(known)}, got {value!r}")
        try:
            return cls(**{**value, "kind": FaultKind(value["kind"])})
        except (TypeError, ValueError) as error:
            raise SettingError(f"bad fault {value!r}: {error}") from error

    def hits(self, action: str) -> bool:
        """Whether the fault is meant for that action."""
        return self.action == action or (self.action == "*" and action != IMDS)


@dataclass
class _Armed:
    fault: Fault
    left: int | None


class Faults:
    """The faults in force; settable at run time from any thread, drawn with a seeded generator."""

    def __init__(self, seed: int = 1) -> None:
        self._lock = threading.Lock()
        self._rng = random.Random(seed)
        self._armed: list[_Armed] = []

    def add(self, *faults: Fault) -> None:
        """Put faults behind those in force; the first that hits wins."""
        with self._lock:
            self._armed += [_Armed(fault, fault.times) for fault in faults]

    def replace(self, faults: Iterable[Fault]) -> None:
        """Exactly these faults from now on."""
        armed = [_Armed(fault, fault.times) for fault in faults]
        with self._lock:
            self._armed = armed

    def clear(self) -> None:
        """No faults any more. What a fault has made stuck stays stuck."""
        self.replace(())

    def revoke_credentials(self, code: str = "AuthFailure") -> None:
        """Refuse every API call with `code` (or `UnauthorizedOperation`) until faults are cleared."""
        self.add(Fault(FaultKind.ERROR, code=code, times=None))

    def pending(self) -> list[dict[str, object]]:
        """The faults in force as plain data, `times` being what is left."""
        with self._lock:
            return [{**asdict(armed.fault), "times": armed.left} for armed in self._armed]

    def take(self, action: str, kinds: Collection[FaultKind]) -> Fault | None:
        """The fault of one of those kinds that hits this call of `action`, counted, or None."""
        with self._lock:
            for armed in self._armed:
                fault = armed.fault
                if fault.kind in kinds and fault.hits(action) and self._rng.random() < fault.probability:
                    if armed.left is not None:
                        armed.left -= 1
                    self._armed = [each for each in self._armed if each.left != 0]
                    return fault
        return None
