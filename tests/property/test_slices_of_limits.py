"""What a limit allows varies from turn to turn: it lets requests pass in slices of time, two or three in a turn."""

from __future__ import annotations

import math
from collections.abc import Mapping
from random import Random

from elastio.core.division import Division
from elastio.core.shares import SharePlan, fill, parts

SLICE_S, TURN_S = 0.1, 0.25
SLICE = "a.slice"
GROUPS = tuple(f"{SLICE}/{name}" for name in "abcd")
# Of a capacity of 1 MB/s: a device gives a little more, and some requests wait at it.
SERVED, AT_DEVICE = 1.02, 0.1
LEFT_FREE = 1.03
TURNS, SETTLE, MACHINES = 100, 20, 300


class Machine:
    """Some cgroups, of which each wants all there is, or nearly what it gets then."""

    def __init__(self, seed: int) -> None:
        draw = Random(seed)
        groups = GROUPS[: draw.randint(2, len(GROUPS))]
        self.weights = {SLICE: 100.0, **{group: draw.choice((50.0, 100.0, 200.0, 400.0)) for group in groups}}
        self.part = parts(self.weights, groups, SharePlan(1.0))
        asked = {group: part * draw.uniform(0.7, 1.5) for group, part in self.part.items()}
        self.wants = {group: draw.choice((math.inf, mb_s)) for group, mb_s in asked.items()}
        self.waiting_mb = dict.fromkeys(groups, 0.0)
        self.at_device_mb = 0.0

    def ideal(self) -> dict[str, float]:
        """What each gets where all wishes are known, and who wants no more has room for a little more than that."""
        got = fill(1.0, [LEFT_FREE * mb_s for mb_s in self.wants.values()], list(self.part.values()))
        return {group: min(mb_s, self.wants[group]) for group, mb_s in zip(self.part, got, strict=True)}

    def moved(self, limits: Mapping[str, float], slices: int) -> dict[str, float]:
        """What passes the limits in a turn of so many slices, in MB/s."""
        passed = {group: self._passes(group, limits.get(group, math.inf) * slices * SLICE_S) for group in self.part}
        served = SERVED * TURN_S
        scale = min(1.0, (served + AT_DEVICE - self.at_device_mb) / (sum(passed.values()) or 1.0))
        for group, mb in passed.items():
            self.waiting_mb[group] -= scale * mb
        self.at_device_mb = max(0.0, self.at_device_mb + scale * sum(passed.values()) - served)
        return {group: scale * mb / TURN_S for group, mb in passed.items()}

    def _passes(self, group: str, allowed_mb: float) -> float:
        wants = self.wants[group]
        most = 4 * SLICE_S * min(wants, 2.0)
        self.waiting_mb[group] = min(most, self.waiting_mb[group] + TURN_S * wants)
        return min(self.waiting_mb[group], allowed_mb)


def played(machine: Machine) -> tuple[float, int]:
    """By what part a cgroup gets more or less than it is to have, the worst; and how often limits were written."""
    division, limits, writes = Division(), dict[str, float](), 0
    got = dict.fromkeys(machine.part, 0.0)
    for turn in range(TURNS):
        moved = machine.moved(limits, 2 + turn % 2)
        division, new = division.turn(moved, machine.weights, SharePlan(1.0), limits)
        if turn >= SETTLE:
            writes += sum(new[group] != limits.get(group) for group in new)
            got = {group: mb_s + moved[group] / (TURNS - SETTLE) for group, mb_s in got.items()}
        limits = new
    return max(abs(got[group] / mb_s - 1) for group, mb_s in machine.ideal().items()), writes


def test_shares_are_kept_whatever_part_of_a_slice_a_turn_has() -> None:
    found = [played(Machine(seed)) for seed in range(MACHINES)]
    off, writes = sum(worst > 0.05 for worst, _ in found), sum(count for _, count in found)
    print(f"{off} of {MACHINES} more than 5 % off, {writes / MACHINES / (TURNS - SETTLE):.3f} writes a turn")
    assert off <= 0.03 * MACHINES
    assert writes <= 0.037 * MACHINES * (TURNS - SETTLE)
