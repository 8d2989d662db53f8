"""Latency targets by lending less: it comes to rest, takes nobody's share, and lends all again when nobody waits."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from elastio.core import shares
from elastio.core.division import Division
from elastio.core.lending import ABSENT, CALM, LEAST_STEP, Lending, Requests
from elastio.core.shares import LatencyTarget, SharePlan

DB, TAR, ETL = "a.slice/db", "a.slice/tar", "a.slice/etl"
TARGET_S = 0.010
TURNS, LAST = 400, 150
# The slowest of the level's searches, and how much of the time it may be looking for a higher one.
LEAST_USED, AT_REST = 0.97, 0.8
RATIO, SHARE = 1.05, 0.90

waits = st.floats(0.0, 4.0)


def levels(wait_at: Callable[[float], float], turns: int = TURNS) -> list[float]:
    """The level after each turn, where a wait, as a share of the target, follows the level at once."""
    lending, found = Lending(), []
    for _ in range(turns):
        mean_s = wait_at(lending.level) * TARGET_S
        lending = lending.turn({DB: Requests(10, 10 * mean_s)}, {DB: TARGET_S})
        assert 0.0 <= lending.level <= 1.0
        found.append(lending.level)
    return found


@given(waits, waits, st.floats(0.2, 3.0))
def test_the_level_comes_to_rest_at_the_highest_at_which_nobody_waits_too_long(
    alone: float, beside: float, bend: float
) -> None:
    def wait_at(level: float) -> float:
        return alone + beside * math.pow(level, bend)

    found = levels(wait_at)[-LAST:]
    usual = max(set(found), key=found.count)
    assert found.count(usual) >= AT_REST * LAST
    assert wait_at(usual) <= 1.0 or usual == 0.0
    higher = min(1.0, usual + 2 * LEAST_STEP)
    assert usual == 1.0 or wait_at(higher) > CALM, "more could be lent"


@given(st.lists(st.tuples(st.floats(0.0, 1e3), st.floats(0.0, 1e3)), max_size=60))
def test_without_a_cgroup_that_waits_all_is_lent(seen: list[tuple[float, float]]) -> None:
    lending = Lending()
    for count, seconds in seen:
        lending = lending.turn({DB: Requests(count, seconds)}, {DB: TARGET_S})
        assert 0.0 <= lending.level <= 1.0
    for _ in range(ABSENT):
        lending = lending.turn({}, {})
    assert lending == Lending()


@dataclass(frozen=True)
class Machine:
    """Weights, and what each wants of a capacity of 1. A request waits the longer, the more others have in flight.

    `alone`: its wait on an idle device, `beside`: what all that others use adds, as shares of the target. `bursts`: how
    much more a cgroup without a limit adds than one that is limited.
    """

    weight: tuple[float, float, float]
    wants: tuple[float, float, float]
    alone: float
    beside: float
    bursts: float

    @property
    def weights(self) -> dict[str, float]:
        return {"a.slice": 100.0, **dict(zip((DB, TAR, ETL), self.weight, strict=True))}

    def part(self) -> dict[str, float]:
        active = [group for group, mb_s in self.wanted().items() if mb_s >= shares.ACTIVE]
        return shares.parts(self.weights, active, SharePlan(1.0))

    def wanted(self, *, is_there: bool = True) -> dict[str, float]:
        wants = dict(zip((DB, TAR, ETL), self.wants, strict=True))
        return wants if is_there else {**wants, DB: 0.0}

    def served(self, limits: dict[str, float], *, is_there: bool = True) -> dict[str, float]:
        asked = {g: min(mb_s, limits.get(g, math.inf)) for g, mb_s in self.wanted(is_there=is_there).items()}
        whole = max(1.0, sum(asked.values()))
        return {group: mb_s / whole for group, mb_s in asked.items()}

    def wait(self, served: dict[str, float], limits: dict[str, float]) -> float:
        adds = (mb_s * (1.0 if group in limits else self.bursts) for group, mb_s in served.items() if group != DB)
        return self.alone + self.beside * sum(adds)


weights = st.sampled_from((50.0, 100.0, 200.0, 400.0))
machines = st.builds(
    Machine,
    st.tuples(weights, weights, weights),
    st.tuples(st.floats(0.01, 0.1), st.sampled_from((0.1, 0.3, 0.6, 2.0)), st.sampled_from((0.0, 0.2, 2.0))),
    st.floats(0.0, 1.2),
    st.floats(0.0, 4.0),
    st.floats(1.0, 2.0),
)


class Run:
    """Turns of a machine, with a target of DB."""

    def __init__(self, machine: Machine) -> None:
        self.machine, self.division = machine, Division()
        self.limits: dict[str, float] = {}
        self.plan = SharePlan(1.0, latency=(LatencyTarget("db", 1000 * TARGET_S),))

    def turns(self, count: int, *, is_there: bool = True) -> tuple[list[float], int]:
        """The wait in each turn as a share of the target, and how often a limit has changed."""
        found, changes = [], 0
        for _ in range(count):
            served = self.machine.served(self.limits, is_there=is_there)
            wait = self.machine.wait(served, self.limits)
            found.append(wait)
            waited = {DB: Requests(5, 5 * wait * TARGET_S)} if is_there else {}
            before = dict(self.limits)
            self.division, self.limits = self.division.turn(
                served, self.machine.weights, self.plan, before, waited=waited
            )
            changes += self.limits != before
        return found, changes

    def served(self, *, is_there: bool = True) -> dict[str, float]:
        return self.machine.served(self.limits, is_there=is_there)


@given(machines)
def test_nobody_has_less_than_its_share_for_the_latency_of_another(machine: Machine) -> None:
    run = Run(machine)
    run.turns(TURNS - LAST)
    part = machine.part()
    least = dict.fromkeys(part, math.inf)
    for _ in range(LAST):
        run.turns(1)
        served = run.served()
        least = {group: min(least[group], served[group]) for group in part}
    for group, mb_s in least.items():
        assert mb_s >= SHARE * min(machine.wanted()[group], part[group])


@given(machines)
def test_a_target_is_kept_where_shares_alone_keep_it_and_else_nothing_is_lent(machine: Machine) -> None:
    run = Run(machine)
    run.turns(TURNS - LAST)
    found, _ = run.turns(LAST)
    part = machine.part()
    at_shares = {group: min(mb_s, part.get(group, 0.0)) for group, mb_s in machine.wanted().items()}
    if machine.wait(at_shares, dict.fromkeys(at_shares, 0.0)) * RATIO <= CALM:
        assert sum(wait <= RATIO for wait in found) >= AT_REST * LAST


@given(machines)
def test_all_is_used_where_nobody_waits_too_long(machine: Machine) -> None:
    run = Run(machine)
    run.turns(TURNS)
    if machine.alone + machine.beside * machine.bursts <= CALM:
        assert sum(run.served().values()) >= LEAST_USED * min(1.0, sum(machine.wanted().values()))
    run.turns(40, is_there=False)
    wanted = machine.wanted(is_there=False)
    assert sum(run.served(is_there=False).values()) >= LEAST_USED * min(1.0, sum(wanted.values()))


@given(machines)
def test_limits_come_to_rest_beside_a_target(machine: Machine) -> None:
    run = Run(machine)
    run.turns(TURNS - LAST)
    _, changes = run.turns(LAST)
    assert changes <= LAST * (1 - AT_REST)
