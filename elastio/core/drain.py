"""When writes are held back for a cache whose disk has not appeared yet.

Theory of operation. A cache is attached while no write is in flight to the backing volume (see `host.throttle`). What
is in flight takes that volume's time: a filesystem submits requests of up to 8 MiB, some three at once, which is a
second and a half at 16 MB/s, and a fifth of a second at 125 MB/s. If writes are held back that long before the disk
appears, the backing volume works on at its full speed, and the attach need not wait. When the disk appears is known
from the last boosts; on a slow backing volume that is sooner than its volume has been created. If it does not appear,
writes flow again after as much time as could have been gained. Pure.
"""

from __future__ import annotations

from statistics import median

from elastio.core.cycle import Cycle, Trigger
from elastio.core.policy import Policy
from elastio.core.state import AgentState, Phase
from elastio.units import MB, MIB

IN_FLIGHT_BYTES = 24 * MIB
MOST_S = 2.0
# Measured times that are kept.
KEPT = 8
# As good as nothing: the kernel knows no limit of zero.
HELD_MB_S = 0.0


def window(state: AgentState, policy: Policy) -> tuple[float, float] | None:
    """From when until when (CLOCK_BOOTTIME) writes are held back for the disk; None: not before it appears.

    Only for a purchase that a load has caused, and never for the first: nothing is known of the cloud then.
    """
    cycle = state.cycle
    decided = cycle.times.decided if cycle is not None and _is_awaited(cycle) else None
    if decided is None or state.phase is not Phase.ATTACHING or not state.appear_s:
        return None
    expected, drain_s = decided + median(state.appear_s), IN_FLIGHT_BYTES / (policy.backing_bandwidth_mb_s * MB)
    return expected - min(MOST_S, drain_s), expected + min(MOST_S, drain_s)


def with_appear_time(appear_s: tuple[float, ...], cycle: Cycle) -> tuple[float, ...]:
    """The last times with that of this cycle, from the decision until its disk appeared."""
    decided, appeared = cycle.times.decided, cycle.times.appeared
    return appear_s if decided is None or appeared is None else (*appear_s, appeared - decided)[-KEPT:]


def _is_awaited(cycle: Cycle) -> bool:
    """The cloud has accepted to create the volume, for a load that is there."""
    return cycle.trigger is Trigger.LOAD and cycle.times.created is not None
