"""Reads the tasks of a command or of a cgroup, and the disks, until it ends. Nothing of the machine is changed.

The readings follow each other at irregular distances, so that a program that does the same thing over and over again is
not always met at the same point of it. Where there are many threads, a reading costs more, and they become rarer: at
most MOST_SHARE of a processor is used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from elastio.core.waits import NO_TIMES, DiskCount, Instant, Totals, sample_of
from elastio.errors import HostError
from elastio.host.disk_activity import DiskActivity
from elastio.host.task_states import ProcessState, TaskStates
from elastio.ports import Clock

LEAST_S, MOST_S = 0.02, 1.0
MOST_SHARE = 0.005
SAMPLE_S = 1.0
# One reading that was interrupted must not make the next ones rare.
SMOOTHING = 0.1
# The fractions of its multiples are spread evenly over 0 to 1, in no order that a program could follow.
GOLDEN = 0.6180339887498949
# Of a command that starts more processes, those that lived longest are kept.
MOST_PROCESSES = 500
Pause = Callable[[float], bool]
"""Waits for so many seconds; returns whether what is read has ended."""


@dataclass(frozen=True, slots=True)
class ProcessTotals:
    """The sums of one process."""

    pid: int
    command: str
    totals: Totals


@dataclass(frozen=True, slots=True)
class Measured:
    """What was seen. `ended`: why the readings ended before what is read; empty: they did not."""

    totals: Totals
    processes: tuple[ProcessTotals, ...] = ()
    process_count: int = 0
    has_delays: bool = False
    ended: str = ""


@dataclass(slots=True)
class _Kept:
    """The moments of the sample that is being taken, and the sums until it began."""

    cap_mb_s: float | None
    command: str = ""
    instants: list[Instant] = field(default_factory=list)
    totals: Totals = field(default_factory=Totals)

    def close(self, *, goes_on: bool) -> None:
        sample = sample_of(self.instants)
        if sample is not None:
            self.totals = self.totals.added(sample, self.cap_mb_s)
        self.instants = self.instants[-1:] if goes_on else []


class Profiler:
    """`cap_mb_s`: the bandwidth limit of the disk; None: not known. `pause` ends the readings, or `for_s` does."""

    def __init__(
        self, tasks: TaskStates, disk: DiskActivity, clock: Clock, pause: Pause, cap_mb_s: float | None
    ) -> None:
        self._tasks, self._disk, self._clock, self._pause = tasks, disk, clock, pause
        self._cap_mb_s = cap_mb_s
        self._all = _Kept(cap_mb_s)
        self._each: dict[int, _Kept] = {}
        self._count = 0

    def run(self, for_s: float, *, with_processes: bool) -> Measured:
        """Read until the end. Raises HostError if the first reading fails."""
        begin = self._clock.now()
        closes = begin + SAMPLE_S
        number, ended, is_over = 0, "", False
        self._read(begin, with_processes=with_processes, with_times=False)
        cost_s = self._clock.now() - begin
        while not is_over:
            number += 1
            pace = min(MOST_S, max(LEAST_S, cost_s / MOST_SHARE)) * (0.5 + number * GOLDEN % 1)
            rest = begin + for_s - self._clock.now()
            is_over = self._pause(max(0.0, min(pace, rest))) or rest <= pace
            at = self._clock.now()
            try:
                self._read(at, with_processes=with_processes, with_times=at >= closes)
            except HostError as error:  # the cgroup or the disk is gone; what was seen until then counts
                is_over, ended = True, str(error)
            cost_s += SMOOTHING * (self._clock.now() - at - cost_s)
            if at >= closes or is_over:
                closes = at + SAMPLE_S
                self._close()
        return self._measured(ended)

    def _read(self, at: float, *, with_processes: bool, with_times: bool) -> None:
        states = self._tasks.read(at, with_times=with_times)
        disk, others = self._disk.read()
        self._all.instants.append(_instant(at, states, disk, others, has_delays=self._tasks.has_delays))
        if not with_processes:
            return
        for pid, state in states.items():
            if pid not in self._each:
                self._count += 1
                self._each[pid] = _Kept(self._cap_mb_s)
            kept = self._each[pid]
            kept.command = state.command
            kept.instants.append(Instant(at, state.running, state.waiting, disk, others, state.delayed_s, state.times))
        for pid, kept in self._each.items():
            if pid not in states:
                kept.close(goes_on=False)

    def _close(self) -> None:
        self._all.close(goes_on=True)
        for kept in self._each.values():
            kept.close(goes_on=True)
        if len(self._each) > MOST_PROCESSES:
            ordered = sorted(self._each.items(), key=lambda item: item[1].totals.seconds, reverse=True)
            self._each = dict(ordered[:MOST_PROCESSES])

    def _measured(self, ended: str) -> Measured:
        kept = [ProcessTotals(pid, k.command, k.totals) for pid, k in self._each.items() if k.totals.seconds > 0]
        kept.sort(key=lambda each: (-each.totals.seconds, each.pid))
        return Measured(self._all.totals, tuple(kept), self._count, self._tasks.has_delays, ended)


def _instant(
    at: float, states: Mapping[int, ProcessState], disk: DiskCount, others: Mapping[str, float], *, has_delays: bool
) -> Instant:
    running = sum(state.running for state in states.values())
    waiting = sum(state.waiting for state in states.values())
    delayed_s = sum(state.delayed_s or 0.0 for state in states.values()) if has_delays else None
    times = NO_TIMES
    for state in states.values():
        times = times.plus(state.times)
    return Instant(at, running, waiting, disk, others, delayed_s, times)
