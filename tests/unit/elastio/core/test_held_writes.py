"""Writes are held back in time for the disk of a cache, and until it is attached."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from elastio.core import boosting
from elastio.core.actions import HELD_MB_S, Action, LimitWrites
from elastio.core.boosting import IN_FLIGHT_BYTES
from elastio.core.cycle import Backoff, Cycle, Timestamps, Trigger
from elastio.core.detection import in_attaching
from elastio.core.machine import decide
from elastio.core.model import BackingView, VolumeState, VolumeTag
from elastio.core.planner import next_action
from elastio.core.state import AgentState, Phase
from elastio.strategy.memory import Capped
from elastio.strategy.situation import Release, Wish
from elastio.strategy.spending import Period
from elastio.units import MB
from tests.values import NOW, POLICY, backing, cycle, disk, host, present, seen, state, volume

# The disks appeared after some 4 s so far; what may be in flight on the backing volume takes some 0.2 s.
DRAIN_S = IN_FLIGHT_BYTES / (POLICY.backing_bandwidth_mb_s * MB)
ON_ITS_WAY = replace(cycle(volume=volume(VolumeState.ATTACHING), cache_set=None), tag=VolumeTag.DIRTY)


def awaited(since_s: float, of: Cycle = ON_ITS_WAY, asked: float | None = NOW, **changes: Any) -> AgentState:
    """A state in which the purchase was decided so many seconds ago, and the cloud attaches the volume."""
    begun = replace(of, times=Timestamps(decided=NOW - since_s, created=NOW - since_s, asked=asked))
    return replace(state(Phase.ATTACHING, begun), **{"appear_s": (3.0, 4.0, 9.0), **changes})


def awaiting(before: AgentState, view: BackingView) -> tuple[Action, ...]:
    """What is done while the disk does not show yet."""
    return decide(before, seen(host(view)), POLICY).actions


PACED = LimitWrites(POLICY.backing_bandwidth_mb_s)


@pytest.mark.parametrize(
    ("late_s", "is_held", "then"),
    [
        (-1.1 * DRAIN_S, False, LimitWrites(None)),
        *((late * DRAIN_S, True, None) for late in (-0.9, 0.0, 0.9)),
        (1.1 * DRAIN_S, False, PACED),
        (boosting.PACED_S, False, PACED),
        (boosting.PACED_S + 1.1 * DRAIN_S, False, LimitWrites(None)),
    ],
)
def test_writes_are_held_back_around_the_time_when_the_disk_is_expected(
    late_s: float, is_held: bool, then: LimitWrites | None
) -> None:
    before = awaited(4.0 + late_s)
    assert (LimitWrites(HELD_MB_S) in awaiting(before, backing())) is is_held
    # What is held back then goes on at the volume's pace, and that is left alone as long.
    held, paced = (backing(write_limit_mb_s=mb_s) for mb_s in (0.001, POLICY.backing_bandwidth_mb_s - 0.001))
    limits = [action for action in awaiting(before, held) if isinstance(action, LimitWrites)]
    assert limits == ([then] if then else [])
    assert (LimitWrites(None) in awaiting(before, paced)) is (then == LimitWrites(None))


@pytest.mark.parametrize(
    ("asked_s", "then"), [(0.0, None), (0.9 * DRAIN_S, None), (1.1 * DRAIN_S, PACED), (40.0, LimitWrites(None))]
)
def test_writes_of_the_first_boost_are_held_back_once_its_volume_is_being_attached(
    asked_s: float, then: LimitWrites | None
) -> None:
    """When its disk will appear is not known, and what is in flight until then is waited for."""
    before = awaited(50.0, asked=NOW - asked_s, appear_s=())
    assert (LimitWrites(HELD_MB_S) in awaiting(before, backing())) is (then is None)
    held = awaiting(before, backing(write_limit_mb_s=0.001))
    assert [action for action in held if isinstance(action, LimitWrites)] == ([then] if then else [])


@pytest.mark.parametrize(
    "before",
    [
        awaited(4.0, asked=None, appear_s=()),
        awaited(4.0, replace(ON_ITS_WAY, trigger=Trigger.FORECAST)),
        replace(awaited(4.0), cycle=replace(present(awaited(4.0).cycle), times=Timestamps(decided=NOW - 4.0))),
    ],
    ids=[
        "nothing is known of the cloud, which has not been asked to attach the volume",
        "there is no load",
        "the volume is not being created",
    ],
)
def test_writes_are_held_back_for_nothing_else(before: AgentState) -> None:
    assert not any(isinstance(action, LimitWrites) for action in awaiting(before, backing()))


def test_writes_are_held_back_before_the_volume_is_attached_where_what_is_in_flight_takes_longer() -> None:
    creating = cycle(volume=volume(VolumeState.CREATING), cache_set=None)
    before = awaited(4.0, creating)
    before = replace(before, cycle=replace(creating, times=replace(present(before.cycle).times, asked=None)))
    assert LimitWrites(HELD_MB_S) in awaiting(before, backing())


@pytest.mark.parametrize(("ago_s", "stays"), [(0.0, True), (9.9, True), (10.1, False)])
def test_what_is_held_back_does_not_pass_between_the_disk_and_the_attach(ago_s: float, stays: bool) -> None:
    """All of it would be in flight then."""
    times, waits = Timestamps(appeared=NOW - ago_s), {"InstallCache": Backoff(1, NOW + 5, "not drained")}
    before = state(Phase.ATTACHING, replace(ON_ITS_WAY, times=times, backoffs=waits))
    found = decide(before, seen(host(backing(write_limit_mb_s=HELD_MB_S), disk())), POLICY).actions
    assert (LimitWrites(None) not in found) is stays


@pytest.mark.parametrize(
    ("limit", "ago_s", "capped", "goes_on"),
    [
        (HELD_MB_S, 9.0, None, True),
        (HELD_MB_S, 11.0, None, False),
        (None, 9.0, None, False),
        (HELD_MB_S, 9.0, Capped("caps.max_agbs_per_day", 40.0, Period()), False),
    ],
)
def test_a_load_that_is_held_back_for_the_attach_is_not_taken_for_one_that_is_over(
    limit: float | None, ago_s: float, capped: Capped | None, goes_on: bool
) -> None:
    before = state(Phase.ATTACHING, replace(ON_ITS_WAY, times=Timestamps(appeared=NOW - ago_s)))
    over = Wish(POLICY, release=Release("the load was over", capped))
    found = in_attaching(before, seen(host(backing(write_limit_mb_s=limit), disk())), over)
    assert (found is None) is goes_on


def test_the_agent_wakes_when_writes_are_to_be_held_back_and_when_no_longer() -> None:
    quiet = replace(ON_ITS_WAY, backoffs={"DescribeVolume": Backoff(1, NOW + 60)})
    early = next_action(awaited(4.0 - DRAIN_S - 0.05, quiet), seen(host(backing())), POLICY)
    held = next_action(awaited(4.0, quiet), seen(host(backing(write_limit_mb_s=0.001))), POLICY)
    assert early.wake_at == pytest.approx(NOW + 0.05)
    assert held.wake_at == pytest.approx(NOW + DRAIN_S)


def test_writes_are_never_held_back_for_long_however_slow_the_volume() -> None:
    slow = replace(POLICY, backing_bandwidth_mb_s=1.0)
    assert boosting.drain_window(awaited(4.0), slow) == pytest.approx((NOW - boosting.MOST_S, NOW + boosting.MOST_S))
