"""What latency targets do to small requests, on a model of the queue at a volume and of the kernel's limits.

The volume serves first what comes first, at a fixed rate. A limit lets pass at once all that it allows for a slice of
time, as blk-throttle does, so a request finds the burst of the others before it. One cgroup keeps many large requests
in flight, the other has one small one at a time.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from statistics import quantiles

import pytest

from elastio.core.division import Division
from elastio.core.lending import NONE, Requests
from elastio.core.shares import LatencyTarget, SharePlan
from elastio.units import KIB, MB

DB, TAR = "a.slice/db.service", "a.slice/tar.service"
WEIGHTS = {"a.slice": 100.0, DB: 100.0, TAR: 100.0}
STEP_S, TURN_S, SLICE_S = 0.001, 0.25, 0.1
VOLUME_MB_S, CAPACITY_MB_S = 16.5, 16.0
SETTLES_S, MEASURED_S = 30.0, 60.0
LARGE, SMALL = 256 * KIB, 4 * KIB
IN_FLIGHT, PAUSE_S = 16, 0.037


@dataclass
class Volume:
    """The two cgroups on a volume. `is_shared`: with limits; `target_ms`: of DB; None: it has none.

    `has_db`: DB has its small request; `large`: how many large ones each keeps in flight.
    """

    is_shared: bool = True
    target_ms: float | None = None
    has_db: bool = True
    at: float = 0.0
    queue: deque[tuple[str, float, list[float]]] = field(default_factory=deque)
    moved: dict[str, float] = field(default_factory=lambda: {DB: 0.0, TAR: 0.0})
    waits: list[float] = field(default_factory=list)
    finished: Requests = NONE
    division: Division = field(default_factory=Division)
    limits: dict[str, float] = field(default_factory=dict)
    allowed: dict[str, float] = field(default_factory=lambda: {DB: 0.0, TAR: 0.0})
    large: dict[str, int] = field(default_factory=lambda: {TAR: IN_FLIGHT})
    asks_at: float = 0.0
    ended: int = 0  # turns after which there was no limit any more

    def run(self, seconds: float) -> None:
        """Go on for so long. What has moved and who has waited counts from here on."""
        self.waits.clear()
        self.moved = dict.fromkeys(self.moved, 0.0)
        used = dict(self.moved)
        for step in range(1, round(seconds / STEP_S) + 1):
            self.at += STEP_S
            self._submit(step)
            self._serve()
            if step % round(TURN_S / STEP_S) == 0:
                self._turn({group: (self.moved[group] - used[group]) / MB / TURN_S for group in used})
                used = dict(self.moved)

    def _submit(self, step: int) -> None:
        if self.has_db and self.at >= self.asks_at:
            self._put(DB, SMALL)
            self.asks_at = float("inf")
        for group, in_flight in self.large.items():
            self._submit_large(group, in_flight, step)

    def _submit_large(self, group: str, in_flight: int, step: int) -> None:
        limit = self.limits.get(group)
        if limit is None:
            self.allowed[group] = 0.0
        elif step % round(SLICE_S / STEP_S) == 0:
            self.allowed[group] = min(self.allowed[group], 0.0) + limit * MB * SLICE_S
        under_way = sum(each == group for each, _, _ in self.queue)
        while under_way < in_flight and (limit is None or self.allowed[group] > 0):
            self._put(group, LARGE)
            self.allowed[group] -= LARGE
            under_way += 1

    def _put(self, group: str, size: int) -> None:
        self.queue.append((group, self.at, [float(size)]))
        self.moved[group] += size

    def _serve(self) -> None:
        budget = VOLUME_MB_S * MB * STEP_S
        while self.queue and budget > 0:
            group, begun, left = self.queue[0]
            served = min(budget, left[0])
            budget, left[0] = budget - served, left[0] - served
            if left[0] > 0:
                return
            self.queue.popleft()
            self.finished = self.finished.plus(Requests(1, self.at - begun))
            if group == DB and self.has_db:
                self.waits.append(self.at - begun)
                self.asks_at = self.at + PAUSE_S

    def _turn(self, used: dict[str, float]) -> None:
        if self.is_shared:
            latency = () if self.target_ms is None else (LatencyTarget("db.service", self.target_ms),)
            plan = SharePlan(CAPACITY_MB_S, latency=latency)
            waited = {DB: self.finished} if used[DB] and latency else {}
            before = self.limits
            self.division, self.limits = self.division.turn(
                used, WEIGHTS, plan, before, waited=waited, request_s=self.finished.mean_s or 0.0
            )
            self.ended += bool(before) and not self.limits
        self.finished = Requests()

    @property
    def p95_ms(self) -> float:
        return 1000 * quantiles(self.waits, n=20)[-1]

    @property
    def tar_mb_s(self) -> float:
        return self.moved[TAR] / MB / MEASURED_S


def measured(*, is_shared: bool = True, target_ms: float | None = None) -> Volume:
    volume = Volume(is_shared, target_ms)
    volume.run(SETTLES_S)
    volume.run(MEASURED_S)
    return volume


def test_small_requests_wait_less_for_a_target_and_the_other_keeps_its_share() -> None:
    alone, shared, prompt = measured(is_shared=False), measured(), measured(target_ms=30.0)
    figures = [(f"{v.p95_ms:.0f} ms", f"{v.tar_mb_s:.1f} MB/s") for v in (alone, shared, prompt)]
    print(f"no limits {figures[0]}, shares {figures[1]}, with a target {figures[2]}")
    assert shared.p95_ms < alone.p95_ms / 2
    assert prompt.p95_ms < 0.75 * shared.p95_ms
    assert prompt.tar_mb_s > 0.95 * CAPACITY_MB_S / 2


@pytest.mark.parametrize("target_ms", [5.0, 20.0, 30.0, 40.0, 50.0])
def test_a_target_that_the_share_of_the_other_allows_is_kept(target_ms: float) -> None:
    found = measured(target_ms=target_ms)
    at_share = measured(target_ms=0.001)
    print(f"{target_ms:.0f} ms: p95 {found.p95_ms:.0f} ms, {found.tar_mb_s:.1f} MB/s, level {found.division.lending}")
    assert found.p95_ms <= max(1.6 * target_ms, at_share.p95_ms + 5)
    assert found.tar_mb_s > 0.95 * CAPACITY_MB_S / 2
    assert found.ended == at_share.ended == 0, "limits end although one of them wants all"


def test_the_other_has_all_back_once_nobody_waits() -> None:
    volume = measured(target_ms=0.001)
    volume.has_db = False
    volume.run(SETTLES_S)
    volume.run(MEASURED_S)
    assert volume.tar_mb_s > 0.95 * CAPACITY_MB_S


def test_what_stood_at_the_volume_before_there_were_limits_is_drained_within_five_seconds() -> None:
    volume = Volume(has_db=False, large={DB: IN_FLIGHT, TAR: 3 * IN_FLIGHT})
    volume.run(5.0)
    standing = len(volume.queue)
    volume.run(MEASURED_S)
    first, second = volume.moved[DB] / MB / MEASURED_S, volume.tar_mb_s
    print(f"{standing} in flight after 5 s, then {first:.1f} and {second:.1f} MB/s")
    assert standing < IN_FLIGHT
    assert 0.95 < first / second < 1.05
    assert first + second > 0.95 * CAPACITY_MB_S


@pytest.mark.parametrize("before", [{TAR: IN_FLIGHT}, {DB: IN_FLIGHT, TAR: IN_FLIGHT}])
def test_who_is_alone_has_all_that_the_volume_gives(before: dict[str, int]) -> None:
    volume = Volume(has_db=False, large=before)
    volume.run(SETTLES_S)
    volume.large = {TAR: IN_FLIGHT}
    volume.run(SETTLES_S)
    volume.run(MEASURED_S)
    assert volume.tar_mb_s > 0.99 * VOLUME_MB_S


@pytest.mark.parametrize("in_flight", [4, 4 * IN_FLIGHT])
def test_who_comes_beside_one_that_was_alone_has_its_share_within_three_seconds(in_flight: int) -> None:
    volume = Volume(has_db=False, large={TAR: in_flight})
    for _ in range(3):
        volume.large = {TAR: in_flight}
        volume.run(SETTLES_S)
        volume.large[DB] = IN_FLIGHT
        volume.run(3.0)
        volume.run(10.0)
        assert 0.95 < volume.moved[DB] / volume.moved[TAR] < 1.05


def test_one_that_comes_for_a_second_now_and_then_costs_the_other_little_more_than_it_writes() -> None:
    volume, moved = Volume(has_db=False), 0.0
    for _ in range(12):
        volume.large = {TAR: 4 * IN_FLIGHT, DB: 1}
        volume.run(1.0)
        moved += sum(volume.moved.values())
        volume.large = {TAR: 4 * IN_FLIGHT}
        volume.run(4.0)
        moved += sum(volume.moved.values())
    served_mb_s = (moved - sum(left[0] for _, _, left in volume.queue)) / MB / 60
    print(f"{served_mb_s:.2f} MB/s")
    assert served_mb_s > 0.97 * VOLUME_MB_S
