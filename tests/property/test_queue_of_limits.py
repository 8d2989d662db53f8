"""How cgroups share a volume whose queue stands in the kernel's limits, on a model of both.

One thread of the kernel submits what limits have held back, and waits for the disk with what is due
(block/blk-throttle.c: blk_throtl_dispatch_work_fn). So once more is due than the volume serves, cgroups get it in the
order in which it became due, and a request does not seem to take long. Whoever waits for the disk gets the next place
in its queue at random. Cgroups have a number of threads each, and each thread one request under way.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from math import ceil, inf
from random import Random

import pytest

from elastio.core.division import Division
from elastio.core.shares import SharePlan
from elastio.units import KIB, MB

# The first application is two cgroups, so that it has two thirds of three equal shares.
FIRST, SECOND = ("a.slice/one", "a.slice/two"), "a.slice/three"
GROUPS = (*FIRST, SECOND)
WEIGHTS = {"a.slice": 100.0, **dict.fromkeys(GROUPS, 100.0)}
THREADS = dict(zip(GROUPS, (16, 16, 32), strict=True))
SIZE_MB, IN_FLIGHT = 256 * KIB / MB, 4
STEP_S, TURN_S, WINDOW_S = 0.001, 0.25, 4.0
UNDERLOADED, OVERLOADED = (0.1, 0.1, 0.65), (inf, inf, inf)


@dataclass
class Limited:
    """A cgroup under its limit. `due`: when the next request may pass; `held`: requests that wait for that."""

    wanted_mb_s: float = inf
    limit_mb_s: float = inf
    under_way: int = 0
    held: int = 0
    begun: float = 0.0
    passed_mb: float = 0.0
    asks_at: float = 0.0

    def may_pass(self, at: float, slice_s: float) -> bool:
        """A limit allows at once what it allows in all slices that have begun."""
        slices = max(1, ceil((at - self.begun) / slice_s))
        return self.passed_mb + SIZE_MB <= self.limit_mb_s * slice_s * slices

    def trim(self, at: float, slice_s: float) -> None:
        """What was not used of slices that have ended is lost."""
        ended = int((at - self.begun) / slice_s)
        self.begun += ended * slice_s
        if ended and self.limit_mb_s < inf:
            self.passed_mb = max(0.0, self.passed_mb - ended * slice_s * self.limit_mb_s)


@dataclass
class Machine:
    """`queue`: at the disk, each with the time it came and what is left of it; `waiting`: for a place there."""

    draw: Random
    slice_s: float
    volume_mb_s: float
    capacity_mb_s: float
    at: float = 0.0
    groups: dict[str, Limited] = field(default_factory=lambda: {group: Limited() for group in GROUPS})
    due: deque[str] = field(default_factory=deque)
    waiting: list[tuple[str, float, bool]] = field(default_factory=list)
    queue: deque[tuple[str, float, list[float]]] = field(default_factory=deque)
    is_thread_free: bool = True
    submitted: dict[str, float] = field(default_factory=lambda: dict.fromkeys(GROUPS, 0.0))
    served: dict[str, float] = field(default_factory=lambda: dict.fromkeys(GROUPS, 0.0))
    times: list[float] = field(default_factory=list)
    division: Division = field(default_factory=Division)

    def run(self, seconds: float, wants: tuple[float, float, float]) -> list[tuple[float, float]]:
        """MB/s of both applications in each window. `wants`: shares of the capacity."""
        for group, share in zip(self.groups.values(), wants, strict=True):
            group.wanted_mb_s, group.asks_at = share * self.capacity_mb_s, self.at
        windows, before, used = [], dict(self.served), dict(self.submitted)
        for step in range(1, round(seconds / STEP_S) + 1):
            self.at += STEP_S
            for name, group in self.draw.sample(sorted(self.groups.items()), len(self.groups)):
                self._ask(name, group)
            self._serve()
            if step % round(TURN_S / STEP_S) == 0:
                self._turn({name: (mb - used[name]) / TURN_S for name, mb in self.submitted.items()})
                used = dict(self.submitted)
            if step % round(WINDOW_S / STEP_S) == 0:
                got = {name: (mb - before[name]) / WINDOW_S for name, mb in self.served.items()}
                windows.append((sum(got[name] for name in FIRST), got[SECOND]))
                before = dict(self.served)
        return windows

    def _ask(self, name: str, group: Limited) -> None:
        if not group.held:
            group.trim(self.at, self.slice_s)
        while group.under_way < THREADS[name] and group.asks_at <= self.at:
            group.under_way += 1
            if group.wanted_mb_s < inf:
                group.asks_at = max(group.asks_at, self.at - 0.1) + SIZE_MB / group.wanted_mb_s
            if group.held or not group.may_pass(self.at, self.slice_s):
                group.held += 1
            else:
                group.passed_mb += SIZE_MB
                self._submit(name, by_thread=False)
        while group.held and group.may_pass(self.at, self.slice_s):
            group.held -= 1
            group.passed_mb += SIZE_MB
            self.due.append(name)
            group.trim(self.at, self.slice_s)
        self._submit_due()

    def _submit_due(self) -> None:
        if self.is_thread_free and self.due:
            self.is_thread_free = False
            self._submit(self.due.popleft(), by_thread=True)

    def _submit(self, name: str, *, by_thread: bool) -> None:
        self.submitted[name] += SIZE_MB
        self.waiting.append((name, self.at, by_thread))

    def _serve(self) -> None:
        left_mb = self.volume_mb_s * STEP_S
        while left_mb > 0:
            while len(self.queue) < IN_FLIGHT and self.waiting:
                name, begun, by_thread = self.waiting.pop(self.draw.randrange(len(self.waiting)))
                self.queue.append((name, begun, [SIZE_MB]))
                if by_thread:
                    self.is_thread_free = True
                    self._submit_due()
            if not self.queue:
                return
            name, begun, rest = self.queue[0]
            moved = min(left_mb, rest[0])
            left_mb, rest[0] = left_mb - moved, rest[0] - moved
            if rest[0] <= 0:
                self.queue.popleft()
                self.groups[name].under_way -= 1
                self.served[name] += SIZE_MB
                self.times.append(self.at - begun)

    def _turn(self, used: dict[str, float]) -> None:
        in_force = {name: group.limit_mb_s for name, group in self.groups.items() if group.limit_mb_s < inf}
        request_s = sum(self.times) / len(self.times) if self.times else 0.0
        self.times.clear()
        plan = SharePlan(self.capacity_mb_s)
        self.division, limits = self.division.turn(used, WEIGHTS, plan, in_force, request_s=request_s)
        for name, group in self.groups.items():
            if (limit := limits.get(name, inf)) != group.limit_mb_s:
                group.limit_mb_s, group.begun, group.passed_mb = limit, self.at, 0.0
            if limit == inf:
                self.due.extend([name] * group.held)
                group.held = 0


VOLUMES = {"slow, long slices": (0.1, 16.5), "slow, short slices": (0.02, 16.5), "fast": (0.02, 66.0)}


@pytest.mark.parametrize("volume", VOLUMES)
@pytest.mark.parametrize("seed", range(3))
def test_shares_are_kept_soon_after_each_change_and_nothing_is_lost_for_long(volume: str, seed: int) -> None:
    slice_s, mb_s = VOLUMES[volume]
    machine = Machine(Random(seed), slice_s, mb_s, 0.97 * mb_s)
    for _ in range(3):
        windows = machine.run(3 * WINDOW_S, OVERLOADED)
        print(" ".join(f"{first:.1f}+{second:.1f}" for first, second in windows))
        first, second = (sum(each) / len(each) for each in zip(*windows[1:], strict=True))
        assert 1.9 <= first / second <= 2.1
        assert sum(windows[-1]) >= 0.95 * mb_s, "with the queue gone"
        first, second = machine.run(2 * WINDOW_S, UNDERLOADED)[-1]
        assert first + second >= 0.97 * sum(UNDERLOADED) * machine.capacity_mb_s
