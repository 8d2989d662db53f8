"""Reads the tasks of a command or of a cgroup, and the disks, until it ends. Nothing of the machine is changed.

The readings follow each other at irregular distances, so that a program that does the same thing over and over again is
not always met at the same point of it. Where there are many threads, a reading costs more, and they become rarer: at
most MOST_SHARE of a processor is used. What counts is what a reading costs at its best: on a busy machine it waits for
a processor itself. There readings come late, and those that would have been in between are lost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from elastio.errors import HostError
from elastio.host.disk_activity import DiskActivity
from elastio.host.task_states import TaskStates, instant_of
from elastio.ports import Clock
from elastio.strategy.account import Limit, Totals, cap_in
from elastio.strategy.waits import Instant, sample_of

LEAST_S, MOST_S = 0.02, 1.0
MOST_SHARE = 0.005
SAMPLE_S = 1.0
# One reading that was interrupted must not make the next ones rare: what one costs rises slowly, and falls at once.
RISING = 0.02
# What the first one costs tells little, because it is the first: at most this is believed.
COLD_S = 0.0005
# The fractions of its multiples are spread evenly over 0 to 1, in no order that a program could follow.
GOLDEN = 0.6180339887498949
# Of a command that starts more processes, those that lived longest are kept.
MOST_PROCESSES = 500
Pause = Callable[[float], bool]
"""Waits for so many seconds; returns whether what is read has ended."""
Limits = Callable[[], Sequence[Limit]]
"""The limits of cgroups on the disk that are in force now."""


@dataclass(frozen=True, slots=True)
class ProcessTotals:
    """The sums of one process."""

    pid: int
    command: str
    totals: Totals


@dataclass(frozen=True, slots=True)
class Measured:
    """What was seen. `ended`: why the readings ended before what is read; empty: they did not.

    `lost` readings came too late to be made. `limits`: those of cgroups, when they were read last.
    """

    totals: Totals
    processes: tuple[ProcessTotals, ...] = ()
    process_count: int = 0
    has_delays: bool = False
    ended: str = ""
    lost: int = 0
    limits: Sequence[Limit] = ()


@dataclass(slots=True)
class _Kept:
    """The moments of the sample that is being taken, and the sums until it began."""

    command: str = ""
    instants: list[Instant] = field(default_factory=list)
    totals: Totals = field(default_factory=Totals)

    def close(self, cap_mb_s: float | None, limits: Sequence[Limit], *, goes_on: bool) -> None:
        sample = sample_of(self.instants)
        if sample is not None:
            self.totals = self.totals.added(sample, cap_in(sample, cap_mb_s, limits))
        self.instants = self.instants[-1:] if goes_on else []


class Profiler:
    """`cap_mb_s`: the bandwidth limit of the disk; None: not known. `pause` ends the readings, or `for_s` does."""

    def __init__(
        self,
        tasks: TaskStates,
        disk: DiskActivity,
        clock: Clock,
        pause: Pause,
        cap_mb_s: float | None,
        limits: Limits = tuple,
    ) -> None:
        self._tasks, self._disk, self._clock, self._pause = tasks, disk, clock, pause
        self._cap_mb_s, self._read_limits = cap_mb_s, limits
        self._limits: Sequence[Limit] = ()
        self._all = _Kept()
        self._each: dict[int, _Kept] = {}
        self._count = self._lost = 0

    def run(self, for_s: float, *, with_processes: bool) -> Measured:
        """Read until the end. Raises HostError if the first reading fails."""
        at = begin = self._clock.now()
        closes = begin + SAMPLE_S
        number, ended, is_over = 0, "", False
        self._limits = self._read_limits()
        self._read(begin, with_processes=with_processes, with_times=False)
        cost_s = min(self._clock.now() - begin, COLD_S)
        while not is_over:
            number += 1
            pace = min(MOST_S, max(LEAST_S, cost_s / MOST_SHARE))
            wanted = pace * (0.5 + number * GOLDEN % 1)
            rest = begin + for_s - self._clock.now()
            is_over = self._pause(max(0.0, min(wanted, rest))) or rest <= wanted
            before, at = at, self._clock.now()
            self._lost += int(max(0.0, at - before - wanted) / pace)
            try:
                self._read(at, with_processes=with_processes, with_times=at >= closes)
            except HostError as error:  # the cgroup or the disk is gone; what was seen until then counts
                is_over, ended = True, str(error)
            took_s = self._clock.now() - at
            cost_s = min(took_s, cost_s + RISING * (took_s - cost_s)) if number > 1 else took_s
            if at >= closes or is_over:
                closes = at + SAMPLE_S
                self._close()
        return self._measured(ended)

    def _read(self, at: float, *, with_processes: bool, with_times: bool) -> None:
        states = self._tasks.read(at, with_times=with_times)
        disk, others = self._disk.read()
        self._all.instants.append(instant_of(at, states, disk, others, has_delays=self._tasks.has_delays))
        if not with_processes:
            return
        for pid, state in states.items():
            if pid not in self._each:
                self._count += 1
                self._each[pid] = _Kept()
            kept = self._each[pid]
            kept.command = state.command
            kept.instants.append(instant_of(at, {pid: state}, disk, others, has_delays=self._tasks.has_delays))
        for pid, kept in self._each.items():
            if pid not in states:
                kept.close(self._cap_mb_s, self._limits, goes_on=False)

    def _close(self) -> None:
        self._limits = self._read_limits() or self._limits  # a process that has ended is in no cgroup
        for kept in (self._all, *self._each.values()):
            kept.close(self._cap_mb_s, self._limits, goes_on=True)
        if len(self._each) > MOST_PROCESSES:
            ordered = sorted(self._each.items(), key=lambda item: item[1].totals.seconds, reverse=True)
            self._each = dict(ordered[:MOST_PROCESSES])

    def _measured(self, ended: str) -> Measured:
        kept = [ProcessTotals(pid, k.command, k.totals) for pid, k in self._each.items() if k.totals.seconds > 0]
        kept.sort(key=lambda each: (-each.totals.seconds, each.pid))
        return Measured(
            self._all.totals, tuple(kept), self._count, self._tasks.has_delays, ended, self._lost, self._limits
        )
