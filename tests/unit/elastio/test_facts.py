"""What was seen, folded into the state."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elastio.core.actions import DeleteVolume, DescribeVolume, Outcome, OutcomeKind
from elastio.core.cycle import Cycle, Timestamps
from elastio.core.governor import NOTHING
from elastio.core.model import BackingView, CacheState, Rates, Sample, VolumeState
from elastio.core.observation import Observation
from elastio.core.polling import CLOSE_POLL_S, LATE_SHARE, SOON_S
from elastio.core.state import AgentState, LoadWatch, Phase
from elastio.core.update import adopt, fold

from .values import HIGH, NOW, POLICY, VOLUME_ID, WALL, backing, cached, cycle, disk, host, volume

MB = 10**6


def folded(before: Cycle, view: object, sample: Sample | None = None, phase: Phase = Phase.BOOSTING) -> Cycle:
    state = AgentState(phase=phase, cycle=before, recovered=True)
    seen = Observation(now=NOW, wall=NOW, host=host(view, disk()), sample=sample)  # type: ignore[arg-type]
    after = fold(state, seen, POLICY).cycle
    assert after is not None
    return after


def test_what_overflowed_before_the_cycle_is_not_its_own() -> None:
    attaching = folded(cycle(), backing(overflow_bytes=100), phase=Phase.ATTACHING)
    boosted = folded(attaching, cached(overflow_bytes=130))
    assert boosted.written_through_bytes == 30


def test_a_counter_that_begins_anew_after_a_reboot_counts_from_zero() -> None:
    before = folded(cycle(), backing(overflow_bytes=100), phase=Phase.ATTACHING)
    rebooted = folded(before, cached(overflow_bytes=7))
    assert (rebooted.overflow_base, rebooted.written_through_bytes) == (0, 7)


def test_a_kernel_that_cannot_tell_says_nothing_of_overflow() -> None:
    assert folded(cycle(), cached(overflow_bytes=None)).written_through_bytes == 0


@pytest.mark.parametrize(("available", "pressed"), [(31, 30 * MB), (60, 0)], ids=["nearly full", "room enough"])
def test_what_is_flushed_while_the_cache_is_nearly_full_was_missing(available: int, pressed: int) -> None:
    busy = Sample(NOW, 2.0, Rates(0, 100), backing=Rates(0, 15), cache=Rates(15, 100))
    after = folded(cycle(), cached(available_percent=available, cutoff_percent=70), busy)
    assert after.forced_writeback_bytes == pressed


def test_what_is_flushed_while_the_application_rests_was_not_missing() -> None:
    idle = Sample(NOW, 2.0, Rates(0, 0), backing=Rates(0, 15), cache=Rates(15, 0))
    full = cached(available_percent=20, cutoff_percent=70)
    assert folded(cycle(), full, idle).forced_writeback_bytes == 0


def test_the_pace_of_flushing_follows_the_last_sample() -> None:
    state = AgentState(phase=Phase.BOOSTING, cycle=cycle(), recovered=True)
    idle, busy = Sample(NOW, 1.0, Rates()), Sample(NOW, 1.0, Rates(0, 1e6), cache=Rates(0, 1e6))
    resting = fold(state, Observation(now=NOW, wall=NOW, sample=idle), POLICY)
    assert resting.flush_mb_s is None
    assert fold(resting, Observation(now=NOW, wall=NOW), POLICY).flush_mb_s is None
    assert fold(replace(resting), Observation(now=NOW, wall=NOW, sample=busy), POLICY).flush_mb_s == NOTHING


def test_a_sample_from_before_the_cache_was_there_does_not_hold_back_the_flush() -> None:
    policy = replace(POLICY, drain_bandwidth_mb_s=POLICY.backing_bandwidth_mb_s)
    before = Sample(NOW, 1.0, Rates(0, 30), backing=Rates(0, 20), cache=Rates(0, 10))
    attached = cycle().stamped(boosted=NOW - 0.5)
    state = AgentState(phase=Phase.BOOSTING, cycle=attached, recovered=True)
    seen = Observation(now=NOW, wall=NOW, host=host(cached(available_percent=90)), sample=before)
    assert fold(state, seen, policy).flush_mb_s == POLICY.backing_bandwidth_mb_s
    later = replace(seen, sample=replace(before, seconds=0.4))
    assert fold(state, later, policy).flush_mb_s == NOTHING


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
    after = fold(state, Observation(now=NOW, wall=NOW, host=host(view)), POLICY).cycle
    assert after is not None
    assert (after.times.detached is not None) is off


def test_a_volume_that_is_being_made_is_looked_at_when_the_last_one_was_ready() -> None:
    made = cycle(volume=volume(VolumeState.CREATING), times=Timestamps(created=NOW), cache_set=None)
    state = AgentState(phase=Phase.ATTACHING, cycle=made, recovered=True, create_s=3.0)
    bought = Outcome(DescribeVolume(VOLUME_ID), OutcomeKind.DONE, volume(VolumeState.CREATING))
    waits = []
    for late_s in (-2.5, 0.0, 5.0):
        now = NOW + 3.0 + late_s
        after = fold(state, Observation(now=now, wall=WALL, outcomes=(bought,), jitter=0.5), POLICY).cycle
        assert after is not None
        waits.append(after.backoff_of("DescribeVolume").retry_at - now)
    assert waits == pytest.approx([2.5 - SOON_S, CLOSE_POLL_S, LATE_SHARE * (5.0 + SOON_S)])


@pytest.mark.parametrize(("unready_s", "usual_s", "learned_s"), [(1.8, 3.0, 1.9), (3.8, 3.0, 3.75), (None, 3.0, 1.5)])
def test_how_long_a_volume_takes_is_learned_from_the_looks_around_its_end(
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


# --- the bill ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("jump_s", [0.0, 7200.0, -7200.0])
def test_a_bill_is_as_long_as_the_volume_lived_whatever_is_done_to_the_time_of_day(jump_s: float) -> None:
    decided = replace(cycle(), started_at=NOW, started_wall=WALL, opened_wall=None, closed_wall=None)
    volume = replace(decided.volume, created_wall=WALL + 2.0) if decided.volume else None
    assert volume is not None
    adopted = adopt(decided, volume, Observation(now=NOW + 3.0, wall=WALL + 3.0))
    gone = Outcome(DeleteVolume(volume.id, volume.serial), OutcomeKind.DONE)
    end = Observation(now=NOW + 102.0, wall=WALL + 102.0 + jump_s, outcomes=(gone,))
    after = fold(AgentState(Phase.DETACHING, adopted, recovered=True), end, POLICY).cycle
    assert after is not None
    assert after.opened_wall is not None
    assert after.closed_wall == after.opened_wall + 100.0


@pytest.mark.parametrize("created_wall", [WALL - 86_400.0, WALL + 86_400.0])
def test_a_cloud_whose_clock_contradicts_ours_is_billed_from_the_decision(created_wall: float) -> None:
    decided = replace(cycle(), started_at=NOW, started_wall=WALL, opened_wall=None)
    assert decided.volume is not None
    adopted = adopt(decided, replace(decided.volume, created_wall=created_wall), Observation(NOW + 3.0, WALL + 3.0))
    assert adopted.opened_wall == WALL


@pytest.mark.parametrize(
    ("view", "load"), [(None, LoadWatch()), (backing(running=False), LoadWatch()), (backing(), HIGH)]
)
def test_a_device_that_does_not_run_has_no_load(view: BackingView | None, load: LoadWatch) -> None:
    before = AgentState(phase=Phase.FAULTED, load=HIGH)
    assert fold(before, Observation(now=NOW, wall=WALL, host=host(view)), POLICY).load == load
