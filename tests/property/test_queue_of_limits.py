"""How cgroups share a volume by limits, on a model of what Linux 6.1 does with those (block/blk-throttle.c).

A limit that is rewritten while requests wait takes over what has passed too early, as an unsigned number
(`host.sharer`). One thread submits what limits have held back, and waits for the disk with what is due; all that is
due meanwhile is its next batch, reads before writes. So what passes too early stands there. Who waits for the disk gets
the next place in its queue at random. Cgroups have a number of threads each, and each thread one request under way, a
read or a write, which have limits of their own. Turns begin up to 30 ms late.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from random import Random

import pytest

from elastio.core.device_queue import TURN_S
from elastio.core.division import Division
from elastio.core.moved import Mix, Moved
from elastio.core.shares import Reserved, SharePlan
from elastio.host import sharer
from elastio.units import KIB, MB

SIZE, IN_FLIGHT = 256 * KIB, 8
VOLUME_MB_S, CAPACITY_MB_S = 16.5, 16.0
LATE_S, WINDOW_S = 0.03, 4.0
# The first application is two cgroups, so that it has two thirds of three equal shares; or it has them reserved.
FIRST, SECOND = ("a.slice/one", "a.slice/two"), "a.slice/three"
EQUAL = {**dict.fromkeys(FIRST, 16), SECOND: 32}
RESERVED, IN_ALL = (Reserved(FIRST[0], CAPACITY_MB_S * 2 / 3),), {FIRST[0]: 16, SECOND: 16}
UNDERLOADED = dict(zip(EQUAL, (0.1, 0.1, 0.65), strict=True))


@dataclass
class Limited:
    """Reads or writes of a cgroup, and what the kernel counts of them in the current slice.

    Times in jiffies of 1/`hz` s; sizes in bytes.
    """

    hz: int
    limit: int | None = None
    waiting: int = 0
    begun: int = 0
    ends: int = 0
    passed: int = 0
    carried: int = 0

    @property
    def slice(self) -> int:
        return self.hz // 10

    def _allows(self, jiffies: int) -> int:
        assert self.limit is not None
        return self.limit * jiffies // self.hz

    def write(self, limit: int | None, now: int) -> None:
        if self.waiting and self.limit is not None:
            self.carried += self._allows(now - self.begun) - self.passed
        self.limit = limit
        self._begin(now)

    def _begin(self, now: int) -> None:
        self.passed, self.begun, self.ends = 0, now, now + self.slice

    def _until(self, jiffies: int) -> int:
        return -(-jiffies // self.slice) * self.slice

    def may_pass(self, now: int) -> bool:
        if self.limit is None:
            return True
        if now > self.ends and not self.waiting:
            self._begin(now)
            self.carried = 0
        self.ends = max(self.ends, self._until(now + self.slice))
        left = self._allows(self._until(max(1, now - self.begun))) + self.carried
        return left < 0 or self.passed + SIZE <= left  # unsigned

    def charge(self, now: int) -> None:
        self.passed += SIZE
        ended = (now - self.begun) // self.slice * self.slice
        if self.limit is not None and ended and (allowed := self._allows(ended) + self.carried) > 0:
            self.carried, self.passed, self.begun = 0, max(0, self.passed - allowed), self.begun + ended


@dataclass
class Group:
    """A cgroup. `ways`: its reads, and its writes."""

    threads: int
    ways: tuple[Limited, Limited]
    under_way: int = 0
    wanted_mb_s: float = inf
    asks_at: float = 0.0
    mix: Mix = field(default_factory=Mix)


@dataclass
class Machine:
    """`queue`: at the disk, each with what is left of it; `waiting`: for a place there. `hz`: jiffies of a second.

    `reads`: their share of the requests, 0 to 1.
    """

    draw: Random
    hz: int
    plan: SharePlan
    groups: dict[str, Group]
    reads: float = 0.0
    now: int = 0
    batch: deque[tuple[str, bool]] = field(default_factory=deque)
    due: deque[tuple[str, bool]] = field(default_factory=deque)
    waiting: list[tuple[str, int, bool]] = field(default_factory=list)
    queue: deque[tuple[str, int, list[float]]] = field(default_factory=deque)
    is_thread_free: bool = True
    division: Division = field(default_factory=Division)
    limits: dict[str, float] = field(default_factory=dict)
    times: list[float] = field(default_factory=list)
    turned: int = 0
    turns_at: float = TURN_S
    then: tuple[int, dict[str, float], dict[str, float]] | None = None
    writes: int = 0

    @classmethod
    def of(cls, seed: int, hz: int, threads: Mapping[str, int], reserve: tuple[Reserved, ...] = ()) -> Machine:
        groups = {name: Group(count, (Limited(hz), Limited(hz))) for name, count in threads.items()}
        return cls(Random(seed), hz, SharePlan(CAPACITY_MB_S, reserve), groups)

    def __post_init__(self) -> None:
        self.submitted = dict.fromkeys(self.groups, Moved())
        self.seen = dict(self.submitted)

    def run(self, seconds: float, wants: Mapping[str, float] | None = None) -> tuple[float, float]:
        """MB/s of both applications, as they are submitted. `wants`: shares of the capacity; None: all there is."""
        for name, group in self.groups.items():
            group.wanted_mb_s = inf if wants is None else wants[name] * self.plan.capacity_mb_s
            group.asks_at = self.now / self.hz
        before = dict(self.submitted)
        for _ in range(round(seconds * self.hz)):
            self.now += 1
            for name in self.draw.sample(sorted(self.groups), len(self.groups)):
                self._ask(name, self.groups[name])
            self._serve()
            self._turn()
        got = {name: moved.since(before[name]).total_bytes / MB / seconds for name, moved in self.submitted.items()}
        second = got.pop(SECOND)
        return sum(got.values()), second

    def _ask(self, name: str, group: Group) -> None:
        at = self.now / self.hz
        while group.under_way < group.threads and group.asks_at <= at:
            group.under_way += 1
            if group.wanted_mb_s < inf:
                group.asks_at = max(group.asks_at, at - 0.1) + SIZE / MB / group.wanted_mb_s
            is_read = self.reads > 0 and self.draw.random() < self.reads
            way = group.ways[not is_read]
            if not way.waiting and way.may_pass(self.now):
                way.charge(self.now)
                self._submit(name, is_read=is_read, by_thread=False)
            else:
                way.waiting += 1
        self._release(name, group)

    def _release(self, name: str, group: Group) -> None:
        for is_read, way in zip((True, False), group.ways, strict=True):
            while way.waiting and way.may_pass(self.now):
                way.waiting -= 1
                way.charge(self.now)
                self.due.append((name, is_read))
        self._submit_due()

    def _submit_due(self) -> None:
        if not self.is_thread_free:
            return
        if not self.batch:
            self.batch.extend(sorted(self.due, key=lambda each: not each[1]))
            self.due.clear()
        if self.batch:
            self.is_thread_free = False
            name, is_read = self.batch.popleft()
            self._submit(name, is_read=is_read, by_thread=True)

    def _submit(self, name: str, *, is_read: bool, by_thread: bool) -> None:
        self.submitted[name] = self.submitted[name].plus(Moved(SIZE * is_read, SIZE * (not is_read), 1))
        self.waiting.append((name, self.now, by_thread))

    def _serve(self) -> None:
        left = VOLUME_MB_S * MB / self.hz
        while left > 0:
            while len(self.queue) < IN_FLIGHT and self.waiting:
                name, begun, by_thread = self.waiting.pop(self.draw.randrange(len(self.waiting)))
                self.queue.append((name, begun, [float(SIZE)]))
                if by_thread:
                    self.is_thread_free = True
                    self._submit_due()
            if not self.queue:
                return
            name, begun, rest = self.queue[0]
            moved = min(left, rest[0])
            left, rest[0] = left - moved, rest[0] - moved
            if rest[0] <= 0:
                self.queue.popleft()
                self.groups[name].under_way -= 1
                self.times.append((self.now - begun) / self.hz)

    def _turn(self) -> None:
        if self.then is not None and self.now >= self.then[0]:
            _at, new, first = self.then
            self.then = None
            self._write(sharer.allowed(new, first))
        if self.then is not None or self.now < self.turns_at * self.hz:
            return
        seconds, self.turned = (self.now - self.turned) / self.hz, self.now
        self.turns_at = self.now / self.hz + TURN_S + LATE_S * self.draw.random()
        moved = {name: now.since(self.seen[name]) for name, now in self.submitted.items()}
        used = {name: each.total_bytes / MB / seconds for name, each in moved.items()}
        self.seen = dict(self.submitted)
        for name, group in self.groups.items():
            group.mix = group.mix.after(moved[name])
            if name in self.limits:
                self.limits[name] = (group.ways[0].limit or 0) / MB / group.mix.larger
        request_s = sum(self.times) / len(self.times) if self.times else 0.0
        self.times.clear()
        weights = {"a.slice": 100.0, **dict.fromkeys(self.groups, 100.0)}
        requests = {name: each.requests for name, each in moved.items()}
        self.division, wanted = self.division.turn(
            used,
            weights,
            self.plan,
            dict(self.limits),
            request_s=request_s,
            requests=requests,
            mixed={name for name, group in self.groups.items() if group.mix.is_even},
        )
        self._rewrite({name: mb_s for name, mb_s in wanted.items() if mb_s != self.limits.get(name)})
        self._lift(self.limits.keys() - wanted.keys())

    def _rewrite(self, new: dict[str, float]) -> None:
        first = sharer.lowered(new, self.limits)
        self._write(first)
        if first:
            self.then = (self.now + round(sharer.SETTLES_S * self.hz), new, first)
        else:
            self._write(new)

    def _write(self, limits: Mapping[str, float]) -> None:
        for name, mb_s in limits.items():
            self.writes += 1
            self.limits[name] = mb_s
            self._set(self.groups[name], round(mb_s * self.groups[name].mix.larger * MB))
            self._release(name, self.groups[name])

    def _set(self, group: Group, limit: int | None) -> None:
        for way in group.ways:
            way.write(limit, self.now)

    def _lift(self, names: Iterable[str]) -> None:
        for name in sorted(names):
            del self.limits[name]
            self._set(self.groups[name], None)
            self._release(name, self.groups[name])


@pytest.mark.parametrize("hz", [100, 250])
@pytest.mark.parametrize("seed", range(8))
def test_shares_of_cgroups_that_want_all_are_kept(seed: int, hz: int) -> None:
    machine = Machine.of(seed, hz, IN_ALL, RESERVED)
    machine.run(5)
    first, second = machine.run(20)
    print(f"{first:.1f} + {second:.1f} MB/s, {machine.writes} writes")
    assert 1.9 <= first / second <= 2.1
    assert first + second >= 0.95 * VOLUME_MB_S


@pytest.mark.parametrize("hz", [100, 250])
def test_limits_are_seldom_written_while_wishes_do_not_change(hz: int) -> None:
    writes = 0
    for seed in range(8):
        machine = Machine.of(seed, hz, IN_ALL, RESERVED)
        machine.run(5)
        before = machine.writes
        machine.run(20)
        writes += machine.writes - before
    print(f"{writes / 8 / 20:.2f} writes a second")
    assert writes < 8 * 20 * 0.6


@pytest.mark.parametrize("hz", [100, 250])
@pytest.mark.parametrize("seed", range(8))
def test_they_are_kept_soon_after_each_change_of_wishes(seed: int, hz: int) -> None:
    machine = Machine.of(seed, hz, EQUAL)
    for _ in range(4):
        machine.run(WINDOW_S)
        first, second = machine.run(2 * WINDOW_S)
        print(f"{first:.1f} + {second:.1f} MB/s, {machine.writes} writes")
        assert 1.9 <= first / second <= 2.1
        assert first + second >= 0.95 * VOLUME_MB_S
        machine.run(WINDOW_S, UNDERLOADED)
        assert sum(machine.run(WINDOW_S, UNDERLOADED)) >= 0.97 * sum(UNDERLOADED.values()) * CAPACITY_MB_S


@pytest.mark.parametrize("hz", [100, 250])
def test_limits_follow_no_draw_where_as_much_is_read_as_written(hz: int) -> None:
    seeds, seconds, writes = 8, 15, 0
    got = [0.0, 0.0]
    for seed in range(seeds):
        machine = Machine.of(seed, hz, EQUAL)
        machine.reads = 0.5
        machine.run(5)
        before = machine.writes
        got = [mb_s + more / seeds for mb_s, more in zip(got, machine.run(seconds), strict=True)]
        writes += machine.writes - before
    print(f"{got[0]:.2f} + {got[1]:.2f} MB/s, {writes / seeds / seconds:.2f} writes a second")
    assert 1.9 <= got[0] / got[1] <= 2.1
    assert sum(got) >= 0.97 * CAPACITY_MB_S
    assert writes < seeds * seconds * 2
