"""Limits come to rest at the shares, whatever cgroups want and however the device serves them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastio.core import shares
from elastio.core.division import Division
from elastio.core.shares import HYSTERESIS, Reserved, SharePlan

SLICE = "a.slice"
GROUPS = tuple(f"{SLICE}/{name}" for name in "abcdef")
# The slowest of 5,000 random changes of wishes took 27 turns until nothing changed, 99 of 100 took 13, half of them 3.
TURNS, AT_REST = 60, 10
# A device serves more than the capacity that is shared: see `core.capacity`.
SERVED = 1.02
# What a limit may be off by, and by how much less may be used than there is.
LEAST_USED, SLACK, RATIO = 0.97, 0.05, 1.05
ROUNDING = 1e-9

weights = st.one_of(st.floats(1.0, 10000.0), st.sampled_from((50.0, 100.0, 200.0, 400.0)))
# One that wants just as much as makes it active is so or not by how it is served, and the shares of others follow.
LEAST = 10 * shares.ACTIVE
wishes = st.one_of(st.just(0.0), st.floats(LEAST, 0.5), st.floats(LEAST, 3.0))
depths = st.sampled_from((1.0, 4.0, 16.0, 64.0))


@dataclass(frozen=True)
class Machine:
    """Cgroups with weights, the depths of their queues, and what they want before and after a change.

    `is_by_depth`: a full device serves them by the depths of their queues, else by what they may ask for.
    """

    groups: tuple[tuple[float, float, tuple[float, float]], ...]
    is_by_depth: bool

    @property
    def weights(self) -> dict[str, float]:
        return {SLICE: 100.0, **{group: weight for group, (weight, _, _) in zip(GROUPS, self.groups, strict=False)}}

    def wants(self, phase: int) -> dict[str, float]:
        return {group: wants[phase] for group, (_, _, wants) in zip(GROUPS, self.groups, strict=False)}

    def served(self, wants: Mapping[str, float], limits: Mapping[str, float]) -> dict[str, float]:
        asked = {group: min(mb_s, limits.get(group, math.inf)) for group, mb_s in wants.items()}
        depth = [depth for _, depth, _ in self.groups]
        if self.is_by_depth or sum(asked.values()) <= SERVED:
            return dict(zip(asked, shares.fill(SERVED, list(asked.values()), depth), strict=True))
        return {group: mb_s * SERVED / sum(asked.values()) for group, mb_s in asked.items()}


machines = st.builds(
    Machine,
    st.lists(st.tuples(weights, depths, st.tuples(wishes, wishes)), min_size=1, max_size=len(GROUPS)).map(tuple),
    st.booleans(),
)


def played(machine: Machine, wants: Mapping[str, float], division: Division, limits: dict[str, float]) -> Division:
    """So many turns, after which limits have come to rest. `limits` are those in force, and are changed."""
    rested = 0
    for _ in range(TURNS):
        before = dict(limits)
        division, now = division.turn(machine.served(wants, limits), machine.weights, SharePlan(1.0), before)
        for group in now.keys() & before.keys():
            change = abs(now[group] - before[group])
            assert change == 0.0 or change > HYSTERESIS * before[group] * (1 - ROUNDING)
        rested = rested + 1 if now == before else 0
        limits.clear()
        limits.update(now)
    assert rested >= AT_REST
    return division


def expected(machine: Machine, wants: Mapping[str, float]) -> tuple[dict[str, float], dict[str, float]]:
    """The share of each active cgroup, and what it gets where everybody's wishes are known."""
    active = [group for group, mb_s in wants.items() if mb_s >= shares.ACTIVE]
    part = shares.parts(machine.weights, active, SharePlan(1.0))
    got = shares.fill(1.0, [wants[group] for group in active], [part[group] for group in active])
    return part, dict(zip(active, got, strict=True))


@given(machines)
def test_limits_come_to_rest_at_the_shares_and_again_after_a_change(machine: Machine) -> None:
    division, limits = Division(), dict[str, float]()
    for phase in (0, 1):
        wants = machine.wants(phase)
        division = played(machine, wants, division, limits)
        served = machine.served(wants, limits)
        part, ideal = expected(machine, wants)
        assert sum(served.values()) >= LEAST_USED * min(1.0, sum(wants.values())), "somebody wants what is left over"
        for group in part:
            if wants[group] <= part[group]:
                assert served[group] >= LEAST_USED * wants[group], "who wants less than its share gets all of it"
        levels = [served[group] / part[group] for group in part if wants[group] > RATIO * ideal[group]]
        assert max(levels, default=1.0) <= RATIO * min(levels, default=1.0), "the hungry have it by weight"
        if limits and len(part) > 1:
            usable = sum(min(wants[group], limits.get(group, math.inf)) for group in part)
            assert usable <= 1.0 + SLACK, "no bandwidth is given away twice"


capacities = st.floats(1.0, 2000.0)
used = st.dictionaries(st.sampled_from(GROUPS), st.floats(0.0, 2000.0))
in_force = st.dictionaries(st.sampled_from(GROUPS), st.floats(0.1, 2000.0))
reserves = st.lists(st.builds(Reserved, st.sampled_from(GROUPS), st.floats(0.1, 2000.0)), unique_by=lambda r: r.group)


@given(
    used,
    st.fixed_dictionaries({group: weights for group in (SLICE, *GROUPS)}),
    capacities,
    reserves,
    in_force,
    st.sets(st.sampled_from(GROUPS)),
)
def test_limits_leave_everybody_its_share_and_touch_no_limit_of_somebody_else(
    mb_s: dict[str, float],
    weight: dict[str, float],
    capacity: float,
    reserve: list[Reserved],
    before: dict[str, float],
    untouched: set[str],
) -> None:
    plan = SharePlan(capacity, tuple(reserve))
    _, found = Division().turn(mb_s, weight, plan, before, untouched)
    assert not found.keys() & untouched
    active = [group for group, each in mb_s.items() if each >= shares.ACTIVE * capacity]
    part = shares.parts(weight, active, plan)
    assert sum(part.values()) == pytest.approx(1.0 if active else 0.0)
    least = 1 - HYSTERESIS - ROUNDING
    for group, limit in found.items():
        assert limit >= min(part[group] * capacity, mb_s[group]) * least
