"""Where the time of cgroups goes while the adaptive device is loaded: a look of about a second at some of them.

Theory of operation. A cgroup that moves nothing on the device does not wait for it, and is not looked at; which ones do
is read from `io.stat` every LIST_S, or more rarely. The MOST_GROUPS that have moved most since the list before it are
followed. A burst may be over before that shows, so its first look is at the first of these, and one that moves nothing
meanwhile was not seen. Each look reads the tasks of some cgroups READINGS times, those first that were not looked at
for longest, which counts for more the more they move: who moves a hundredth is looked at a tenth as often. A look
stands for the time since the one before (`strategy.watched_bursts`). While the device moves nothing, nobody waits for
it: the last look stands for that too, for LIST_S at most.

How many are looked at is a matter of processor time: what a look costs is taken from a credit that grows by SHARE of
the time up to CREDIT_S, so that a machine with many tasks is looked at more rarely. In any T seconds looks cost at most
SHARE T + CREDIT_S, and one look: 0.45 % of a processor in a minute, 0.26 % in an hour. So the first seconds of a burst
are looked at densely, a long one more rarely later, and the quiet after it pays that back.

A kernel may count processor time in steps of a timer tick (user-mode Linux: 10 ms), and then a look costs nothing or a
whole step. The sums are right, and a single look is not: what the next one will cost is a mean of the last ones.

What each cgroup moves is counted with the list, and once more when a boost begins or ends, whether a burst goes on or
not: its bytes are those of the boost in which they were moved, within a second or two. The first list of a burst counts
from the last one of the burst before, if this process has made that and the boost is still the same; the agent ends the
process after a minute of rest.

A task in state D waits. Whether one in state S waits for libaio or io_uring shows only to who may trace it (ptrace(2)),
which the agent's unit may not: then it sleeps. The kernel's pressure (PSI) is not read: it misses an fsync.

Reads only, and takes no lock of bcache. It runs in a worker of its own: a read that hangs delays nothing else.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import islice

from elastio.core.moved import Moved
from elastio.errors import HostError
from elastio.host import cgroups
from elastio.host.async_waits import AsyncWaits, Sleep
from elastio.host.disk_activity import DiskActivity, limits_of_cgroup
from elastio.host.sysfs import Sysfs
from elastio.host.task_states import CgroupMembers, TaskStates, instant_of
from elastio.ports import Clock
from elastio.strategy.account import Totals, cap_in, totals_of
from elastio.strategy.waits import Instant, sample_of
from elastio.strategy.watched_bursts import Seen, Watch

LOOK_S, READINGS = 1.0, 10
SHARE, CREDIT_S = 0.0025, 0.12
# Where lists would take more than this part of SHARE, they are made more rarely: looks are what tells.
LIST_S, MOST_LISTS = 5.0, 0.25
MOST_GROUPS, MOST_THREADS = 50, 100
# The first look of a burst is at so many: between two bursts every service may have written a line of log.
FIRST_GROUPS = 4
# What the first look at a cgroup is taken to cost, in seconds of a processor; then the mean of about so many looks.
UNKNOWN_COST_S, MEAN_OF = 0.002, 8
# Looks follow each other in no rhythm that a program could have: the fractions of its multiples fill 0 to 1 evenly.
GOLDEN = 0.6180339887498949

Tasks = Mapping[int, tuple[str, ...]]


class _Listed:
    """The tasks that a cgroup had at the begin of a look. `Members` for `TaskStates`."""

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks

    def tasks(self) -> Tasks:
        return self._tasks


class _Group:
    """What is known of a cgroup in this burst. `since`: the time that the next look stands for begins then, when the
    device had moved `since_bytes`; None: not counted.

    `moved`: until the last list. `used_bytes`: since the first list of this burst, or, in that one, since the list
    before it; only then `has_used` may be False. `still`: what the last look has seen, if the device moved nothing.
    """

    def __init__(self, sysfs: Sysfs, since: float, moved: Moved | None) -> None:
        self.since, self.moved, self.used_bytes, self.has_used = since, moved or Moved(), 0, False
        self.since_bytes: int | None = None
        self.still: Totals | None = None
        self.cost_s = UNKNOWN_COST_S
        self.looks = 0
        self.asleep = AsyncWaits(sysfs, if_hidden=Sleep.ASLEEP)


class GroupWatch:
    """Looks at cgroups, one `Watch` at a time. `spent_s` is the processor time of this process."""

    def __init__(
        self,
        sysfs: Sysfs,
        clock: Clock,
        sleep: Callable[[float], None],
        spent_s: Callable[[], float] = time.process_time,
    ) -> None:
        self._sysfs, self._clock, self._sleep, self._spent_s = sysfs, clock, sleep, spent_s
        self._burst: tuple[float, str] | None = None
        self._token: str | None = None
        self._groups: dict[str, _Group] = {}
        self._steps: dict[str, Moved] = {}
        self._counted: dict[str, Moved | None] = {}
        self._listed: dict[str, Moved | None] = {}  # of these, those that are followed
        self._credit_s, self._credited_at, self._listed_at = CREDIT_S, clock.now(), float("-inf")
        self._disk: DiskActivity | None = None
        self._number = ""
        self._looks, self._list_cost_s = 0, UNKNOWN_COST_S
        self._still_bytes: int | None = None
        self._still_until = self._looked_at = float("-inf")

    def look(self, watch: Watch) -> Seen:
        """The sums of the cgroups that it was the turn of. What cannot be read is a remark, never an error."""
        spent_s, now, listed_at = self._spent_s(), self._clock.now(), self._listed_at
        self._credit_s = min(CREDIT_S, self._credit_s + SHARE * max(0.0, now - self._credited_at))
        self._credited_at, self._steps, token = now, {}, self._token
        try:
            remarks = self._list(watch, now)
            if self._listed_at != listed_at:
                self._list_cost_s += (self._spent_s() - spent_s - self._list_cost_s) / MEAN_OF
            due = () if watch.only_counts or self._is_still(now) else self._due()
            groups, more = self._look(watch, due, self._disk) if due and self._disk else ({}, ())
        except HostError as error:
            groups, remarks, more = {}, (), (str(error),)
        self._credit_s -= self._spent_s() - spent_s
        return Seen(watch.begun_at, groups, (*remarks, *more), token=token, moved=self._steps)

    def _list(self, watch: Watch, now: float) -> tuple[str, ...]:
        """Which cgroups there are, and which of them use the device. Raises HostError where none is counted."""
        is_first, before = self._burst != (watch.begun_at, watch.device), self._counted
        is_same_boost = self._is_same_boost(watch)
        if is_first:
            cgroups.check_counted(self._sysfs)
            self._burst, self._groups = (watch.begun_at, watch.device), {}
        elif watch.token == self._token and not watch.only_counts and not self._is_due(now):
            return ()
        self._token = watch.token
        self._listed_at, self._disk = now, DiskActivity(self._sysfs, watch.device)
        self._number = self._sysfs.read(f"sys/block/{watch.device}/dev")
        named = cgroups.chosen(self._sysfs, watch.patterns)
        gone = [name for name in self._groups if name not in named]
        self._counted = {name: cgroups.moved(self._sysfs, name, self._number) for name in named}
        self._listed = {name: self._counted[name] for name in self._foremost(before)}
        self._groups = {name: self._groups[name] for name in self._listed if name in self._groups}
        if is_first:
            self._begin(before, now, max(watch.begun_at, now - LIST_S))
            self._steps = self._since(before) if is_same_boost else {}
            self._listed_at = float("-inf")  # who uses it in this burst shows in the second list
        else:
            self._count(before, now)
        many = f"more than {MOST_GROUPS} cgroups fit profile.cgroups: those have an account that move most"
        return (
            *([many] if len(named) > MOST_GROUPS else []),
            *(f"the cgroup {name} is gone: its account ends there" for name in gone),
        )

    def _foremost(self, before: Mapping[str, Moved | None]) -> list[str]:
        """Those that have moved most since the list before it, and of equals those that were listed then."""

        def rank(name: str) -> tuple[int, bool, str]:
            moved = (self._counted[name] or Moved()).since(before.get(name) or Moved())
            return -moved.total_bytes, name not in self._listed, name

        return sorted(self._counted, key=rank)[:MOST_GROUPS]

    def _is_same_boost(self, watch: Watch) -> bool:
        """What was moved since the list before, of an earlier burst, is of the boost that is there now."""
        is_of_device = self._burst is not None and self._burst[1] == watch.device
        return is_of_device and watch.token is not None and watch.token == self._token

    def _since(self, before: Mapping[str, Moved | None]) -> dict[str, Moved]:
        """What each cgroup has moved since the list before. When one moved that was not in it is not known."""
        known = ((name, moved) for name, moved in self._listed.items() if moved is not None and name in before)
        steps = {name: moved.since(before[name] or Moved()) for name, moved in known}
        return {name: step for name, step in steps.items() if step.total_bytes}

    def _is_due(self, now: float) -> bool:
        is_used = any(group.used_bytes for group in self._groups.values())
        age_s = now - self._burst[0] if self._burst else 0.0  # who uses it shows early in a burst
        rest_s = max(LIST_S, min(age_s / 2, self._list_cost_s / (MOST_LISTS * SHARE)))
        return self._credit_s > 0 and (not is_used or now - self._listed_at >= rest_s)

    def _begin(self, before: Mapping[str, Moved | None], now: float, begun_at: float) -> None:
        """Take those for users of this burst that have moved most since the list before it."""
        used = {
            name: (moved or Moved()).since(before.get(name) or Moved()).total_bytes
            for name, moved in self._listed.items()
        }
        likely = sorted((name for name in used if used[name]), key=lambda name: -used[name])[:FIRST_GROUPS]
        for name, moved in self._listed.items():
            self._groups[name] = _Group(self._sysfs, begun_at if name in likely else now, moved)
            self._groups[name].used_bytes = used[name] if name in likely else 0

    def _count(self, before: Mapping[str, Moved | None], now: float) -> None:
        for name, moved in self._listed.items():
            is_new = name not in before
            known = self._groups.setdefault(name, _Group(self._sysfs, now, before.get(name, moved)))
            known.moved, step = moved or known.moved, (moved or known.moved).since(known.moved)
            known.used_bytes = step.total_bytes + (known.used_bytes if known.has_used else 0)
            known.has_used = known.used_bytes != 0
            if step.total_bytes:
                self._steps[name] = step
            if is_new and known.moved.total_bytes:  # it was made in this burst
                known.used_bytes, known.has_used = known.moved.total_bytes, True
            if not known.has_used:
                known.since, known.since_bytes = now, None  # until now it cannot have waited for the device

    def _is_still(self, now: float) -> bool:
        """The device has moved nothing since the last look, nor in it. Raises HostError when it is gone."""
        moved = self._disk.read()[0].moved_bytes if self._disk and now - self._looked_at < LIST_S else None
        is_still = moved is not None and moved == self._still_bytes
        self._still_until = now if is_still else self._still_until
        return is_still

    def _due(self) -> tuple[str, ...]:
        """Those whose turn it is, as many as there is credit for. One that no credit suffices for needs all of it."""
        left, now = self._credit_s, self._clock.now()
        used = ((name, group) for name, group in self._groups.items() if group.used_bytes)
        waiting = sorted((-(now - group.since) * math.sqrt(group.used_bytes), name) for name, group in used)
        found = []
        for _, name in waiting:
            cost_s = min(CREDIT_S, self._groups[name].cost_s)
            if cost_s > left:
                break
            left -= cost_s
            found.append(name)
        return tuple(found)

    def _look(
        self, watch: Watch, names: tuple[str, ...], disk: DiskActivity
    ) -> tuple[dict[str, Totals], tuple[str, ...]]:
        """Raises HostError when the device is gone."""
        states, remarks = self._states_of(names)
        instants: dict[str, list[Instant]] = {name: [] for name in states}
        costs, counts = dict.fromkeys(states, 0.0), list[int]()
        for number in range(READINGS + 1):
            at, (moved, others) = self._clock.now(), disk.read()
            counts.append(moved.moved_bytes)
            for name, tasks in states.items():
                before_s = self._spent_s()
                shown = tasks.read(at, with_times=number == READINGS)
                instants[name].append(instant_of(at, shown, moved, others, has_delays=tasks.has_delays))
                costs[name] += self._spent_s() - before_s
            if number < READINGS:
                self._looks += 1
                self._sleep(LOOK_S / READINGS * (0.5 + self._looks * GOLDEN % 1))
        found = {name: self._totals(watch, name, instants[name], costs[name]) for name in states}
        self._looked_at, self._still_bytes = self._clock.now(), counts[-1] if counts[0] == counts[-1] else None
        return {name: totals for name, totals in found.items() if totals is not None}, remarks

    def _states_of(self, names: tuple[str, ...]) -> tuple[dict[str, TaskStates], tuple[str, ...]]:
        """Without those that are gone: the next list says so."""
        states, remarks = {}, []
        for name in names:
            try:
                states[name], remark = self._states(name)
            except HostError:
                continue
            remarks += [remark] if remark else []
        return states, tuple(remarks)

    def _states(self, name: str) -> tuple[TaskStates, str]:
        """Raises HostError when the cgroup is gone."""
        group = self._groups[name]
        tasks = CgroupMembers(self._sysfs, name).tasks()
        threads = [(pid, thread) for pid, names in tasks.items() for thread in names]
        remark = ""
        if len(threads) > MOST_THREADS:
            begin = group.looks * MOST_THREADS % len(threads)
            kept: dict[int, tuple[str, ...]] = {}
            for pid, thread in islice((*threads, *threads), begin, begin + MOST_THREADS):
                kept[pid] = (*kept.get(pid, ()), thread)
            tasks = kept
            remark = f"the cgroup {name} has more than {MOST_THREADS} threads: its account is of some at a time"
        group.looks += 1
        return TaskStates(self._sysfs, _Listed(tasks), asleep=group.asleep), remark

    def _totals(self, watch: Watch, name: str, instants: list[Instant], cost_s: float) -> Totals | None:
        group, sample = self._groups[name], sample_of(instants)
        group.cost_s += (cost_s - group.cost_s) / MEAN_OF
        if not group.has_used:
            moved = cgroups.moved(self._sysfs, name, self._number) or Moved()
            group.has_used = moved.since(group.moved).total_bytes != 0
        if sample is None or not group.has_used:
            return None
        limits = limits_of_cgroup(self._sysfs, watch.device, name)
        until, moved_bytes = instants[-1].at, instants[-1].disk.moved_bytes
        counted = None if group.since_bytes is None else max(0, moved_bytes - group.since_bytes)
        still_s = self._still_until - group.since
        seconds, group.since, group.since_bytes = until - group.since, until, moved_bytes
        cap_mb_s = cap_in(sample, watch.cap_mb_s, limits)
        seen = totals_of(sample, cap_mb_s)
        if cap_mb_s is not None and cap_mb_s < (watch.cap_mb_s or math.inf):
            seen = replace(seen, limited=seen.likely)
        still, group.still = group.still, None if sample.moved_bytes else seen
        if still is None or still_s <= 0:
            return seen.standing_for(seconds, counted)
        before = replace(still.standing_for(still_s, 0), instants=0)
        return before.plus(seen.standing_for(seconds - still_s, counted))
