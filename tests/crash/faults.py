"""What fails at a point: a fault that waits for the next call that it can spoil, or a scheduled fault at once."""

from __future__ import annotations

from dataclasses import dataclass

from elastio.sim.faults import AGENT_KINDS, HOST_OP_KINDS, OP_KINDS, PROVIDER_KINDS, Kind, ScheduledFault

from .crashes import Play

# A bill is closed when its end is seen: within two looks of a second.
SEEN_S = 2.0
CLOUD_TIMEOUT_S = 60.0
HOST_TIMEOUT_S = 60.0
SWAPPED_S = 60.0
FULL_S = 400.0


@dataclass(frozen=True)
class Woe:
    """`ops` empty: a scheduled fault at once. `late_s`: by how much later than without it a bill's end may be seen."""

    kind: Kind
    ops: tuple[str, ...] = ()
    seconds: float = 10.0
    late_s: float = 0.0
    may_fault: bool = False
    is_over_with_agent: bool = False  # an agent that is killed makes nothing more of it

    def may_strike(self, called: frozenset[str]) -> bool:
        """Whether it finds something to spoil where these operations are called; a scheduled fault needs none."""
        return not self.ops or any(self.kind in OP_KINDS[op] for op in called.intersection(self.ops))

    def strike(self, play: Play) -> None:
        play.may_fault = play.may_fault or self.may_fault
        if self.ops:
            play.world.faults.arm(self.kind, self.ops, self.seconds)
        else:
            play.world.happen(ScheduledFault("0", self.kind, self.seconds))


CLOUD, HOST, JOURNAL = tuple(PROVIDER_KINDS), tuple(HOST_OP_KINDS), tuple(AGENT_KINDS)
MUTE_S = CLOUD_TIMEOUT_S + 10.0

WOES = {
    "nothing": Woe(Kind.REFUSE),
    "the cloud refuses": Woe(Kind.REFUSE, CLOUD, late_s=5.0),
    "the cloud throttles": Woe(Kind.THROTTLE, CLOUD, late_s=5.0),
    "the cloud hangs": Woe(Kind.HANG, CLOUD, late_s=MUTE_S),
    "an answer of the cloud is lost": Woe(Kind.LOSE_REPLY, CLOUD, late_s=5.0),
    "the cloud succeeds late": Woe(Kind.LATE_SUCCESS, CLOUD, 20.0, late_s=MUTE_S),
    "the cloud shows a volume late": Woe(Kind.UNSEEN, CLOUD, 30.0, late_s=5.0),
    "the cloud is stuck": Woe(Kind.STUCK, CLOUD, 40.0, late_s=5.0),
    "the guest does not let go": Woe(Kind.STUCK_BUSY, CLOUD, 30.0, late_s=5.0),
    "a wrong device appears": Woe(Kind.WRONG_DEVICE, CLOUD, late_s=5.0),
    "the device has a wrong size": Woe(Kind.WRONG_SIZE, CLOUD, late_s=5.0),
    "the volume ends in an error": Woe(Kind.VOLUME_ERROR, CLOUD, late_s=5.0, may_fault=True),
    "the quota is reached": Woe(Kind.QUOTA, CLOUD, late_s=5.0),
    "the credentials have expired": Woe(Kind.EXPIRED, CLOUD, late_s=5.0),
    "the journal's disk is full": Woe(Kind.NO_SPACE, JOURNAL, late_s=5.0),
    "the journal's disk stays full": Woe(Kind.DISK_FULL, seconds=FULL_S, late_s=FULL_S + 70.0),
    "sysfs refuses a write": Woe(Kind.REFUSE, HOST, late_s=5.0),
    "a device is busy": Woe(Kind.BUSY, HOST, late_s=5.0),
    "the kernel hangs": Woe(Kind.HANG, HOST, late_s=HOST_TIMEOUT_S + 10.0),
    "the kernel succeeds late": Woe(Kind.LATE_SUCCESS, HOST, 5.0, late_s=HOST_TIMEOUT_S + 10.0),
    "a release ends half way": Woe(Kind.HALF, HOST, late_s=5.0),
    "the cache disk vanishes": Woe(Kind.VANISH, late_s=5.0, may_fault=True),
    "the clock jumps ahead": Woe(Kind.WALL_JUMP, seconds=7200.0, late_s=5.0),
    "the clock jumps back": Woe(Kind.WALL_JUMP, seconds=-7200.0, late_s=5.0),
    "the backing disk is swapped": Woe(Kind.SWAP, seconds=SWAPPED_S, late_s=SWAPPED_S + 15.0, may_fault=True),
    "an older copy is put on the backing disk": Woe(
        Kind.SWAP_ALIKE, seconds=SWAPPED_S, late_s=SWAPPED_S + 15.0, may_fault=True
    ),
    "the backing disk is swapped for one without a serial": Woe(
        Kind.SWAP_NAMELESS, seconds=SWAPPED_S, late_s=SWAPPED_S + 15.0, may_fault=True, is_over_with_agent=True
    ),
    "somebody detaches the cache": Woe(Kind.DETACH_BY_HAND, late_s=15.0, may_fault=True),
    "the agent stands still": Woe(Kind.STOP, seconds=90.0, late_s=95.0, is_over_with_agent=True),
    "a worker's child is killed": Woe(Kind.KILL_CHILD, late_s=5.0, is_over_with_agent=True),
}
