"""What was seen, folded into the state."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elastio.core.actions import DeleteVolume, DescribeVolume, ListVolumes, Outcome, OutcomeKind
from elastio.core.boosting import situation_of
from elastio.core.cycle import Cycle, Timestamps
from elastio.core.machine import decide
from elastio.core.model import BackingView, CacheMode, CacheState, Rates, Sample, VolumeState
from elastio.core.policy import NOTHING, Policy
from elastio.core.polling import CLOSE_POLL_S, LATE_SHARE, SOON_S
from elastio.core.state import AgentState, Listed, Observation, Phase
from elastio.core.update import adopt, fold, with_wish
from elastio.strategy.review import review
from elastio.units import MB
from tests.values import (
    BOOSTED,
    FAILED_CLEAN,
    FORMATTED,
    MUCH,
    NOW,
    OTHER_SET,
    POLICY,
    SET,
    VOLUME_ID,
    WAITS_FOR_CLEAN,
    WALL,
    at_full_speed,
    backing,
    boosted,
    cached,
    cycle,
    disk,
    flushing,
    host,
    present,
    seen,
    state,
    volume,
)


def folded(before: Cycle, view: object, sample: Sample | None = None, phase: Phase = Phase.BOOSTING) -> Cycle:
    state = AgentState(phase=phase, cycle=before, recovered=True)
    seen = Observation(now=NOW, wall=NOW, host=host(view, disk()), sample=sample)  # type: ignore[arg-type]
    return present(rated(fold(state, seen, POLICY), seen).cycle)


@pytest.mark.parametrize(
    ("before", "now", "written"),
    [(100, 130, 30), (100, 7, 7), (None, None, 0)],
    ids=["not what was counted before the cycle", "a counter that starts again after a reboot", "no counter"],
)
def test_what_is_written_through_is_counted_by_cycle(before: int | None, now: int | None, written: int) -> None:
    attaching = folded(cycle(), backing(overflow_bytes=before), phase=Phase.ATTACHING)
    assert folded(attaching, cached(overflow_bytes=now)).use.written_through_bytes == written


@pytest.mark.parametrize(
    ("available", "app_mb_s", "pressed"),
    [(31, 100, 30 * MB), (60, 100, 0), (20, 0, 0)],
    ids=["nearly full", "room enough", "the application rests"],
)
def test_what_is_flushed_while_the_cache_is_nearly_full_was_missing(
    available: int, app_mb_s: float, pressed: int
) -> None:
    seen = Sample(NOW, 2.0, Rates(0, app_mb_s), backing=Rates(0, 15), cache=Rates(15, app_mb_s))
    after = folded(boosted(), cached(available_percent=available, cutoff_percent=70), seen)
    assert after.use.forced_writeback_bytes == pressed


def rated(state: AgentState, seen: Observation, policy: Policy = POLICY) -> AgentState:
    memory, wish = review(state.memory, situation_of(state, seen, policy))
    return with_wish(state, memory, seen, wish)


def test_the_writeback_rate_follows_the_last_sample() -> None:
    state = AgentState(phase=Phase.BOOSTING, cycle=cycle(), recovered=True)
    idle, busy = Sample(NOW, 1.0, Rates()), Sample(NOW, 1.0, Rates(0, 1e6), cache=Rates(0, 1e6))
    resting = rated(state, Observation(now=NOW, wall=NOW, sample=idle))
    assert resting.flush_mb_s is None
    assert rated(resting, Observation(now=NOW, wall=NOW)).flush_mb_s is None
    assert rated(replace(resting), Observation(now=NOW, wall=NOW, sample=busy)).flush_mb_s == NOTHING


def test_a_sample_from_before_the_cache_was_there_does_not_hold_back_the_flush() -> None:
    policy = replace(POLICY, drain_bandwidth_mb_s=POLICY.backing_bandwidth_mb_s)
    before = Sample(NOW, 1.0, Rates(0, 30), backing=Rates(0, 20), cache=Rates(0, 10))
    attached = cycle().stamped(boosted=NOW - 0.5)
    state = AgentState(phase=Phase.BOOSTING, cycle=attached, recovered=True)
    seen = Observation(now=NOW, wall=NOW, host=host(cached(available_percent=90)), sample=before)
    assert rated(state, seen, policy).flush_mb_s == POLICY.backing_bandwidth_mb_s
    later = replace(seen, sample=replace(before, seconds=0.4))
    assert rated(state, later, policy).flush_mb_s == NOTHING


@pytest.mark.parametrize(
    ("view", "off"),
    [
        (backing(state=CacheState.NO_CACHE), True),
        (backing(state=CacheState.CLEAN, running=False), False),
        (backing(state=CacheState.INCONSISTENT), False),
    ],
)
def test_a_cache_is_off_only_when_the_device_no_longer_needs_it(view: BackingView, off: bool) -> None:
    """A device that is seen before its cache, at a boot, misses it."""
    boosted = cycle().stamped(boosted=NOW - 50, detaching=NOW - 9)
    state = AgentState(phase=Phase.DETACHING, cycle=boosted, recovered=True)
    after = present(fold(state, Observation(now=NOW, wall=NOW, host=host(view)), POLICY).cycle)
    assert (after.times.detached is not None) is off


def test_a_volume_that_is_being_made_is_polled_when_the_last_one_was_ready() -> None:
    made = cycle(volume=volume(VolumeState.CREATING), times=Timestamps(created=NOW), cache_set=None)
    state = AgentState(phase=Phase.ATTACHING, cycle=made, recovered=True, create_s=3.0)
    bought = Outcome(DescribeVolume(VOLUME_ID), OutcomeKind.DONE, volume(VolumeState.CREATING))
    waits = []
    for late_s in (-2.5, 0.0, 5.0):
        now = NOW + 3.0 + late_s
        after = present(fold(state, Observation(now=now, wall=WALL, outcomes=(bought,), jitter=0.5), POLICY).cycle)
        waits.append(after.backoff_of("DescribeVolume").retry_at - now)
    assert waits == pytest.approx([2.5 - SOON_S, CLOSE_POLL_S, LATE_SHARE * (5.0 + SOON_S)])


@pytest.mark.parametrize(("unready_s", "usual_s", "learned_s"), [(1.8, 3.0, 1.9), (3.8, 3.0, 3.75), (None, 3.0, 1.5)])
def test_how_long_a_volume_takes_is_learned_from_the_polls_around_its_end(
    unready_s: float | None, usual_s: float, learned_s: float
) -> None:
    """One that was ready at its first look may have been so for long: the next one is looked at earlier."""
    ready_s = 2.0 if unready_s is None else unready_s + 0.2
    made = cycle(times=Timestamps(created=NOW), unready_at=None if unready_s is None else NOW + unready_s)
    state = AgentState(phase=Phase.ATTACHING, cycle=made, recovered=True, create_s=usual_s)
    shown = Outcome(DescribeVolume(VOLUME_ID), OutcomeKind.DONE, volume(VolumeState.AVAILABLE))
    after = fold(state, Observation(now=NOW + ready_s, wall=WALL, outcomes=(shown,)), POLICY)
    assert after.create_s == pytest.approx(learned_s)
    again = fold(after, Observation(now=NOW + 9, wall=WALL, outcomes=(shown,)), POLICY)
    assert again.create_s == after.create_s


def test_when_the_cache_was_last_seen_goes_with_what_was_dirty_on_it() -> None:
    after = folded(cycle(), cached())
    assert (after.dirty_bytes, after.dirty_boot) == (cached().dirty_bytes, "boot")
    assert folded(cycle(), backing()).dirty_boot == ""


@pytest.mark.parametrize("jump_s", [0.0, 7200.0, -7200.0])
def test_a_bill_is_as_long_as_the_volume_lived_whatever_is_done_to_the_time_of_day(jump_s: float) -> None:
    decided = replace(cycle(), started_at=NOW, started_wall=WALL, opened_wall=None, closed_wall=None)
    volume = present(replace(decided.volume, created_wall=WALL + 2.0) if decided.volume else None)
    adopted = adopt(decided, volume, Observation(now=NOW + 3.0, wall=WALL + 3.0))
    gone = Outcome(DeleteVolume(volume.id, volume.serial), OutcomeKind.DONE)
    end = Observation(now=NOW + 102.0, wall=WALL + 102.0 + jump_s, outcomes=(gone,))
    after = present(fold(AgentState(Phase.DETACHING, adopted, recovered=True), end, POLICY).cycle)
    assert after.closed_wall == present(after.opened_wall) + 100.0


@pytest.mark.parametrize(
    ("shown", "is_open"), [(VolumeState.AVAILABLE, True), (VolumeState.DELETING, False), (VolumeState.GONE, False)]
)
def test_a_volume_that_shows_after_its_deletion_is_billed_on(shown: VolumeState, is_open: bool) -> None:
    """A cloud that does not show a volume yet answers its deletion as if it were gone."""
    deleted = cycle(opened_wall=WALL).bill_closed(NOW).stamped(deleted=NOW)
    seen = Outcome(DescribeVolume(VOLUME_ID), OutcomeKind.DONE, volume(shown))
    look = Observation(now=NOW + 5.0, wall=WALL + 5.0, outcomes=(seen,))
    after = present(fold(AgentState(Phase.DETACHING, deleted, recovered=True), look, POLICY).cycle)
    assert (after.closed_wall is None, after.times.deleted is None) == (is_open, is_open)


@pytest.mark.parametrize("created_wall", [WALL - 86_400.0, WALL + 86_400.0])
def test_a_cloud_whose_clock_contradicts_ours_is_billed_from_the_decision(created_wall: float) -> None:
    decided = replace(cycle(), started_at=NOW, started_wall=WALL, opened_wall=None)
    bought = replace(volume(), created_wall=created_wall)
    adopted = adopt(decided, bought, Observation(NOW + 3.0, WALL + 3.0))
    assert adopted.opened_wall == WALL


def test_the_moment_of_the_bypass_is_remembered() -> None:
    of = present(
        decide(flushing(), seen(host(at_full_speed(cache_mode=CacheMode.NONE), FORMATTED)), POLICY).state.cycle
    )
    assert of.times.bypassed == NOW


def test_a_flush_that_is_found_after_a_start_has_its_time_from_then_on() -> None:
    lost = replace(flushing(), phase=Phase.FLUSHING, recovered=False, cycle=cycle(times=Timestamps(boosted=NOW - 60)))
    of = present(decide(lost, seen(host(at_full_speed(), FORMATTED)), POLICY).state.cycle)
    assert (of.times.quiet, of.flush_started_dirty_bytes) == (NOW, MUCH)


def test_it_is_remembered_until_the_superblock_names_another_or_none() -> None:
    of = fold(state(Phase.BOOSTING, boosted()), seen(host(FAILED_CLEAN)), POLICY)
    assert of.failed_clean_set == SET
    assert fold(of, seen(host(WAITS_FOR_CLEAN)), POLICY).failed_clean_set == SET
    assert fold(of, seen(host(cached())), POLICY).failed_clean_set == SET
    assert fold(of, seen(host(backing())), POLICY).failed_clean_set == ""
    assert fold(of, seen(host(cached(cache_set=OTHER_SET))), POLICY).failed_clean_set == ""
    started = fold(of, seen(host(backing(state=CacheState.INCONSISTENT))), POLICY)
    assert (started.failed_clean_set, started.is_stale_accepted) == ("", True)


def test_while_the_kernel_is_still_attaching_no_set_has_failed_clean() -> None:
    of = state(Phase.ATTACHING, cycle(times=Timestamps()))
    assert fold(of, seen(host(FAILED_CLEAN)), POLICY).failed_clean_set == ""
    assert (
        fold(state(Phase.DETACHING, cycle(times=Timestamps())), seen(host(FAILED_CLEAN)), POLICY).failed_clean_set
        == SET
    )


def test_a_cache_that_is_there_again_is_attached_again() -> None:
    gone = replace(boosted(), times=replace(BOOSTED, detached=NOW - 2, durable=NOW - 1))
    assert not gone.may_be_attached
    after = present(fold(state(Phase.DETACHING, gone), seen(host(cached())), POLICY).cycle)
    assert (after.may_be_attached, after.needs_sync) == (True, True)


def test_an_idle_agent_asks_for_a_list_again_when_the_last_one_is_old() -> None:
    view = host(backing())
    done = Outcome(ListVolumes(), OutcomeKind.DONE, ())
    listed = present(decide(replace(state(Phase.IDLE), listed=None), seen(view, outcomes=(done,)), POLICY).state.listed)
    assert listed.at == NOW
    assert 0.75 * POLICY.reconcile_interval_s <= listed.again_at - NOW <= 1.25 * POLICY.reconcile_interval_s
    for again_at, actions in ((NOW + 1, ()), (NOW, (ListVolumes(),))):
        assert decide(state(Phase.IDLE, listed=Listed(NOW - 9, again_at)), seen(view), POLICY).actions == actions
