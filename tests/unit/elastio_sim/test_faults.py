"""Fault plans: drawn from a seed, written on one line, and read back."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastio_sim.faults import Fault, FaultMode, FaultPlan, ScheduledFault
from tests.values import present


@settings(deadline=None, derandomize=True, database=None)
@given(st.integers(0, 10_000), st.integers(0, 5), st.integers(0, 3))
def test_every_random_plan_can_be_written_and_read(seed: int, faults: int, scheduled: int) -> None:
    plan = FaultPlan.random(seed, faults, scheduled)
    again = FaultPlan.parse(plan.spec())
    assert (again.faults, again.scheduled) == (plan.faults, plan.scheduled)
    assert plan.spec() == FaultPlan.random(seed, faults, scheduled).spec()


def test_seeds_give_different_plans() -> None:
    assert len({FaultPlan.random(seed).spec() for seed in range(20)}) > 15


@pytest.mark.parametrize(
    ("calls", "struck"),
    [("#2", [2]), ("#2x2", [2, 3]), ("#2+", [2, 3, 4, 5])],
    ids=["one call", "some calls", "all later calls"],
)
def test_a_fault_strikes_the_calls_that_it_names(calls: str, struck: list[int]) -> None:
    plan = FaultPlan.parse(f"describe{calls}=expired")
    assert [number for number in range(1, 6) if plan.take("describe")] == struck
    assert plan.take("attach") is None


def test_random_faults_pass() -> None:
    plans = [FaultPlan.random(seed, count=5) for seed in range(50)]
    assert all(fault.calls > 0 for plan in plans for fault in plan.faults)


def test_seconds_are_part_of_the_specification() -> None:
    plan = FaultPlan.parse("attach#1=late_success:8.5 @90=wall_jump:-3600")
    assert plan.faults == (Fault("attach", FaultMode.LATE_SUCCESS, seconds=8.5),)
    assert plan.scheduled == (ScheduledFault("90", FaultMode.WALL_JUMP, -3600.0),)


@pytest.mark.parametrize(
    "spec", ["create#0=hang", "fly#1=hang", "create#1=power_cut", "@noon=vanish", "@5=throttle", "create"]
)
def test_a_wrong_word_is_named(spec: str) -> None:
    with pytest.raises(ValueError, match=re.escape(repr(spec))):
        FaultPlan.parse(f"attach#1=hang {spec}")


def test_a_scheduled_fault_happens_once_when_its_time_or_state_comes() -> None:
    plan = FaultPlan.parse("@10=power_cut @dirty=vanish @limited=disk_full:600")
    dirty, limited = frozenset({"dirty"}), frozenset({"clean", "limited"})
    assert plan.next_at(frozenset()) == 10.0
    assert plan.due(5.0, frozenset()) == ()
    assert [f.kind for f in plan.due(10.0, frozenset({"clean"}))] == [FaultMode.POWER_CUT]
    assert plan.next_at(frozenset()) == math.inf
    assert [f.kind for f in plan.due(11.0, dirty)] == [FaultMode.VANISH]
    assert plan.due(12.0, dirty) == ()
    assert [(f.kind, f.seconds) for f in plan.due(12.0, limited)] == [(FaultMode.DISK_FULL, 600.0)]


def test_what_is_armed_strikes_the_next_call_that_can_fail_so_and_no_other() -> None:
    plan = FaultPlan()
    plan.arm(FaultMode.STUCK_BUSY, ("attach", "detach"), 7.0)
    assert plan.take("attach") is None
    assert plan.is_armed
    struck = present(plan.take("detach"))
    assert (struck.kind, struck.seconds) == (FaultMode.STUCK_BUSY, 7.0)
    assert plan.take("detach") is None
    assert not plan.is_armed
