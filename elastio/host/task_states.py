"""The states of the tasks of a command, or of a cgroup, from /proc: what computes, and what waits.

A thread's state is the third field of /proc/PID/task/TID/stat: R runs or could run, D waits in the kernel and cannot be
interrupted. Field 42 is its waiting for block I/O by delay accounting, in clock ticks (proc(5)); that of /proc/PID/stat
is the main thread's alone. /proc/PID/task/TID/schedstat is how long it was on a processor and in the queue for one, in
nanoseconds (Documentation/scheduler/sched-stats.rst); 0 where the kernel does not count it. Of a thread in state S,
`async_waits` says whether it waits for its requests.

Threads and processes come and go between two readings; one that cannot be read has ended.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from elastio.errors import HostError
from elastio.host.async_waits import AsyncWaits, Sleep
from elastio.host.sysfs import Sysfs
from elastio.strategy.waits import NO_TIMES, DiskCount, Instant, ThreadTimes, Times

# Fields of /proc/PID/task/TID/stat after the task's name, which may itself contain blanks and parentheses.
STATE, DELAYED = 0, 39
DELAYS_ARE_ON = "proc/sys/kernel/task_delayacct"
NOTHING = ThreadTimes()
PENDING, UNCLEAR = Sleep.PENDING.value, Sleep.UNCLEAR.value
# Where systemd mounts version 2; the second where version 1 is mounted too.
CGROUPS = ("sys/fs/cgroup", "sys/fs/cgroup/unified")


@dataclass(frozen=True, slots=True)
class ProcessState:
    """One process: its name, how many of its threads run or could run, and how many wait in the kernel.

    `pending` threads sleep until requests of their process are done, `unclear` ones may do so.
    `delayed_s`: what delay accounting has counted for them since the previous reading; None: it is off. `times`: of the
    threads whose scheduler's times were read, since they were read before.
    """

    command: str
    running: int
    waiting: int
    delayed_s: float | None
    times: Times = NO_TIMES
    pending: int = 0
    unclear: int = 0


def instant_of(
    at: float, states: Mapping[int, ProcessState], disk: DiskCount, others: Mapping[str, float], *, has_delays: bool
) -> Instant:
    """The moment of all these processes together."""
    each = states.values()
    times = NO_TIMES
    for state in each:
        times = times.plus(state.times)
    return Instant(
        at,
        running=sum(state.running for state in each),
        waiting=sum(state.waiting for state in each),
        disk=disk,
        others_busy_s=others,
        delayed_s=sum(state.delayed_s or 0.0 for state in each) if has_delays else None,
        times=times,
        pending=sum(state.pending for state in each),
        unclear=sum(state.unclear for state in each),
    )


class Members(Protocol):
    """Which tasks are read."""

    def tasks(self) -> Mapping[int, tuple[str, ...]]:
        """The threads of each process. Raises HostError when the group itself is gone."""


class CgroupMembers:
    """The processes of a cgroup of version 2 and of those below it. `name`: such as `system.slice/cron.service`.

    Raises HostError if there is no such cgroup.
    """

    def __init__(self, sysfs: Sysfs, name: str) -> None:
        self._sysfs, self.name = sysfs, name.strip("/")
        found = (f"{root}/{self.name}" for root in CGROUPS if self.name and ".." not in self.name.split("/"))
        folder = next((f for f in found if sysfs.exists(f"{f}/cgroup.procs")), None)
        if folder is None:
            raise HostError(
                f"{name!r} is not a cgroup of this machine: name one below /sys/fs/cgroup, such as "
                "system.slice/cron.service",
                code="cgroup.missing",
            )
        self.folder = folder

    def tasks(self) -> Mapping[int, tuple[str, ...]]:
        if not self._sysfs.exists(f"{self.folder}/cgroup.procs"):
            raise HostError(f"the cgroup {self.name} is gone", code="cgroup.gone")
        shown = ((pid, self._sysfs.names(f"proc/{pid}/task")) for pid in self._pids(self.folder))
        return {pid: threads for pid, threads in shown if threads}

    def _pids(self, folder: str) -> Iterator[int]:
        yield from map(int, self._sysfs.read_or(f"{folder}/cgroup.procs", "").split())
        for name in self._sysfs.names(folder):
            # Files of a cgroup are named `controller.value`; a cgroup may have a dot in its name too.
            if self._sysfs.exists(f"{folder}/{name}/cgroup.procs"):
                yield from self._pids(f"{folder}/{name}")


@dataclass(slots=True)
class _Thread:
    """A thread since it was first seen, with the scheduler's times then: its time by states, and ticks of delay.

    `told`: what has been returned of it already. All of its life is corrected at once, because within a second it may
    never be met off a processor.
    """

    ran_ns: tuple[int, int] | None
    seen_at: float
    kind: str
    spent: ThreadTimes = NOTHING
    ticks: int = 0
    told: Times = NO_TIMES

    def see(self, kind: str, at: float) -> None:
        """What it does now; the time since it was seen before gets the mean of both, as in `waits`."""
        half = (at - self.seen_at) / 2
        self.spent = self.spent.plus(_spent(self.kind, half)).plus(_spent(kind, half))
        self.kind, self.seen_at = kind, at


class TaskStates:
    """Reads all threads of the members. Delay accounting counts from the first reading on."""

    def __init__(
        self, sysfs: Sysfs, members: Members, ticks_per_s: int | None = None, asleep: AsyncWaits | None = None
    ) -> None:
        self._sysfs, self._members = sysfs, members
        self.has_delays = sysfs.read_or(DELAYS_ARE_ON, "0") == "1"
        self._asleep = asleep or AsyncWaits(sysfs)
        self._ticks_per_s = ticks_per_s or os.sysconf("SC_CLK_TCK")
        self._threads: dict[tuple[int, str], _Thread] = {}
        self._shown: dict[tuple[int, str], str] = {}
        self._is_first = True

    def read(self, at: float, *, with_times: bool = False) -> dict[int, ProcessState]:
        """The state of each process by its number, `at` this moment of a monotonic clock.

        `with_times`: with the scheduler's times, which cost another read of each thread. Raises HostError when the
        cgroup is gone.
        """
        now: dict[tuple[int, str], _Thread] = {}
        # Known threads first, and at once: what is read after them has been disturbed longer.
        self._shown = {(pid, name): self._stat(pid, name) for pid, name in self._threads}
        tasks = self._members.tasks()
        found = {pid: self._process(pid, threads, now, at, with_times) for pid, threads in tasks.items()}
        self._threads, self._is_first = now, False
        self._asleep.keep(frozenset(found), at)
        return {pid: state for pid, state in found.items() if state is not None}

    def _process(
        self, pid: int, names: tuple[str, ...], now: dict[tuple[int, str], _Thread], at: float, with_times: bool
    ) -> ProcessState | None:
        """None: it has ended. `now` gets its threads."""
        command, ticks, times, kinds = "", 0, NO_TIMES, Counter[str]()
        for name in names:
            shown = self._shown.get((pid, name))
            head, _, tail = (self._stat(pid, name) if shown is None else shown).rpartition(")")
            fields = tail.split()
            if not fields or fields[STATE] in "ZX":
                continue
            kind = self._kind(pid, name, fields[STATE], at)
            kinds[kind] += 1
            if not command or name == str(pid):
                command = head.partition("(")[2]
            delayed = int(fields[DELAYED]) if self.has_delays and len(fields) > DELAYED else 0
            thread = self._threads.get((pid, name))
            if thread is None:
                now[pid, name] = _Thread(self._ran_ns(pid, name), at, kind, ticks=delayed)
                ticks += 0 if self._is_first else delayed
                continue
            now[pid, name] = thread
            ticks += max(0, delayed - thread.ticks)
            thread.ticks = delayed
            thread.see(kind, at)
            times = times.plus(self._times(pid, name, thread)) if with_times else times
        delayed_s = ticks / self._ticks_per_s if self.has_delays else None
        state = ProcessState(command, kinds["R"], kinds["D"], delayed_s, times, kinds[PENDING], kinds[UNCLEAR])
        return state if kinds else None

    def _kind(self, pid: int, name: str, state: str, at: float) -> str:
        """R or D, or what a task that does neither waits for."""
        if state in "RD":
            return state
        return self._asleep.sleep_of(pid, name, at).value if state == "S" else Sleep.ASLEEP.value

    def _stat(self, pid: int, name: str) -> str:
        return self._sysfs.read_or(f"proc/{pid}/task/{name}/stat", "")

    def _times(self, pid: int, name: str, thread: _Thread) -> Times:
        """Its times since they were read before; nothing where the kernel does not count them."""
        now_ns = self._ran_ns(pid, name)
        if thread.ran_ns is None or not now_ns or not sum(now_ns):  # 0 of a thread that has just begun is a time
            return NO_TIMES
        told = thread.told
        ran_s, queued_s = (max(0, new - old) / 1e9 for new, old in zip(now_ns, thread.ran_ns, strict=True))
        thread.told = Times(thread.spent, thread.spent.with_run(ran_s + queued_s), queued_s)
        sampled, exact = thread.told.sampled.less(told.sampled), thread.told.exact.less(told.exact)
        return Times(sampled, exact, queued_s - told.queued_s)

    def _ran_ns(self, pid: int, name: str) -> tuple[int, int] | None:
        """Nanoseconds on a processor, and in its queue: 0 where they are not counted; None: it has ended."""
        words = self._sysfs.read_or(f"proc/{pid}/task/{name}/schedstat", "").split()
        return (int(words[0]), int(words[1])) if len(words) >= 2 else None


def _spent(kind: str, seconds: float) -> ThreadTimes:
    if kind == "R":
        return ThreadTimes(ran_s=seconds)
    return ThreadTimes(waited_s=seconds) if kind in ("D", PENDING) else ThreadTimes(slept_s=seconds)
