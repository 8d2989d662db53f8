"""Cgroups that draw at random whether they read or write: all of their requests may wait for one of two limits."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Mapping
from statistics import mean

import pytest

from elastio.core.division import Division
from elastio.core.moved import LEAST_FILLED, Mix, Moved, with_use
from elastio.core.shares import SharePlan
from elastio.host.sharer import TURN_S
from elastio.units import MB

REQUEST_MB, DEVICE_MB_S, CAPACITY_MB_S = 0.262144, 16.5, 16.0
STEPS = 25
# Of the same weight. The first two are one application, whose share is twice that of the third.
DEPTHS = {"a.slice/first": 16, "a.slice/other": 16, "a.slice/second": 32}
WEIGHTS = {"a.slice": 100.0, **dict.fromkeys(DEPTHS, 100.0)}
WINDOW = 40
# As they are while all have what they want: less than there is, but the second more than its share.
NO_LIMITS: Mapping[str, float] = {}
LOOSE = {"a.slice/first": 6.9, "a.slice/other": 6.9, "a.slice/second": 13.9}
SATISFIED = {"a.slice/first": 1.6, "a.slice/other": 1.6, "a.slice/second": 10.4}


class Queues:
    """The requests of each cgroup that wait for its limits, by direction, and then all in the order of the device."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)
        self.limit: dict[str, float] = {}
        self._waiting = {(g, d): n // 2 for g, n in DEPTHS.items() for d in (0, 1)}
        self._allowed = dict.fromkeys(self._waiting, 0.0)
        self._device: deque[str] = deque()
        self._served_mb = 0.0

    def turn(self) -> dict[str, Moved]:
        """What passes the limits in a turn, which is what the kernel counts."""
        passed = dict.fromkeys(self._waiting, 0)
        for _ in range(STEPS):
            for queue in self._waiting:
                passed[queue] += self._pass(queue)
            self._served_mb = min(self._served_mb + DEVICE_MB_S * TURN_S / STEPS, 2 * REQUEST_MB)
            while self._served_mb >= REQUEST_MB and self._device:
                self._served_mb -= REQUEST_MB
                self._waiting[self._device.popleft(), self._draw.randrange(2)] += 1
        size = int(REQUEST_MB * MB)
        return {g: Moved(size * passed[g, 0], size * passed[g, 1], passed[g, 0] + passed[g, 1]) for g in DEPTHS}

    @property
    def waits_s(self) -> float:
        """How long a request has to wait for those before it at the device."""
        return len(self._device) * REQUEST_MB / DEVICE_MB_S

    def _pass(self, queue: tuple[str, int]) -> int:
        limit, count = self.limit.get(queue[0]), self._waiting[queue]
        if limit is not None:
            most = 0.1 * limit + REQUEST_MB
            self._allowed[queue] = min(most, self._allowed[queue] + limit * TURN_S / STEPS)
            count = min(count, int(self._allowed[queue] / REQUEST_MB))
            self._allowed[queue] -= count * REQUEST_MB
        self._waiting[queue] -= count
        self._device.extend([queue[0]] * count)
        return count


def ratios(seed: int, filled: float = 1.0, limit: Mapping[str, float] = NO_LIMITS) -> list[float]:
    """What the first application got, over what the second got, in two windows of ten seconds."""
    queues, division = Queues(seed), Division()
    queues.limit = dict(limit)
    for _ in range(WINDOW if limit else 0):
        division, _ = division.turn(SATISFIED, WEIGHTS, SharePlan(CAPACITY_MB_S), limit, request_s=0.02)
    mixes = dict.fromkeys(DEPTHS, Mix(filled=filled))
    seen: list[tuple[float, float]] = []
    for _ in range(12 + 2 * WINDOW):
        moved = queues.turn()
        mixes = {group: mixes[group].after(each) for group, each in moved.items()}
        used = {group: each.total_bytes / MB / TURN_S for group, each in moved.items()}
        in_force = {group: mb_s / mixes[group].part for group, mb_s in queues.limit.items()}
        division, wanted = division.turn(
            used,
            WEIGHTS,
            SharePlan(CAPACITY_MB_S),
            in_force,
            request_s=queues.waits_s,
            requests={group: each.requests for group, each in moved.items()},
            mixed={group for group, mix in mixes.items() if mix.is_even},
        )
        mixes = with_use(mixes, used, {g: in_force[g] for g in division.hungry & in_force.keys()}, CAPACITY_MB_S)
        changed = {group: mb_s * mixes[group].part for group, mb_s in wanted.items() if mb_s != in_force.get(group)}
        queues.limit = {**{group: mb_s for group, mb_s in queues.limit.items() if group in wanted}, **changed}
        first, other, second = (used[group] for group in DEPTHS)
        seen.append((first + other, second))
    parts = [seen[begin : begin + WINDOW] for begin in (12, 12 + WINDOW)]
    return [sum(first for first, _ in part) / sum(second for _, second in part) for part in parts]


@pytest.mark.parametrize(("filled", "limit"), [(1.0, NO_LIMITS), (LEAST_FILLED, NO_LIMITS), (1.0, LOOSE)])
def test_reads_and_writes_in_any_order_are_shared_by_weight(filled: float, limit: Mapping[str, float]) -> None:
    """Also if another load has taught what is not so of this one, or has left limits that let a queue form."""
    found = [ratio for seed in range(20) for ratio in ratios(seed, filled, limit)]
    assert sum(1.9 <= ratio <= 2.1 for ratio in found) >= 0.85 * len(found)
    assert 1.96 <= mean(found) <= 2.04
