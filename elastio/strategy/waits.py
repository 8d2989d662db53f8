"""Where the time goes: what is seen of about a second of a run, and how it is read. Pure.

Theory of operation. At many moments of a run the states of its tasks are read (`Instant`), together with the counters
of its disk. Of a moment with r tasks in state R and w that wait,

    most      1 if w > 0                    at least one task waits                 "some" of the kernel's pressure
    least     1 if w > 0 and r = 0          and none does anything else             "full"
    likely    w / (r + w)                   the share of what could go on that waits
    asleep    1 if r = w = 0                nobody wants to go on: a timer, a lock, a network, a terminal

say how much of it is waiting. With one task the first three are equal. The time between two moments gets the mean of
both, because a wait begins and ends somewhere between. A task waits in state D (uninterruptible sleep), which is what
`kernel.task_delayacct` and the kernel's pressure count, and also what they do not: a task that waits for ext4's or
xfs's journal is in state D, but not in `io_schedule`. And it waits asleep for its requests of libaio or io_uring
(`pending`), which neither counts. Whether a task that sleeps waits for requests cannot always be told (`unclear`).

A second of moments is a `WaitSample`. While its tasks wait, either its disk or another one is busy (`disk_share`).

What the disk moves in a second in which somebody waits (`rates`) says whether it is at its limit. Waits are often
shorter than the time between two moments, so a moment does not tell what moves during a wait and what before or after
it. Two answers bound it. `between`: the rate at which something moves while nobody waits is that of stretches without a
wait that are too long to be chance (CHANCE); without such stretches nothing moves then, and everything that has moved
was waited for. `local`: it is that of all time between two moments at which nobody waits. The former is right for a
program that waits for what it moves, however fast the rhythm; the latter where something moves in the background as
well, which shows as more than the limit allows (`account`).

Reading disturbs: while it goes on, short waits end and no new one begins, and the samples show too little waiting. The
scheduler knows exactly how long each thread was on a processor and in its queue (`ThreadTimes`): the rest of its time
was waiting and sleep, as the samples divide it.

Seconds are of the run's time, bytes those of the disk's counters.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import NamedTuple

# A disk is the one that is waited for if it is busy for this share of the time in which the busiest other one is.
# A loop device and the disk below it are busy together. Another one is waited for if it is busy for this share of the
# time: else what is busy for a moment beside a disk that holds requests back would take the wait.
BUSY_SHARE = 0.5
# A request that was served takes at least this long of a disk's time, which counts in whole milliseconds.
LEAST_BUSY_S = 0.001
# The scheduler counts in nanoseconds: what is less is a rounding error, and no ratio to it means anything.
LEAST_SPENT_S = 1e-9
# So likely is a stretch without a wait if each moment has a wait with the same probability: a longer one is none of it.
CHANCE = 0.01
# The scheduler's times correct one second by at most this factor: of so few moments more is chance.
MOST_CORRECTED = 2.0


@dataclass(frozen=True, slots=True)
class DiskCount:
    """What a disk has moved since it exists: bytes, requests, seconds in which it was busy, and bytes written."""

    moved_bytes: int
    requests: int
    busy_s: float
    written_bytes: int = 0


class ThreadTimes(NamedTuple):
    """Seconds of threads: those that ran or could run, waited, slept."""

    ran_s: float = 0.0
    waited_s: float = 0.0
    slept_s: float = 0.0

    def plus(self, other: ThreadTimes) -> ThreadTimes:
        """The sum of both."""
        return ThreadTimes(self.ran_s + other.ran_s, self.waited_s + other.waited_s, self.slept_s + other.slept_s)

    def less(self, other: ThreadTimes) -> ThreadTimes:
        """The difference of both."""
        return ThreadTimes(self.ran_s - other.ran_s, self.waited_s - other.waited_s, self.slept_s - other.slept_s)

    def with_run(self, ran_s: float) -> ThreadTimes:
        """The same time of one thread, of which it ran for `ran_s`; unchanged if it was never seen off a processor."""
        off_s, life_s = self.waited_s + self.slept_s, sum(self)
        if off_s < LEAST_SPENT_S:
            return self
        factor = max(0.0, life_s - ran_s) / off_s
        return ThreadTimes(min(life_s, ran_s), self.waited_s * factor, self.slept_s * factor)


class Times(NamedTuple):
    """What the samples show of some threads, and the same with the scheduler's own times.

    `queued_s`: of `exact.ran_s`, what was in the queue for a processor.
    """

    sampled: ThreadTimes = ThreadTimes()
    exact: ThreadTimes = ThreadTimes()
    queued_s: float = 0.0

    def plus(self, other: Times) -> Times:
        """The sum of both."""
        queued_s = self.queued_s + other.queued_s
        return Times(self.sampled.plus(other.sampled), self.exact.plus(other.exact), queued_s)


NO_TIMES = Times()


@dataclass(frozen=True, slots=True)
class Instant:
    """One moment `at` a monotonic clock: tasks that run or could run, and tasks in uninterruptible sleep.

    `pending` tasks sleep until requests of their own are done, `unclear` ones may. `others_busy_s`: seconds in which
    each other disk was busy, by name. `delayed_s`: what delay accounting has counted for all tasks since the previous
    moment; None: it is off. `times`: of threads whose scheduler's times were read now.
    """

    at: float
    running: int
    waiting: int
    disk: DiskCount
    others_busy_s: Mapping[str, float]
    delayed_s: float | None = None
    times: Times = NO_TIMES
    pending: int = 0
    unclear: int = 0


class Shares(NamedTuple):
    """Of a moment, or seconds: waiting by three measures, sleep, and what cannot be told."""

    least: float = 0.0
    likely: float = 0.0
    most: float = 0.0
    asleep: float = 0.0
    unclear: float = 0.0

    def plus(self, other: Shares, factor: float = 1.0) -> Shares:
        """The sum, with `factor` times the other."""
        return Shares(*(a + factor * b for a, b in zip(self, other, strict=True)))


class Rates(NamedTuple):
    """Bytes that the disk moved in a second in which somebody waited: see the theory of operation."""

    between: float = 0.0
    local: float = 0.0


@dataclass(frozen=True, slots=True)
class WaitSample:
    """About a second: how much of it was waiting, by three measures, and what the disk moved.

    `disk_share`: of the waiting, what was for this disk; None: no disk did anything. `waits_share` (0 to 1): moments
    with a wait. `task_wait_s` is the waiting of all tasks in state D, one after the other, `pending_s` that of those
    which sleep for their requests, and `delayed_s` the former by delay accounting.
    """

    seconds: float
    spent: Shares
    disk_share: float | None
    waits_share: float
    rates: Rates
    moved_bytes: int
    written_bytes: int
    requests: int
    task_wait_s: float
    pending_s: float
    delayed_s: float | None
    instants: int
    times: Times


def sample_of(instants: Sequence[Instant]) -> WaitSample | None:
    """The sample between the first and the last of these moments; None for fewer than two, or without time between."""
    if len(instants) < 2 or instants[-1].at <= instants[0].at:
        return None
    first, last = instants[0], instants[-1]
    spent = Shares()
    task_wait_s = pending_s = 0.0
    for before, after in pairwise(instants):
        half = max(0.0, after.at - before.at) / 2
        spent = spent.plus(_shares(before), half).plus(_shares(after), half)
        task_wait_s += (before.waiting + after.waiting) * half
        pending_s += (before.pending + after.pending) * half
    times = _sum(moment.times for moment in instants[1:])
    seconds = last.at - first.at
    waits_s = _corrected_s(spent.most + spent.unclear, seconds, times)
    return WaitSample(
        seconds=seconds,
        spent=spent,
        disk_share=_disk_share(instants),
        waits_share=waits_s / seconds,
        rates=_rates(instants, waits_s),
        moved_bytes=max(0, last.disk.moved_bytes - first.disk.moved_bytes),
        written_bytes=max(0, last.disk.written_bytes - first.disk.written_bytes),
        requests=max(0, last.disk.requests - first.disk.requests),
        task_wait_s=task_wait_s,
        pending_s=pending_s,
        delayed_s=_delayed_s(instants[1:]),
        instants=len(instants) - 1,
        times=times,
    )


def _sum(each: Iterable[Times]) -> Times:
    total = NO_TIMES
    for times in each:
        total = total.plus(times)
    return total


def _shares(moment: Instant) -> Shares:
    waits = moment.waiting + moment.pending
    if waits:
        return Shares(0.0 if moment.running else 1.0, waits / (waits + moment.running), 1.0)
    if moment.running:
        return Shares()
    return Shares(unclear=1.0) if moment.unclear else Shares(asleep=1.0)


def _corrected_s(waits_s: float, seconds: float, times: Times) -> float:
    """The waits as long as the scheduler knows. It corrects earlier seconds here too: no longer than there was time."""
    sampled, exact = times.sampled.waited_s, times.exact.waited_s
    factor = min(MOST_CORRECTED, max(1 / MOST_CORRECTED, exact / sampled)) if sampled >= LEAST_SPENT_S else 1.0
    return min(seconds, waits_s * factor, max(waits_s, seconds - times.exact.ran_s))


def _delayed_s(instants: Sequence[Instant]) -> float | None:
    known = [moment.delayed_s for moment in instants if moment.delayed_s is not None]
    return sum(known) if len(known) == len(instants) else None


# --- which disk ------------------------------------------------------------------------------------------


def _disk_share(instants: Sequence[Instant]) -> float | None:
    """Of the time with a wait, what was for this disk; where nothing tells, as in the rest of it."""
    ours = theirs = 0.0
    for before, after in pairwise(instants):
        waits = _shares(before).most + _shares(after).most
        own, other = _busy_s(before, after)
        if own > 0 and own >= BUSY_SHARE * other:
            ours += waits * (after.at - before.at)
        elif other >= BUSY_SHARE * (after.at - before.at):
            theirs += waits * (after.at - before.at)
    if ours + theirs > 0:
        return ours / (ours + theirs)
    own, other = _busy_s(instants[0], instants[-1])
    if own <= 0 and other <= 0:
        return None
    return 1.0 if own >= BUSY_SHARE * other else 0.0


def _busy_s(before: Instant, after: Instant) -> tuple[float, float]:
    """Seconds between two moments in which the disk, and the busiest other one, were busy."""
    own = after.disk.busy_s - before.disk.busy_s
    if after.disk.requests > before.disk.requests:
        own = max(own, LEAST_BUSY_S)
    others = (busy - before.others_busy_s.get(name, busy) for name, busy in after.others_busy_s.items())
    return max(0.0, own), max(0.0, max(others, default=0.0))


# --- what moved meanwhile --------------------------------------------------------------------------------


class _Part(NamedTuple):
    """Seconds, what the disk moved in them, and whether somebody waited at their begin or end."""

    seconds: float
    moved: float
    has_wait: bool


def _rates(instants: Sequence[Instant], waits_s: float) -> Rates:
    if waits_s < LEAST_SPENT_S:
        return Rates()
    parts = [
        _Part(
            max(0.0, after.at - before.at),
            max(0.0, after.disk.moved_bytes - before.disk.moved_bytes),
            _waits(before) or _waits(after),
        )
        for before, after in pairwise(instants)
    ]
    runs = [(has_wait, list(run)) for has_wait, run in groupby(parts, key=lambda part: part.has_wait)]
    share = sum(map(_waits, instants)) / len(instants)
    # Moments, so one more than the parts between them, of a stretch without a wait that is no chance.
    least = math.log(CHANCE) / math.log1p(-share) if 0 < share < 1 else math.inf
    free = [part for has_wait, run in runs if not has_wait for part in run]
    quiet = [part for has_wait, run in runs if not has_wait and len(run) + 1 >= least for part in run]
    touched = [part for part in parts if part.has_wait]
    return Rates(_during(parts, waits_s, _rate(quiet)), _during(touched, waits_s, _rate(free)))


def _waits(moment: Instant) -> bool:
    return bool(moment.waiting or moment.pending or (moment.unclear and not moment.running))


def _rate(parts: Sequence[_Part]) -> float:
    seconds = sum(part.seconds for part in parts)
    return sum(part.moved for part in parts) / seconds if seconds > 0 else 0.0


def _during(parts: Sequence[_Part], waits_s: float, otherwise: float) -> float:
    """The rate during the waits, if in the rest of these parts something moves at the rate `otherwise`."""
    rest_s = max(0.0, sum(part.seconds for part in parts) - waits_s)
    return max(0.0, sum(part.moved for part in parts) - otherwise * rest_s) / waits_s
