"""Share the adaptive device among cgroups, by limits on bcacheN that follow what each uses.

Theory of operation. The loop lives in the process that holds requests back, between its jobs, so the two never write at
the same time. Each turn, four times a second, reads what the cgroups used since the last, has the core divide the
capacity (`core.division`), and writes the limits that are new. A capacity belongs to one state of the
device. So whoever attaches, bypasses or detaches a cache calls `leave` while requests are held back: all limits are
lifted, and the agent shares again, with the capacity of then, when it has seen what came of it.

Limits go whatever happens: the guard has a lease of LEASE_S, which each turn renews before it writes; see `guard`. It
also ends with the agent's heartbeat. A turn that finds its record removed, by the guard or by an operator, sets no
limit, lifts its own, and stops; the agent sees that nothing is shared, and begins again (see `share_limits`).

Each turn also reads how long the requests of bcacheN took, which says whether a queue stands at the volume. Where a
cgroup has a latency target, this is read several times in a turn, for a mean over time (`core.lending`).

The kernel limits reads and writes each, and what is divided is their sum. So both limits of a cgroup are its share
times the part that the direction has which moves more: all of the share for one that only reads, half of it for one
that does as much of both, and a little more if it cannot use both limits at a time (`Mix`). Where that changes, the
limits follow within some turns.

A limit that goes down is written in two steps, in one turn; why: `allowed`.

A cgroup in which somebody else has set a limit keeps it, and is left out; what it uses counts. So a limit is read again
right before each writing: a turn waits between the two steps.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce

from elastio.core.device_queue import TURN_S
from elastio.core.division import Division
from elastio.core.lending import NO_REQUESTS, Look, Requests, over_time
from elastio.core.moved import Mix, Moved, with_use
from elastio.core.shares import SharePlan
from elastio.errors import HostError
from elastio.host import cgroups, share_limits
from elastio.host.cgroups import limits_of
from elastio.host.counters import finished
from elastio.host.guard import Guard
from elastio.host.share_limits import claim
from elastio.host.sysfs import Sysfs
from elastio.host.throttle import stacked
from elastio.units import MB

# With a jiffy of 10 ms at least 60 % of the slice have passed then, so what has passed too early is LEAST at most.
SETTLES_S, LATEST_S = 0.07, 0.09
LEAST = 0.5
LATE_TURNS = 2


def lowered(limits_mb_s: Mapping[str, float], in_force_mb_s: Mapping[str, float]) -> dict[str, float]:
    """Of the limits those that are lower than the ones in force: what to write first, which is what is in force."""
    return {g: before for g, mb_s in limits_mb_s.items() if (before := in_force_mb_s.get(g, 0.0)) > mb_s}


def allowed(limits_mb_s: Mapping[str, float], first_mb_s: Mapping[str, float]) -> dict[str, float]:
    """What to write once the first have settled, none too low; those that go down come first, in the same order.

    Theory of operation. blk-throttle counts in slices of 0.1 s, and what a limit allows in one may pass at its begin. A
    limit that is written while requests wait begins a slice, from which is taken off what has passed too early in the
    one before: up to all that the limit before allowed in a slice. Linux 6.1 compares what is left as an unsigned
    number (block/blk-throttle.c: tg_within_bps_limit with carryover_bytes, a u64; later kernels have it signed). So
    where a lower limit allows less in a slice than has passed too early, everything passes for the slice, that is, all
    that waits; and as this is again too early, each limit that is written soon after it has no effect either, for as
    long as it needs to allow all of that. What has passed stands in a queue, and who has most in it gets most.

    So a limit that is to go down is first written as it is (`lowered`). That is always safe, and the slice begins at a
    known time. SETTLES_S later, near the end of it, most of what has passed has been allowed by then, and the lower
    limit is written. It may be LEAST of the one before; if it is to be lower, the next turn goes on.

    Each limit has a time of its own for this (`window`), as many take long to write. After it the next slice may have
    begun, and the limit stays for a turn. After LATE_TURNS such turns in a row it is written even so: all that waits
    may pass for a slice, which is better than a share that is never kept.
    """
    return {g: max(limits_mb_s[g], LEAST * first_mb_s.get(g, 0.0)) for g in {**first_mb_s, **limits_mb_s}}


def window(begun_s: float, ended_s: float) -> tuple[float, float]:
    """From when until when a lower limit may be written, whose first step was written between these two."""
    return ended_s + SETTLES_S, begun_s + LATEST_S


# Shorter than a large request of buffered writeback takes on a slow volume.
LOOK_S = 0.05
# The cgroups of a machine, and their weights, are listed again so often.
LIST_S = 2.0
LEASE_S = 5.0

_log = logging.getLogger(__name__)


class Sharer:
    """The shares of one adaptive device. Without a plan no cgroup is read and nothing is written.

    `seconds` is a monotonic clock, `sleep` waits by it.
    """

    def __init__(
        self,
        sysfs: Sysfs,
        guard: Guard,
        seconds: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._sysfs, self._guard, self._seconds, self._sleep = sysfs, guard, seconds, sleep
        self._plan: SharePlan | None = None
        self._name = self._number = self._sequence = ""
        self._groups: tuple[str, ...] = ()
        self._weights: dict[str, float] = {}
        self._moved: dict[str, Moved] = {}
        self._mixes: dict[str, Mix] = {}
        self._finished = NO_REQUESTS
        self._looks: list[Look] = []
        self._division = Division()
        self._limited: set[str] = set()  # may have a limit
        self._refused: set[str] = set()  # cannot be given one
        self._late_turns, self._has_warned = 0, False
        self._listed_at = self._turned_at = self._looked_at = float("-inf")

    @property
    def is_sharing(self) -> bool:
        return self._plan is not None

    def begin(self, plan: SharePlan, adaptive: str) -> None:
        """Share bcacheN by this plan from the next turn on; limits of an earlier plan stay until then.

        Raises HostError, and shares nothing, where the kernel does not count or limit a cgroup's I/O, or the limits
        could not be taken back.
        """
        cgroups.check_counted(self._sysfs)
        cgroups.check_limitable(self._sysfs)
        numbers = [self._sysfs.read(f"sys/block/{name}/dev") for name in stacked(self._sysfs, adaptive)]
        claim(self._sysfs, numbers)
        if not self.is_sharing:
            share_limits.release_shares(self._sysfs)  # those of a process that was killed together with its guard
        self._guard.begin_lease(LEASE_S)
        with share_limits.alone(self._sysfs):
            share_limits.record(self._sysfs, plan, numbers[0], self._limited)
        if not self.is_sharing:
            self._moved, self._division, self._turned_at = {}, Division(), self._seconds()
        self._finished, self._looks, self._looked_at = finished(self._sysfs, adaptive), [], self._seconds()
        self._plan, self._name, self._number, self._listed_at = plan, adaptive, numbers[0], float("-inf")
        self._sequence = share_limits.sequence(self._sysfs, self._number)

    def end(self) -> None:
        """Lift all limits. Raises HostError if some may be left; the guard goes on watching those."""
        if self.is_sharing:
            self._plan = None
            self._lift(self._limited)
            self._guard.end_lease()

    def leave(self) -> None:
        """`end` while requests are held back: lifted before, all that waits in the cgroups would pass at once.

        The guard keeps the order of those who hold them back. Raises HostError if some limits may be left.
        """
        if self.is_sharing:
            self._plan = None
            share_limits.release_shares(self._sysfs)
            self._limited = set()

    def stop(self) -> None:
        """`end`, also for what a process has left that was killed together with its guard."""
        self.end()
        share_limits.release_shares(self._sysfs)

    def wait_s(self) -> float | None:
        """How long until the next turn or look; None: nothing is shared."""
        if self._plan is None:
            return None
        turns_at, looks_at = self._turned_at + TURN_S, self._looked_at + LOOK_S
        return max(0.0, (min(turns_at, looks_at) if self._plan.latency else turns_at) - self._seconds())

    def turn(self) -> None:
        """Look; and when a turn is due, measure, divide, and rewrite.

        What fails ends the sharing: the agent sees that, and may begin again.
        """
        if self._plan is None:
            return
        try:
            self._look()
            if self._seconds() >= self._turned_at + TURN_S:
                self._turn(self._plan)
        except HostError as error:
            _log.warning("the device is not shared any more: %s", error)
            self._give_up()

    def _give_up(self) -> None:
        try:
            self.end()
        except HostError as error:
            _log.warning("%s", error)
            self._guard.dismiss()  # it tries several times

    def _turn(self, plan: SharePlan) -> None:
        now = self._seconds()
        if now - self._listed_at >= LIST_S:
            self._list(now)
        moved, seconds = self._moved_since(now)
        used = {group: each.total_bytes / MB / seconds for group, each in moved.items()}
        shown = {group: limits_of(self._sysfs, group).get(self._number) for group in used}
        self._mixes = {group: self._mixes.get(group, Mix()).after(each) for group, each in moved.items()}
        in_force = {
            group: mb_s / self._mixes[group].part
            for group, limit in shown.items()
            if (mb_s := share_limits.share_mb_s(limit)) is not None
        }
        foreign = {group for group, limit in shown.items() if limit is not None and group not in in_force}
        foreign |= self._refused & used.keys()
        looks, self._looks = self._looks, []
        self._division, wanted = self._division.turn(
            used,
            self._weights,
            plan,
            in_force,
            foreign,
            _waited(plan, moved, looks),
            reduce(Requests.plus, (look.reads.plus(look.writes) for look in looks)).mean_s or 0.0,
            {group: each.requests for group, each in moved.items()},
            {group for group, mix in self._mixes.items() if mix.is_even},
        )
        self._guard.begin_lease(LEASE_S)
        with share_limits.alone(self._sysfs):
            if share_limits.is_shared_here(self._sysfs):
                self._write(plan, wanted, in_force, shown)
                self._lift(self._limited - wanted.keys())
            else:
                self._lift(self._limited)
                self._plan = None
        # From the next turn on: what is in force was read with the mixes of this one.
        limited = {group: in_force[group] for group in self._division.hungry & in_force.keys()}
        self._mixes = with_use(self._mixes, used, limited, plan.capacity_mb_s)

    def _list(self, now: float) -> None:
        """The cgroups that may share the device, if that is still the same. Raises HostError."""
        if share_limits.sequence(self._sysfs, self._number) != self._sequence:
            raise HostError(f"{self._name} is gone, or another device now")
        self._groups, self._listed_at = cgroups.sharers(self._sysfs), now
        self._weights = cgroups.weights(self._sysfs, self._groups)
        self._refused &= set(self._groups)

    def _look(self) -> None:
        """What the device has finished since the last look."""
        seconds, self._looked_at = self._seconds() - self._looked_at, self._seconds()
        before, self._finished = self._finished, finished(self._sysfs, self._name)
        reads, writes = (new.since(old) for new, old in zip(self._finished, before, strict=True))
        self._looks.append(Look(seconds, reads, writes))

    def _moved_since(self, now: float) -> tuple[dict[str, Moved], float]:
        """Of each cgroup since the last turn; one that was not there before is known from the next turn on. Seconds."""
        seconds, self._turned_at = now - self._turned_at, now
        before, self._moved = self._moved, cgroups.all_moved(self._sysfs, self._groups, self._number)
        known = [group for group in self._groups if group in before and group in self._moved] if seconds > 0 else []
        return {group: self._moved[group].since(before[group]) for group in known}, seconds

    def _write(
        self,
        plan: SharePlan,
        wanted: Mapping[str, float],
        in_force: Mapping[str, float],
        shown: Mapping[str, str | None],
    ) -> None:
        """Write those that are new; see `allowed`."""
        new = {group: mb_s for group, mb_s in wanted.items() if mb_s != in_force.get(group)}
        if not new.keys() <= self._limited:
            self._limited |= new.keys()
            share_limits.record(self._sysfs, plan, self._number, self._limited)
        first, is_late = lowered(new, in_force), False
        windows = {group: self._first_step(group) for group in first}
        is_patient = self._late_turns < LATE_TURNS
        for group, mb_s in allowed(new, first).items():
            if group in windows and not self._is_in(windows[group]):
                is_late = True
                if is_patient:
                    continue
            self._put(group, mb_s, shown[group])
        if first:
            self._late_turns = self._late_turns + 1 if is_late else 0
        if is_late and not is_patient and not self._has_warned:
            self._has_warned = True
            _log.warning("limits are lowered too late, so shares are kept less exactly: this machine is very busy")

    def _first_step(self, group: str) -> tuple[float, float]:
        begun = self._seconds()
        share_limits.repeat(self._sysfs, group, self._number)
        return window(begun, self._seconds())

    def _is_in(self, window: tuple[float, float]) -> bool:
        """Wait until it begins; whether it is not over then."""
        begins, ends = window
        if (rest_s := begins - self._seconds()) > 0:
            self._sleep(rest_s)
        return self._seconds() <= ends

    def _put(self, group: str, mb_s: float, shown: str | None) -> None:
        """If the cgroup still has the limit that this turn has seen, which a first step has not changed.

        The files of one that is delegated may be its owner's, and the unit may not write to them.
        """
        if limits_of(self._sysfs, group).get(self._number) != shown:
            return
        try:
            share_limits.put(self._sysfs, group, self._number, mb_s * self._mixes[group].part)
        except HostError as error:
            if not isinstance(error.__cause__, PermissionError):
                raise
            self._refused.add(group)
            _log.warning("%s shares the device without a limit: %s", group, error)

    def _lift(self, groups: Iterable[str]) -> None:
        for group in tuple(groups):
            share_limits.lift(self._sysfs, group, self._number)
            self._limited.discard(group)


def _waited(plan: SharePlan, moved: Mapping[str, Moved], looks: Sequence[Look]) -> dict[str, Requests]:
    """How long requests took, of the kind that cgroups with a latency target had."""
    prompt = {group: each for group, each in moved.items() if each.total_bytes and plan.target_s(group) is not None}
    return {group: over_time(each, looks) for group, each in prompt.items()}
