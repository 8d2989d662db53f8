"""The table of faults: for each kind the triggers at which it may strike, and the calls that it affects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, get_args

from elastio.core.actions import Action
from elastio_testbed.ec2 import Fault, FaultKind

# The effects of one cycle in order, without polls and scans.
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
JOURNALLED = ("intent", "outcome")
KNOWN_ACTIONS = frozenset(action.__name__ for action in get_args(Action))


@dataclass(frozen=True, slots=True)
class Trigger:
    """A record of the agent's journal: the intent or the outcome of an action, or the decision for a phase.

    An action that the agent does not have is refused: the guest would wait for it until its time is over.
    """

    kind: str
    what: str

    def __post_init__(self) -> None:
        if self.kind in JOURNALLED and self.what not in KNOWN_ACTIONS:
            raise ValueError(f"the agent has no action {self.what}")

    def __str__(self) -> str:
        return f"{self.kind} {self.what}"


STEPS = tuple(Trigger(kind, action) for action in ACTIONS for kind in JOURNALLED)
# Only an adopted volume has a tombstone.
TOMBSTONES = tuple(Trigger(k, action) for action in ("WriteTombstone", "RemoveTombstone") for k in JOURNALLED)
PHASES = tuple(Trigger("decision", phase) for phase in ("attaching", "boosting", "flushing", "detaching", "idle"))
BEGIN, BOOSTING = PHASES[0], PHASES[1]
# Not a record of the journal: the instant in which the agent throttles applications.
THROTTLED = Trigger("limit", "io.max")


class FaultAction(StrEnum):
    """What is done to the guest at the trigger."""

    NOTHING = "nothing"  # the fault is the cloud's alone
    KILL_DAEMON = "kill daemon"
    KILL_THROTTLING = "kill daemon, corrupt its configuration"
    FILL_DISK = "fill the state disk"
    CUT_POWER = "cut power"
    STOP_SERVICE = "stop service"
    REBOOT = "reboot"
    POWER_OFF = "power off"
    PULL_DIRTY = "pull dirty"
    PULL_CLEAN = "pull clean"
    REVOKE = "revoke credentials"
    FORBID = "use up quota"


# Actions that change nothing for applications but their throughput.
TRANSPARENT = (
    *(FaultAction.NOTHING, FaultAction.KILL_DAEMON, FaultAction.KILL_THROTTLING, FaultAction.FILL_DISK),
    *(FaultAction.STOP_SERVICE, FaultAction.REVOKE, FaultAction.FORBID),
)
PULLS = (FaultAction.PULL_DIRTY, FaultAction.PULL_CLEAN)


@dataclass(frozen=True, slots=True)
class Kind:
    """One row of the table.

    It strikes at one of `triggers`, up to `random_s` later; a fault of the cloud hits one of `calls`.
    """

    name: str
    action: FaultAction = FaultAction.NOTHING
    triggers: tuple[Trigger, ...] = (BEGIN,)
    random_s: float = 0.0
    calls: tuple[str, ...] = ()
    fault: Fault | None = None

    def cloud_fault(self, call: str) -> Fault | None:
        """The fault of the endpoint for one of `calls`."""
        return None if self.fault is None else replace(self.fault, action=call)


def _api(name: str, kind: FaultKind, calls: tuple[str, ...] = CALLS, **fields: Any) -> Kind:
    return Kind(f"api-{name}", calls=calls, fault=Fault(kind, **fields))


# Longer than the agent's timeout for a response (10 s) and than a worker's for a call (60 s).
LATE_S, STALL_S = 15.0, 75.0

KINDS: Mapping[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("daemon-kill", FaultAction.KILL_DAEMON, STEPS),
        Kind("daemon-kill-random", FaultAction.KILL_DAEMON, PHASES[:4], random_s=6.0),
        Kind("daemon-kill-holding", FaultAction.KILL_THROTTLING, (THROTTLED,)),
        Kind("state-disk-full", FaultAction.FILL_DISK, PHASES[:4], random_s=2.0),
        Kind("power-cut", FaultAction.CUT_POWER, STEPS),
        Kind("power-cut-random", FaultAction.CUT_POWER, PHASES[:4], random_s=6.0),
        Kind("service-stop", FaultAction.STOP_SERVICE, PHASES[:4], random_s=2.0),
        Kind("reboot", FaultAction.REBOOT, PHASES, random_s=2.0),
        Kind("poweroff", FaultAction.POWER_OFF, PHASES, random_s=2.0),
        Kind("cache-pulled-dirty", FaultAction.PULL_DIRTY, (BOOSTING,), random_s=3.0),
        Kind("cache-pulled-clean", FaultAction.PULL_CLEAN, (BOOSTING,)),
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
        Kind("tombstone-kill", FaultAction.KILL_DAEMON, TOMBSTONES, random_s=0.3),
        Kind("tombstone-cut", FaultAction.CUT_POWER, TOMBSTONES, random_s=0.3),
        Kind("api-quota", FaultAction.FORBID),
        Kind("api-expired-credentials", FaultAction.REVOKE, PHASES[:4]),
    )
}

OF_ADOPTED = ("tombstone-kill", "tombstone-cut")
EVERYWHERE = tuple(name for name in KINDS if name not in OF_ADOPTED)
# One of every group, for the test suite; each boots the guest at most once.
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
