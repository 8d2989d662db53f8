"""Cgroups that draw at random whether they read or write: all of their requests may wait for one of two limits."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Mapping
from statistics import mean

import pytest

from elastio.core.device_queue import TURN_S
from elastio.core.division import Division
from elastio.core.moved import Mix, Moved, with_use
from elastio.core.shares import SharePlan
from elastio.units import MB

REQUEST_MB, CAPACITY_MB_S = 0.262144, 16.0
# Of the device in one of so many steps of a turn: at most two requests.
STEPS = 25
# Of the same weight. The first two are one application, whose share is twice that of the third.
DEPTHS = {"a.slice/first": 16, "a.slice/other": 16, "a.slice/second": 32}
WEIGHTS = {"a.slice": 100.0, **dict.fromkeys(DEPTHS, 100.0)}
WINDOW, SETTLE = 40, 12
# What may be in flight to the disk takes so long. Behind it requests wait in the kernel, where nobody counts for how
# long.
IN_FLIGHT_S = 0.09
# As they are while all have what they want: less than there is, but the second more than its share.
NO_LIMITS: Mapping[str, float] = {}
LOOSE = {"a.slice/first": 6.9, "a.slice/other": 6.9, "a.slice/second": 13.9}
SATISFIED = {"a.slice/first": 1.6, "a.slice/other": 1.6, "a.slice/second": 10.4}


class Queues:
    """The requests of each cgroup that wait for its limits, by direction, and then all in the order of the device.

    `is_mixed`: each next one is drawn; else all are reads.
    """

    def __init__(self, seed: int, device_mb_s: float, *, is_mixed: bool = True) -> None:
        self._draw, self._device_mb_s = random.Random(seed), device_mb_s
        self.is_mixed = is_mixed
        self.limit: dict[str, float] = {}
        self._waiting = {(g, d): n // 2 if is_mixed else n * (1 - d) for g, n in DEPTHS.items() for d in (0, 1)}
        self._allowed = dict.fromkeys(self._waiting, 0.0)
        self._device: deque[str] = deque()
        self._served_mb = 0.0
        self._step_s = TURN_S / (STEPS * max(1, round(device_mb_s / CAPACITY_MB_S)))

    def turn(self) -> dict[str, Moved]:
        """What passes the limits in a turn, which is what the kernel counts."""
        passed = dict.fromkeys(self._waiting, 0)
        for _ in range(round(TURN_S / self._step_s)):
            for queue in self._waiting:
                passed[queue] += self._pass(queue)
            self._served_mb = min(self._served_mb + self._device_mb_s * self._step_s, 2 * REQUEST_MB)
            while self._served_mb >= REQUEST_MB and self._device:
                self._served_mb -= REQUEST_MB
                direction = self._draw.randrange(2) if self.is_mixed else 0
                self._waiting[self._device.popleft(), direction] += 1
        size = int(REQUEST_MB * MB)
        return {g: Moved(size * passed[g, 0], size * passed[g, 1], passed[g, 0] + passed[g, 1]) for g in DEPTHS}

    @property
    def waits_s(self) -> float:
        """How long a request is seen to wait for those before it at the device."""
        return min(IN_FLIGHT_S, len(self._device) * REQUEST_MB / self._device_mb_s)

    def _pass(self, queue: tuple[str, int]) -> int:
        limit, count = self.limit.get(queue[0]), self._waiting[queue]
        if limit is not None:
            most = 0.1 * limit + REQUEST_MB
            self._allowed[queue] = min(most, self._allowed[queue] + limit * self._step_s)
            count = min(count, int(self._allowed[queue] / REQUEST_MB))
            self._allowed[queue] -= count * REQUEST_MB
        self._waiting[queue] -= count
        self._device.extend([queue[0]] * count)
        return count


class Sharing:
    """What one device is shared by, from turn to turn. `got`: MB/s of both applications in each turn."""

    def __init__(self, queues: Queues, division: Division, capacity_mb_s: float) -> None:
        self._queues, self._division, self._plan = queues, division, SharePlan(capacity_mb_s)
        self._mixes = dict.fromkeys(DEPTHS, Mix())
        self.got: list[tuple[float, float]] = []

    def run(self, turns: int) -> None:
        for _ in range(turns):
            self._turn()

    def _turn(self) -> None:
        moved = self._queues.turn()
        mixes = {group: self._mixes[group].after(each) for group, each in moved.items()}
        used = {group: each.total_bytes / MB / TURN_S for group, each in moved.items()}
        in_force = {group: mb_s / mixes[group].part for group, mb_s in self._queues.limit.items()}
        self._division, wanted = self._division.turn(
            used,
            WEIGHTS,
            self._plan,
            in_force,
            request_s=self._queues.waits_s,
            requests={group: each.requests for group, each in moved.items()},
            mixed={group for group, mix in mixes.items() if mix.is_even},
        )
        new = {g: mb_s * mixes[g].part for g, mb_s in wanted.items() if mb_s != in_force.get(g)}
        self._queues.limit = {**{g: mb_s for g, mb_s in self._queues.limit.items() if g in wanted}, **new}
        limited = {group: in_force[group] for group in self._division.hungry & in_force.keys()}
        self._mixes = with_use(mixes, used, limited, self._plan.capacity_mb_s)
        first, other, second = (used[group] for group in DEPTHS)
        self.got.append((first + other, second))

    def ratios(self, after: int) -> list[float]:
        """What the first application got, over what the second got, in two windows of ten seconds."""
        parts = [self.got[begin : begin + WINDOW] for begin in (after, after + WINDOW)]
        return [sum(first for first, _ in part) / sum(second for _, second in part) for part in parts]

    def total_mb_s(self, after: int) -> float:
        """What both got together."""
        return mean(sum(each) for each in self.got[after:])


def of_a_slow_volume(seed: int, device_mb_s: float, limit: Mapping[str, float]) -> list[float]:
    """The ratios, of a load that begins with these limits."""
    queues, division = Queues(seed, device_mb_s), Division()
    queues.limit = dict(limit)
    for _ in range(WINDOW if limit else 0):
        division, _ = division.turn(SATISFIED, WEIGHTS, SharePlan(CAPACITY_MB_S), limit, request_s=0.02)
    sharing = Sharing(queues, division, CAPACITY_MB_S)
    sharing.run(SETTLE + 2 * WINDOW)
    return sharing.ratios(SETTLE)


def after_reads(seed: int, device_mb_s: float, capacity_mb_s: float) -> tuple[list[float], float]:
    """The ratios, and the part of the device that both used together, of a volume that was only read until now."""
    queues, begin = Queues(seed, device_mb_s, is_mixed=False), 2 * WINDOW + SETTLE
    sharing = Sharing(queues, Division(), capacity_mb_s)
    sharing.run(2 * WINDOW)
    queues.is_mixed = True
    sharing.run(SETTLE + 2 * WINDOW)
    return sharing.ratios(begin), sharing.total_mb_s(begin) / min(device_mb_s, capacity_mb_s)


@pytest.mark.parametrize("device_mb_s", [16.5, 16.0, 15.7, 15.4])
@pytest.mark.parametrize("limit", [NO_LIMITS, LOOSE])
def test_reads_and_writes_in_any_order_are_shared_by_weight(device_mb_s: float, limit: Mapping[str, float]) -> None:
    """Also of a device that gives a little less than it is taken to, and if limits let a queue form before."""
    found = [ratio for seed in range(12) for ratio in of_a_slow_volume(seed, device_mb_s, limit)]
    assert sum(1.9 <= ratio <= 2.1 for ratio in found) >= 0.85 * len(found)
    assert 1.95 <= mean(found) <= 2.04


@pytest.mark.parametrize("device_mb_s", [16.5, 16.0, 15.7, 15.4])
def test_they_are_after_reads_alone_and_use_the_volume(device_mb_s: float) -> None:
    """The limits for reads alone let twice as much of both pass."""
    seen = [after_reads(seed, device_mb_s, CAPACITY_MB_S) for seed in range(20)]
    found, used = [ratio for ratios, _ in seen for ratio in ratios], mean(total for _, total in seen)
    assert sum(1.9 <= ratio <= 2.1 for ratio in found) >= 0.85 * len(found)
    assert 1.95 <= mean(found) <= 2.04
    assert used >= 0.975


@pytest.mark.parametrize(("device_mb_s", "least"), [(65.0, 1.95), (64.0, 1.95), (63.0, 1.9), (62.0, 1.9)])
def test_they_are_after_reads_of_a_cache_volume_that_gives_less_than_it_is_taken_to(
    device_mb_s: float, least: float
) -> None:
    """A queue in order serves who has most in it, and nobody reaches its limit. So who wants more is remembered."""
    found = [ratio for seed in range(6) for ratio in after_reads(seed, device_mb_s, 4 * CAPACITY_MB_S)[0]]
    assert least <= mean(found) <= 2.05
