"""Where the time goes: computing, or waiting for bandwidth, for latency, for something else. Pure.

Theory of operation. At many moments of a run the states of its tasks are read (`Instant`), together with the counters
of its disk. Of a moment with r tasks in state R and w in state D (uninterruptible sleep),

    most      1 if w > 0                    at least one task waits                 "some" of the kernel's pressure
    least     1 if w > 0 and r = 0          and none does anything else             "full"
    likely    w / (r + w)                   the share of what could go on that waits
    asleep    1 if r = w = 0                nobody wants to go on: a timer, a lock, a network, a terminal

say how much of it is waiting. With one task the first three are equal. The time between two moments gets the mean of
both, because a wait begins and ends somewhere between. State D is what `kernel.task_delayacct` and the kernel's
pressure count, and also what they do not: a task that waits for ext4's or xfs's journal is in state D, but not in
`io_schedule`. What neither sees is a task that sleeps for libaio or io_uring: it counts as asleep.

A second of moments is a `WaitSample`. While its tasks wait, either its disk or another one is busy. On its disk they
wait for bandwidth if it moves AT_CAP of the bandwidth limit meanwhile; below it, for latency. Where no limit is known,
requests of LARGE_BYTES tell: their time is mostly transfer. `Totals` are sums over samples: nothing grows with time.

Reading disturbs: while it goes on, short waits end and no new one begins, and the samples show too little waiting. The
scheduler knows exactly how long each thread was on a processor or in its queue (`Spent`): the rest of its time was
waiting and sleep, as the samples divide it. The whole is scaled by this (`refine`).

Delay accounting, where it is on, is exact about the waits that it counts. It replaces the samples unless they show
significantly more, which are the waits that it does not count.

Seconds are of the run's time, bytes those of the disk's counters.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

from elastio.units import KIB, MB

# A volume that moves this share of its limit is at it.
AT_CAP = 0.9
# The mean request from which on a wait is for bandwidth, where the limit is not known.
LARGE_BYTES = 64 * KIB
# A disk is the one that is waited for if it is busy for this share of the time in which the busiest other one is.
# A loop device and the disk below it are busy together.
BUSY_SHARE = 0.5
# A request that was served takes at least this long of a disk's time, which counts in whole milliseconds.
LEAST_BUSY_S = 0.001
# The scheduler counts in nanoseconds: what is less is a rounding error, and no ratio to it means anything.
LEAST_SPENT_S = 1e-9
CLASSES = 10
# Of the standard error of samples: from here on a difference is significant.
SIGMAS = 2.0


@dataclass(frozen=True, slots=True)
class DiskCount:
    """What a disk has moved since it exists: bytes, requests, and seconds in which it was busy."""

    moved_bytes: int
    requests: int
    busy_s: float


class Spent(NamedTuple):
    """Seconds of threads: those that ran or could run, waited in state D, slept."""

    ran_s: float = 0.0
    waited_s: float = 0.0
    slept_s: float = 0.0

    def plus(self, other: Spent) -> Spent:
        """The sum of both."""
        return Spent(self.ran_s + other.ran_s, self.waited_s + other.waited_s, self.slept_s + other.slept_s)

    def less(self, other: Spent) -> Spent:
        """The difference of both."""
        return Spent(self.ran_s - other.ran_s, self.waited_s - other.waited_s, self.slept_s - other.slept_s)

    def with_run(self, ran_s: float) -> Spent:
        """The same time of one thread, of which it ran for `ran_s`; unchanged if it was never seen off a processor."""
        off_s, life_s = self.waited_s + self.slept_s, sum(self)
        if off_s < LEAST_SPENT_S:
            return self
        factor = max(0.0, life_s - ran_s) / off_s
        return Spent(min(life_s, ran_s), self.waited_s * factor, self.slept_s * factor)


class Times(NamedTuple):
    """What the samples show of some threads, and the same with the scheduler's own times."""

    sampled: Spent = Spent()
    exact: Spent = Spent()

    def plus(self, other: Times) -> Times:
        """The sum of both."""
        return Times(self.sampled.plus(other.sampled), self.exact.plus(other.exact))


NO_TIMES = Times()


@dataclass(frozen=True, slots=True)
class Instant:
    """One moment `at` a monotonic clock: tasks that run or could run, and tasks in uninterruptible sleep.

    `others_busy_s`: seconds in which each other disk was busy, by name. `delayed_s`: what delay accounting has counted
    for all tasks since the previous moment; None: it is off. `times`: of threads whose scheduler's times were read now.
    """

    at: float
    running: int
    waiting: int
    disk: DiskCount
    others_busy_s: Mapping[str, float]
    delayed_s: float | None = None
    times: Times = NO_TIMES


class Stall(NamedTuple):
    """Seconds of waiting for the disk, and elsewhere; the bytes that the disk moved while it was waited for."""

    disk_s: float = 0.0
    other_s: float = 0.0
    moved_bytes: float = 0.0

    def added(self, seconds: float, moved_bytes: float, is_disk: bool) -> Stall:
        """With `seconds` more of waiting, during which the disk moved `moved_bytes`."""
        if is_disk:
            return Stall(self.disk_s + seconds, self.other_s, self.moved_bytes + moved_bytes)
        return Stall(self.disk_s, self.other_s + seconds, self.moved_bytes)


@dataclass(frozen=True, slots=True)
class WaitSample:
    """About a second: how much of it was waiting, by three measures, and what the disk moved.

    `task_wait_s` is the waiting of all tasks, one after the other, and `delayed_s` the same by delay accounting.
    """

    seconds: float
    asleep_s: float
    least: Stall
    likely: Stall
    most: Stall
    moved_bytes: int
    requests: int
    task_wait_s: float
    delayed_s: float | None
    instants: int
    times: Times


def sample_of(instants: Sequence[Instant]) -> WaitSample | None:
    """The sample between the first and the last of these moments; None for fewer than two, or without time between."""
    if len(instants) < 2 or instants[-1].at <= instants[0].at:
        return None
    first, last = instants[0], instants[-1]
    least = likely = most = Stall()
    asleep_s = task_wait_s = 0.0
    for before, after in pairwise(instants):
        seconds = max(0.0, after.at - before.at)
        moved = max(0, after.disk.moved_bytes - before.disk.moved_bytes)
        is_disk = _is_waited_for(before, after)
        old, new = _shares(before), _shares(after)
        shares = [(a + b) / 2 for a, b in zip(old, new, strict=True)]
        least = least.added(shares[0] * seconds, shares[0] * moved, is_disk)
        likely = likely.added(shares[1] * seconds, shares[1] * moved, is_disk)
        most = most.added(shares[2] * seconds, shares[2] * moved, is_disk)
        asleep_s += shares[3] * seconds
        task_wait_s += (before.waiting + after.waiting) / 2 * seconds
    return WaitSample(
        seconds=last.at - first.at,
        asleep_s=asleep_s,
        least=least,
        likely=likely,
        most=most,
        moved_bytes=max(0, last.disk.moved_bytes - first.disk.moved_bytes),
        requests=max(0, last.disk.requests - first.disk.requests),
        task_wait_s=task_wait_s,
        delayed_s=_delayed_s(instants[1:]),
        instants=len(instants) - 1,
        times=_sum(moment.times for moment in instants[1:]),
    )


def _sum(each: Iterable[Times]) -> Times:
    total = NO_TIMES
    for times in each:
        total = total.plus(times)
    return total


def _shares(moment: Instant) -> tuple[float, float, float, float]:
    """Least, likely and most share of waiting, and the share of sleep."""
    if moment.waiting == 0:
        return 0.0, 0.0, 0.0, 0.0 if moment.running else 1.0
    return 0.0 if moment.running else 1.0, moment.waiting / (moment.waiting + moment.running), 1.0, 0.0


def _is_waited_for(before: Instant, after: Instant) -> bool:
    """Whether the disk, rather than another one, was busy between two moments."""
    own = after.disk.busy_s - before.disk.busy_s
    if after.disk.requests > before.disk.requests:
        own = max(own, LEAST_BUSY_S)
    others = (busy - before.others_busy_s.get(name, busy) for name, busy in after.others_busy_s.items())
    return own > 0 and own >= BUSY_SHARE * max(others, default=0.0)


def _delayed_s(instants: Sequence[Instant]) -> float | None:
    known = [moment.delayed_s for moment in instants if moment.delayed_s is not None]
    return sum(known) if len(known) == len(instants) else None


def is_for_bandwidth(sample: WaitSample, stall: Stall, cap_mb_s: float | None) -> bool:
    """Whether the disk was at its limit while it was waited for; None: by the size of requests."""
    if stall.disk_s <= 0 or stall.moved_bytes <= 0:
        return False
    if cap_mb_s is None:
        return sample.requests > 0 and sample.moved_bytes >= LARGE_BYTES * sample.requests
    return stall.moved_bytes / MB >= AT_CAP * cap_mb_s * stall.disk_s


# --- sums ------------------------------------------------------------------------------------------------


class AtCap(NamedTuple):
    """W and V: seconds of waiting for bandwidth, and the bytes that the disk moved meanwhile."""

    seconds: float = 0.0
    moved_bytes: float = 0.0


NEVER = AtCap()


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over samples. `classes`: seconds by the share of the sample that was waiting, in tenths.

    `least`, `likely` and `most` are waiting for bandwidth by the three measures, the rest is by the likely one.
    """

    seconds: float = 0.0
    asleep_s: float = 0.0
    latency_s: float = 0.0
    other_s: float = 0.0
    least: AtCap = NEVER
    likely: AtCap = NEVER
    most: AtCap = NEVER
    classes: tuple[float, ...] = (0.0,) * CLASSES
    moved_bytes: int = 0
    requests: int = 0
    task_wait_s: float = 0.0
    delayed_s: float | None = 0.0
    instants: int = 0
    times: Times = NO_TIMES

    def added(self, sample: WaitSample, cap_mb_s: float | None) -> Totals:
        """With one sample more; `cap_mb_s` is the limit that was in force in it, None: not known."""
        is_at_cap = is_for_bandwidth(sample, sample.likely, cap_mb_s)
        waited_s = sample.likely.disk_s + sample.likely.other_s
        its_class = min(CLASSES - 1, int(CLASSES * waited_s / sample.seconds + 1e-9))
        known = self.delayed_s is not None and sample.delayed_s is not None
        return Totals(
            seconds=self.seconds + sample.seconds,
            asleep_s=self.asleep_s + sample.asleep_s,
            latency_s=self.latency_s + (0.0 if is_at_cap else sample.likely.disk_s),
            other_s=self.other_s + sample.likely.other_s,
            least=_with(self.least, sample, sample.least, cap_mb_s),
            likely=_with(self.likely, sample, sample.likely, cap_mb_s),
            most=_with(self.most, sample, sample.most, cap_mb_s),
            classes=tuple(s + (sample.seconds if n == its_class else 0.0) for n, s in enumerate(self.classes)),
            moved_bytes=self.moved_bytes + sample.moved_bytes,
            requests=self.requests + sample.requests,
            task_wait_s=self.task_wait_s + sample.task_wait_s,
            delayed_s=(self.delayed_s or 0.0) + (sample.delayed_s or 0.0) if known else None,
            instants=self.instants + sample.instants,
            times=self.times.plus(sample.times),
        )


def _with(total: AtCap, sample: WaitSample, stall: Stall, cap_mb_s: float | None) -> AtCap:
    if not is_for_bandwidth(sample, stall, cap_mb_s):
        return total
    return AtCap(total.seconds + stall.disk_s, total.moved_bytes + stall.moved_bytes)


@dataclass(frozen=True, slots=True)
class Account:
    """Where `seconds` went; the four parts are all of it. `asleep_s` is a part of `elsewhere_s`.

    `by_delays`: delay accounting has refined what the samples show. `uncounted_s`: waiting of tasks that only the
    samples show, or (negative) only delay accounting.
    """

    seconds: float
    computing_s: float
    bandwidth_s: float
    latency_s: float
    elsewhere_s: float
    asleep_s: float
    by_delays: bool
    uncounted_s: float


def account(totals: Totals) -> Account:
    """The account of these sums."""
    refined, by_delays = refine(totals)
    elsewhere_s = refined.other_s + refined.asleep_s
    waited_s = refined.likely.seconds + refined.latency_s + elsewhere_s
    uncounted_s = 0.0 if by_delays or refined.delayed_s is None else refined.task_wait_s - refined.delayed_s
    return Account(
        seconds=refined.seconds,
        computing_s=max(0.0, refined.seconds - waited_s),
        bandwidth_s=refined.likely.seconds,
        latency_s=refined.latency_s,
        elsewhere_s=elsewhere_s,
        asleep_s=refined.asleep_s,
        by_delays=by_delays,
        uncounted_s=uncounted_s,
    )


def refine(totals: Totals) -> tuple[Totals, bool]:
    """The sums with their waiting and sleep scaled to what the kernel has counted; whether by delay accounting too.

    It is not used where it is off, and where it differs by more than the samples' error.
    """
    exact = _by_scheduler(totals)
    delayed, sampled = exact.delayed_s, exact.task_wait_s
    if delayed is None or sampled <= 0 or abs(delayed - sampled) > SIGMAS * error_s(exact):
        return exact, False
    return _scaled(exact, delayed / sampled, 1.0), True


def _by_scheduler(totals: Totals) -> Totals:
    """Scaled so that running, waiting and sleep are to each other as the scheduler's times show."""
    sampled, exact = totals.times
    ran, waited, slept = (new / old if old >= LEAST_SPENT_S else 1.0 for old, new in zip(sampled, exact, strict=True))
    wait_s, asleep_s = _waited_s(totals), totals.asleep_s
    computing_s = max(0.0, totals.seconds - wait_s - asleep_s)
    whole = computing_s * ran + wait_s * waited + asleep_s * slept
    norm = totals.seconds / whole if whole > 0 else 1.0
    return replace(_scaled(totals, waited * norm, slept * norm), task_wait_s=totals.task_wait_s * waited)


def _waited_s(totals: Totals) -> float:
    return totals.likely.seconds + totals.latency_s + totals.other_s


def _scaled(totals: Totals, waits: float, sleeps: float) -> Totals:
    """With waiting and sleep by these factors. A factor does not make more waiting than there was time."""
    asleep_s = min(totals.seconds, totals.asleep_s * sleeps)
    waited_s = _waited_s(totals)
    waits = min(waits, (totals.seconds - asleep_s) / waited_s) if waited_s > 0 else waits
    return replace(
        totals,
        asleep_s=asleep_s,
        latency_s=totals.latency_s * waits,
        other_s=totals.other_s * waits,
        least=_within(totals.least, waits, totals.seconds),
        likely=_within(totals.likely, waits, totals.seconds),
        most=_within(totals.most, waits, totals.seconds),
    )


def _within(total: AtCap, factor: float, seconds: float) -> AtCap:
    if total.seconds <= 0:
        return total
    factor = min(factor, seconds / total.seconds)
    return AtCap(total.seconds * factor, total.moved_bytes * factor)


def error_s(totals: Totals) -> float:
    """The standard error of `task_wait_s`: that of a share of so many independent moments."""
    if not totals.instants or totals.seconds <= 0:
        return 0.0
    waits = max(totals.task_wait_s, totals.seconds / totals.instants)
    return math.sqrt(waits * totals.seconds / totals.instants)
