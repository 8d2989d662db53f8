"""What fails at a point: a fault that waits for the next call that it can spoil, or a scheduled fault at once."""

from __future__ import annotations

from dataclasses import dataclass

from elastio_sim.faults import (
    AGENT_KINDS,
    HOST_OP_KINDS,
    OP_KINDS,
    PROVIDER_KINDS,
    TAKE_OVER_KINDS,
    FaultMode,
    ScheduledFault,
)

from .crashes import Run

# A bill is closed when its end is seen: within two looks of a second.
SEEN_S = 2.0
CLOUD_TIMEOUT_S = 60.0
HOST_TIMEOUT_S = 60.0
SWAPPED_S = 60.0
FULL_S = 400.0
LOCKED_S = 30.0


@dataclass(frozen=True)
class PointFault:
    """`ops` empty: a scheduled fault at once. `late_s`: by how much later than without it a bill's end may be seen."""

    kind: FaultMode
    ops: tuple[str, ...] = ()
    seconds: float = 10.0
    late_s: float = 0.0
    may_fault: bool = False
    is_over_with_agent: bool = False  # an agent that is killed makes nothing more of it
    is_of_shared_caps: bool = False  # it can happen only where caps are shared

    def may_strike(self, called: frozenset[str]) -> bool:
        """Whether it finds something to spoil where these operations are called; a scheduled fault needs none."""
        return not self.ops or any(self.kind in OP_KINDS[op] for op in called.intersection(self.ops))

    def strike(self, play: Run) -> None:
        play.may_fault = play.may_fault or self.may_fault
        if self.ops:
            play.world.faults.arm(self.kind, self.ops, self.seconds)
        else:
            play.world.happen(ScheduledFault("0", self.kind, self.seconds))


CLOUD = (*PROVIDER_KINDS, *TAKE_OVER_KINDS)
HOST, JOURNAL = tuple(HOST_OP_KINDS), tuple(AGENT_KINDS)
MUTE_S = CLOUD_TIMEOUT_S + 10.0

FAULTS = {
    "nothing": PointFault(FaultMode.REFUSE),
    "the cloud refuses": PointFault(FaultMode.REFUSE, CLOUD, late_s=5.0),
    "the cloud throttles": PointFault(FaultMode.THROTTLE, CLOUD, late_s=5.0),
    "the cloud hangs": PointFault(FaultMode.HANG, CLOUD, late_s=MUTE_S),
    "an answer of the cloud is lost": PointFault(FaultMode.LOSE_REPLY, CLOUD, late_s=5.0),
    "the cloud succeeds late": PointFault(FaultMode.LATE_SUCCESS, CLOUD, 20.0, late_s=MUTE_S),
    "the cloud shows a volume late": PointFault(FaultMode.UNSEEN, CLOUD, 30.0, late_s=5.0),
    "the cloud is stuck": PointFault(FaultMode.STUCK, CLOUD, 40.0, late_s=5.0),
    "the guest keeps the disk": PointFault(FaultMode.STUCK_BUSY, CLOUD, 30.0, late_s=5.0),
    "a wrong device appears": PointFault(FaultMode.WRONG_DEVICE, CLOUD, late_s=5.0),
    "the device has a wrong size": PointFault(FaultMode.WRONG_SIZE, CLOUD, late_s=5.0),
    "the volume ends in an error": PointFault(FaultMode.VOLUME_ERROR, CLOUD, late_s=5.0, may_fault=True),
    "the quota is reached": PointFault(FaultMode.QUOTA, CLOUD, late_s=5.0),
    "the credentials have expired": PointFault(FaultMode.EXPIRED, CLOUD, late_s=5.0),
    "the journal's disk is full": PointFault(FaultMode.NO_SPACE, JOURNAL, late_s=5.0),
    "the journal's sync fails": PointFault(FaultMode.UNSYNCED, JOURNAL, late_s=5.0),
    "the journal's disk stays full": PointFault(FaultMode.DISK_FULL, seconds=FULL_S, late_s=FULL_S + 70.0),
    "the ledger is locked": PointFault(FaultMode.LOCKED, seconds=LOCKED_S),
    "a statement of another device cannot be read": PointFault(
        FaultMode.UNREADABLE, seconds=60.0, is_of_shared_caps=True
    ),
    "the own statement cannot be written": PointFault(FaultMode.UNWRITABLE, seconds=60.0, is_of_shared_caps=True),
    "sysfs refuses a write": PointFault(FaultMode.REFUSE, HOST, late_s=5.0),
    "a device is busy": PointFault(FaultMode.BUSY, HOST, late_s=5.0),
    "the kernel hangs": PointFault(FaultMode.HANG, HOST, late_s=HOST_TIMEOUT_S + 10.0),
    "the kernel succeeds late": PointFault(FaultMode.LATE_SUCCESS, HOST, 5.0, late_s=HOST_TIMEOUT_S + 10.0),
    "a release ends half way": PointFault(FaultMode.HALF, HOST, late_s=5.0),
    "the cache disk vanishes": PointFault(FaultMode.VANISH, late_s=5.0, may_fault=True),
    "the clock jumps ahead": PointFault(FaultMode.WALL_JUMP, seconds=7200.0, late_s=5.0),
    "the clock jumps back": PointFault(FaultMode.WALL_JUMP, seconds=-7200.0, late_s=5.0),
    "the backing disk is swapped": PointFault(
        FaultMode.SWAP, seconds=SWAPPED_S, late_s=SWAPPED_S + 15.0, may_fault=True
    ),
    "an older copy is put on the backing disk": PointFault(
        FaultMode.SWAP_ALIKE, seconds=SWAPPED_S, late_s=SWAPPED_S + 15.0, may_fault=True
    ),
    "the backing disk is swapped for one without a serial": PointFault(
        FaultMode.SWAP_NAMELESS, seconds=SWAPPED_S, late_s=SWAPPED_S + 15.0, may_fault=True, is_over_with_agent=True
    ),
    "somebody detaches the cache": PointFault(FaultMode.DETACH_BY_HAND, late_s=15.0, may_fault=True),
    "the agent is stopped": PointFault(FaultMode.STOP, seconds=90.0, late_s=95.0, is_over_with_agent=True),
    "a worker's child is killed": PointFault(FaultMode.KILL_CHILD, late_s=5.0, is_over_with_agent=True),
    "somebody sets the mode writethrough": PointFault(FaultMode.WRITETHROUGH, late_s=15.0),
    "somebody sets the mode writearound": PointFault(FaultMode.WRITEAROUND, late_s=15.0),
    "another configuration is reloaded": PointFault(FaultMode.RELOAD, late_s=5.0),
}
