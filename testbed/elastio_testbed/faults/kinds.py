"""The table of faults: every kind, at which moments of a cycle it may strike, and what the cloud does wrong in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from elastio_testbed.ec2 import Fault, FaultKind

# The effects of one cycle in their order. Looks are left out: they change nothing.
ACTIONS = (
    "CreateVolume",
    "AttachVolume",
    "TagVolume",
    "InstallCache",
    "EnterPhase2",
    "BypassCache",
    "DetachCacheSet",
    "ReleaseCacheDisk",
    "DetachVolume",
    "DeleteVolume",
)
CALLS = ("CreateVolume", "AttachVolume", "DetachVolume", "DeleteVolume")


@dataclass(frozen=True, slots=True)
class Moment:
    """A record of the agent's journal: the intent or the outcome of an action, or the decision for a phase."""

    kind: str
    what: str

    def __str__(self) -> str:
        return f"{self.kind} {self.what}"


STEPS = tuple(Moment(kind, action) for action in ACTIONS for kind in ("intent", "outcome"))
PHASES = tuple(Moment("decision", phase) for phase in ("attaching", "boosting", "flushing", "detaching", "idle"))
BEGIN, BOOSTING = PHASES[0], PHASES[1]
# No record of the journal: the instant in which the kernel holds applications back.
HELD_BACK = Moment("limit", "io.max")


class Deed(StrEnum):
    """What is done to the guest at the moment."""

    NOTHING = "nothing"  # the cloud alone misbehaves
    KILL_DAEMON = "kill daemon"
    KILL_HOLDING = "kill daemon, spoil its configuration"
    FILL_DISK = "fill the state disk"
    CUT_POWER = "cut power"
    STOP_SERVICE = "stop service"
    REBOOT = "reboot"
    POWER_OFF = "power off"
    PULL_DIRTY = "pull dirty"
    PULL_CLEAN = "pull clean"
    REVOKE = "revoke credentials"
    FORBID = "forbid volumes"  # the account's quota is used up


# Deeds of which an application notices nothing but its speed.
UNFELT = (
    *(Deed.NOTHING, Deed.KILL_DAEMON, Deed.KILL_HOLDING, Deed.FILL_DISK),
    *(Deed.STOP_SERVICE, Deed.REVOKE, Deed.FORBID),
)
PULLS = (Deed.PULL_DIRTY, Deed.PULL_CLEAN)


@dataclass(frozen=True, slots=True)
class Kind:
    """One row of the table.

    `moments`: where it may strike; `random`: up to so many seconds later. `calls`: the calls that `faults` may hit.
    """

    name: str
    deed: Deed = Deed.NOTHING
    moments: tuple[Moment, ...] = (BEGIN,)
    random_s: float = 0.0
    calls: tuple[str, ...] = ()
    fault: Mapping[str, object] | None = None

    def cloud_fault(self, call: str) -> Fault | None:
        """What the endpoint is told, for one of `calls`."""
        return None if self.fault is None else Fault.from_json({"action": call, **self.fault})


def _api(name: str, kind: FaultKind, calls: tuple[str, ...] = CALLS, **fields: object) -> Kind:
    return Kind(f"api-{name}", calls=calls, fault={"kind": kind.value, **fields})


# Longer than the agent waits for an answer (10 s), and than a lane waits for a call (60 s).
LATE_S, STALL_S = 15.0, 75.0

KINDS: Mapping[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("daemon-kill", Deed.KILL_DAEMON, STEPS),
        Kind("daemon-kill-random", Deed.KILL_DAEMON, PHASES[:4], random_s=6.0),
        Kind("daemon-kill-holding", Deed.KILL_HOLDING, (HELD_BACK,)),
        Kind("state-disk-full", Deed.FILL_DISK, PHASES[:4], random_s=2.0),
        Kind("power-cut", Deed.CUT_POWER, STEPS),
        Kind("power-cut-random", Deed.CUT_POWER, PHASES[:4], random_s=6.0),
        Kind("service-stop", Deed.STOP_SERVICE, PHASES[:4], random_s=2.0),
        Kind("reboot", Deed.REBOOT, PHASES, random_s=2.0),
        Kind("poweroff", Deed.POWER_OFF, PHASES, random_s=2.0),
        Kind("cache-pulled-dirty", Deed.PULL_DIRTY, (BOOSTING,), random_s=3.0),
        Kind("cache-pulled-clean", Deed.PULL_CLEAN, (BOOSTING,)),
        _api("lost-answer", FaultKind.DROP_AFTER, times=1),
        _api("lost-request", FaultKind.DROP_BEFORE, times=2),
        _api("throttled", FaultKind.THROTTLE, (*CALLS, "DescribeVolumes", "*"), times=8),
        _api("server-error", FaultKind.ERROR, code="InternalError", times=4),
        _api("proxy-page", FaultKind.HTTP, times=3, status=502),
        _api("late-answer", FaultKind.STALL_AFTER, seconds=LATE_S, times=1),
        _api("stalled", FaultKind.LATENCY, seconds=STALL_S, times=1),
        _api("slow-step", FaultKind.SLOW, seconds=20.0, times=1),
        _api("stuck-attaching", FaultKind.STUCK_ATTACHING, ("AttachVolume",), times=1),
        _api("late-attached", FaultKind.STUCK_ATTACHING, ("AttachVolume",), seconds=20.0, times=1),
        _api("stuck-detaching", FaultKind.STUCK_DETACHING, ("DetachVolume",), times=1),
        _api("late-detached", FaultKind.STUCK_DETACHING, ("DetachVolume",), seconds=20.0, times=1),
        _api("volume-in-error", FaultKind.CREATE_ERROR, ("CreateVolume",), times=1),
        _api("no-capacity", FaultKind.ERROR, ("CreateVolume",), code="InsufficientVolumeCapacity", times=2),
        Kind("api-quota", Deed.FORBID),
        Kind("api-expired-credentials", Deed.REVOKE, PHASES[:4]),
    )
}

# Of every group, what a test suite has the time for: each boots the guest at most once.
SELECTION = (
    "daemon-kill",
    "api-lost-answer",
    "power-cut",
    "service-stop",
    "api-throttled",
    "reboot",
    "cache-pulled-dirty",
    "api-expired-credentials",
)
