"""The limits by which two cgroups share the simulated device: one writes, the other reads.

The limits are those of `core.division`, put in force each quarter of a second by the agent's host worker, while it
lives. How long requests took decides about latency targets: a step counts as a whole for each request that is in flight
in it, so no time is missing, once it has ended. As on a real machine limits stay when the agent dies or is stopped,
until its guard removes them; one that is left behind slows its cgroup down.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce

from elastio.core.division import Division
from elastio.core.lending import Requests
from elastio.core.shares import BoostRights, SharePlan
from elastio.units import MB
from elastio_sim.disk import Traffic

WRITERS, READERS = "system.slice/writer.service", "system.slice/reader.service"
WEIGHTS = {"system.slice": 100.0, WRITERS: 100.0, READERS: 100.0}
TURN_S = 0.25
# The guard removes what a dead agent left at once, and what one that is stopped left when its heartbeat is this old.
GUARD_S = 10.0
ROUNDING = 1e-6


def counted(rights: BoostRights, traffic: Traffic) -> tuple[int, int]:
    """Bytes read and written by those of the two cgroups that have the right to a boost."""
    return rights.includes(READERS) * traffic.read, rights.includes(WRITERS) * traffic.written


@dataclass(slots=True)
class SimShares:
    """`stayed`: how often a cache was attached, bypassed or detached while limits were in force.

    `is_orphaned`: the process that set them has died, and the one that came after it has not taken them back yet.
    """

    plan: SharePlan | None = None
    limits: dict[str, float] = field(default_factory=dict)
    stayed: int = 0
    is_orphaned: bool = False
    _division: Division = field(default_factory=Division)
    _moved: dict[str, int] = field(default_factory=dict)
    _finished: dict[str, Requests] = field(default_factory=dict)
    _turns: int = 0
    _alone_since: float | None = None

    def end(self) -> None:
        """Lift all limits."""
        self.plan, self.limits, self._division, self.is_orphaned = None, {}, Division(), False

    def begin(self, plan: SharePlan) -> None:
        """Share by this plan. What a process left that has died is lifted before."""
        if self.is_orphaned:
            self.end()
        self.plan = plan

    @property
    def shown_mb_s(self) -> float | None:
        """The capacity that is shared, as the agent finds it."""
        if self.plan is None:
            return None
        return 0.0 if self.is_orphaned else self.plan.capacity_mb_s

    def changed(self) -> None:
        """The cache is attached, bypassed or detached by the agent."""
        self.stayed += self.plan is not None

    def took(self, group: str, seconds: float) -> None:
        """A request of the cgroup has ended."""
        self._finished[group] = self._finished.get(group, Requests()).plus(Requests(1, seconds))

    @property
    def level(self) -> float:
        """How much is lent of what others leave."""
        return self._division.lending.level

    def watch(self, now: float, *, is_attended: bool) -> None:
        """The guard looks whether the agent lives. Without it no limit is rewritten, and each stays as it is."""
        if is_attended and not self.is_orphaned:
            self._alone_since = None
        elif self._alone_since is None:
            self._alone_since = now
        elif now - self._alone_since >= GUARD_S:
            self.end()

    @property
    def is_busy(self) -> bool:
        """A step may change something even if nobody uses the device."""
        return self.plan is not None and bool(self.limits or self._division.used_mb_s)

    def rest(self, now: float) -> None:
        """Equivalent to steps until now in which nobody used the device."""
        self._turns, self._finished = int(now / TURN_S + ROUNDING), {}

    def step(self, now: float, traffic: Traffic) -> None:
        """Bytes have moved; divide again when a turn is due."""
        if int(now / TURN_S + ROUNDING) == self._turns:
            return
        finished = self._finished
        self.rest(now)
        before, self._moved = self._moved, {WRITERS: traffic.written, READERS: traffic.read}
        if self.plan is None or self.is_orphaned or self._alone_since is not None:
            return
        used = {group: max(0, now - before.get(group, now)) / MB / TURN_S for group, now in self._moved.items()}
        waited = {
            group: finished.get(group, Requests())
            for group, mb_s in used.items()
            if mb_s and self.plan.target_s(group) is not None
        }
        request_s = reduce(Requests.plus, finished.values(), Requests()).mean_s or 0.0
        self._division, self.limits = self._division.turn(
            used, WEIGHTS, self.plan, self.limits, waited=waited, request_s=request_s
        )
