"""A latency-bound cgroup beside one whose buffered writeback reaches the device in requests of many MB.

A limit makes such a request wait until it allows all of it, and then lets it pass as a whole (block/blk-throttle.c).
While it is at the volume each small request waits for the part of it that is in flight.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import pytest

from elastio.core.division import Division
from elastio.core.lending import Requests
from elastio.core.shares import LatencyTarget, Reserved, SharePlan
from elastio.units import MB

DB, WRITER = "a.slice/db.service", "a.slice/writer.service"
WEIGHTS = {"a.slice": 100.0, DB: 100.0, WRITER: 100.0}
VOLUME_MB_S, CAPACITY_MB_S, SHARE_MB_S = 16.5, 16.0, 1.8
PLAN = SharePlan(CAPACITY_MB_S, (Reserved("db.service", CAPACITY_MB_S - SHARE_MB_S),))
TURN_S, STEPS = 0.25, 25
# Of the small requests: MB/s of one kind, and how long each takes; alone, and beside a large one.
ALONE, BESIDE = (3.0, 0.0003), (0.3, 0.015)


@dataclass
class Machine:
    """`piece_mb`: what the writer has in each request; `paid_mb`: what its limit has allowed of the one that waits."""

    piece_mb: float
    plan: SharePlan
    paid_mb: float = 0.0
    at_volume_mb: float = 0.0
    division: Division = field(default_factory=Division)
    limits: dict[str, float] = field(default_factory=dict)

    def run(self, seconds: float) -> tuple[float, float]:
        """MB/s of the writer, and the part of the time in which no small request waits for it."""
        turns = round(seconds / TURN_S)
        found = [self._turn() for _ in range(turns)]
        return sum(mb for mb, _ in found) / seconds, sum(calm for _, calm in found) / turns / STEPS

    def _turn(self) -> tuple[float, int]:
        written, pieces, busy = 0.0, 0, 0
        for _ in range(STEPS):
            if self._passes():
                written, pieces = written + self.piece_mb, pieces + 1
            busy += self.at_volume_mb > 0
            self.at_volume_mb = max(0.0, self.at_volume_mb - VOLUME_MB_S * TURN_S / STEPS)
        calm = STEPS - busy
        (alone_mb_s, needed_s), (beside_mb_s, beside_s) = ALONE, BESIDE
        db_mb_s = (calm * alone_mb_s + busy * beside_mb_s) / STEPS
        waited = {DB: Requests(STEPS, calm * needed_s + busy * beside_s)} if self.plan.latency else {}
        self.division, self.limits = self.division.turn(
            {DB: db_mb_s, WRITER: written / TURN_S},
            WEIGHTS,
            self.plan,
            self.limits,
            waited=waited,
            requests={DB: round(db_mb_s * TURN_S * MB / 4096), WRITER: pieces},
        )
        return written, calm

    def _passes(self) -> bool:
        self.paid_mb = min(self.piece_mb, self.paid_mb + self.limits.get(WRITER, math.inf) * TURN_S / STEPS)
        if self.paid_mb < self.piece_mb or self.at_volume_mb > 0:
            return False
        self.paid_mb, self.at_volume_mb = 0.0, self.piece_mb
        return True


@pytest.mark.parametrize("piece_mb", [4.2, 8.4, 12.6, 16.8, 31.0])
def test_who_writes_in_large_requests_keeps_to_its_share_while_they_make_another_wait(piece_mb: float) -> None:
    machine = Machine(piece_mb, SharePlan(PLAN.capacity_mb_s, PLAN.reserve, (LatencyTarget("db.service", 5.0),)))
    machine.run(20)
    writer_mb_s, calm = machine.run(60)
    print(f"{writer_mb_s:.2f} MB/s, {calm:.2f} of the time is calm")
    assert 0.85 * SHARE_MB_S <= writer_mb_s <= 1.25 * SHARE_MB_S
    assert calm >= 0.8


@pytest.mark.parametrize("piece_mb", [0.3, 4.2, 12.6, 31.0])
@pytest.mark.parametrize("latency", [(), (LatencyTarget("db.service", 50.0),)])
def test_it_has_what_others_leave_while_nobody_waits_too_long(
    piece_mb: float, latency: tuple[LatencyTarget, ...]
) -> None:
    machine = Machine(piece_mb, SharePlan(PLAN.capacity_mb_s, PLAN.reserve, latency))
    machine.run(20)
    writer_mb_s, _ = machine.run(60)
    print(f"{writer_mb_s:.2f} MB/s, {machine.limits}")
    assert writer_mb_s >= 0.9 * (CAPACITY_MB_S - ALONE[0])
