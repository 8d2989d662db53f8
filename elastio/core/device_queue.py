"""The queue at the adaptive device: whether one stands there, and for how long limits are lower to drain it. Pure.

Theory of operation. What was in flight before there were limits stands at the volume, and for long: limits leave only
some percent to drain it. Until then whoever has most of it gets most, and all wait. So does what loose limits let pass,
those of cgroups that were satisfied until now. A queue may also form when the device stops for a moment, or gives a
little less than it is taken to.

A queue stands there if requests take much longer than each of these:

- what the device needs for one of their size alone (QUEUED; less where who wants more reads and writes, QUEUED_MIXED:
  there limits allow more than the device gives, and how long requests take is bounded by how many may be in flight to
  the disk, as all others wait in the kernel);
- what they took when they took least (TWICE), as every device takes some time. That least is forgotten slowly (LONGER):
  a device on which requests always take long is known after half a minute. Not sooner, as a queue grows slowly where
  the device gives some percent less than it is taken to, and would be taken for what is usual. And not at all while
  nobody is limited on a full device: that queue is the load's own;
- what the device needs for a request of many MB that may be there. It has passed its limit in an earlier turn, all
  others wait for it, and lower limits do not make it smaller.

If they take twice as long as that, limits are lower (DRAIN) until there is no queue any more, and until the device is
not full: what limits hold back waits for the disk in one thread (block/blk-throttle.c), outside of the device. That may
last DRAIN_TURNS. REFILL of the turns without limits, or with loose ones, may be used for it later, as a load that
pauses now and then would pay for each pause; and REFILL_SLOWLY of those with limits and no queue. Loose limits let
small queues form again and again, so only a long one keeps those turns from counting.
"""

from __future__ import annotations

from dataclasses import dataclass

# The length of a turn in seconds.
TURN_S = 0.25
QUEUED, QUEUED_MIXED, TWICE, LEAST_S, LONGER = 6.0, 2.5, 2.0, 0.01, 1.01
DRAIN, DRAIN_TURNS, REFILL, REFILL_SLOWLY = 0.3, 12, 0.25, 0.05


@dataclass(frozen=True, slots=True)
class DeviceQueue:
    """What one turn has to know of those before it.

    `drains`: for how many turns limits may still be lower. `usual_s`: what a request took when it took least.
    """

    is_there: bool = False
    is_draining: bool = False
    drains: float = DRAIN_TURNS
    usual_s: float = LEAST_S

    def turn(
        self,
        request_s: float,
        needed_s: float,
        piece_s: float = 0.0,
        *,
        is_limited: bool,
        is_loose: bool,
        is_full: bool,
        is_mixed: bool = False,
    ) -> DeviceQueue:
        """After a turn in which a request took so long, a mean, and the device needed `needed_s` for it; 0: not known.

        `piece_s`: how long it needs for a piece (`division`) that may be at the device; 0: none is.
        `is_limited`: limits were in force; `is_loose`: they allowed much more than the device gives. `is_full`: about
        as much passed them as it gives. `is_mixed`: who wants more reads and writes alike.
        """
        queued = QUEUED_MIXED if is_mixed else QUEUED
        long_s = max(TWICE * self.usual_s, queued * needed_s, piece_s)
        is_there = request_s > long_s or (self.is_draining and is_full)
        longer = LONGER if is_limited or not is_full else 1.0
        usual_s = min(longer * self.usual_s, max(LEAST_S, request_s)) if request_s else self.usual_s
        is_long = request_s > TWICE * long_s
        if is_limited and is_there and self.drains >= 1 and (self.is_draining or is_long):
            return DeviceQueue(is_there, True, self.drains - 1, usual_s)
        refill = REFILL if is_loose or not is_limited else REFILL_SLOWLY
        is_kept = is_limited and (is_long if is_loose else is_there)
        drains = self.drains if is_kept else min(DRAIN_TURNS, self.drains + refill)
        return DeviceQueue(is_there, False, drains, usual_s)


NO_QUEUE = DeviceQueue()
