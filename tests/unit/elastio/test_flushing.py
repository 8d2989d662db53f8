"""Phase 2: how long it can be taken back, and when writes begin to bypass the cache for good."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from elastio.core.actions import BypassCache, EnterPhase1, EnterPhase2, LimitWrites, WakeWriteback
from elastio.core.cycle import Timestamps
from elastio.core.machine import decide
from elastio.core.model import BackingView, CacheMode, CacheState, Request, RequestKind
from elastio.core.planner import LAST_S, LIMITED, OVERDUE, POLL_S, SLACK_S
from elastio.core.state import AgentState, Inhibition, InhibitionReason, Phase
from elastio.units import MB

from .values import HIGH, NOW, POLICY, QUIET, SET, busy_sample, cached, cycle, disk, host, seen, state

DISK = disk(cache_set=SET, superblock=SET, held=True)
LITTLE = int(LAST_S * POLICY.backing_bandwidth_mb_s * MB)
MUCH = 10 * LITTLE


def flushing(**changes: Any) -> AgentState:
    """Phase 2 began five seconds ago with much dirty data, and nobody has asked for it."""
    marks = Timestamps(boosted=NOW - 60, quiet=NOW - 5)
    of = cycle(times=marks, flush_started_dirty_bytes=MUCH, **changes)
    return state(Phase.FLUSHING, of, load=QUIET)


def at_full_speed(**changes: Any) -> BackingView:
    return cached(**{"flush_full_speed": True, "dirty_bytes": MUCH, **changes})


def actions(before: AgentState, view: BackingView) -> tuple[object, ...]:
    return decide(before, seen(host(view, DISK)), POLICY).actions


def test_the_flush_begins_with_writes_still_going_to_the_cache() -> None:
    assert actions(flushing(), at_full_speed(flush_full_speed=False)) == (EnterPhase2(),)
    assert actions(flushing(), at_full_speed()) == ()


def test_writes_begin_to_bypass_the_cache_when_hardly_anything_is_left() -> None:
    assert actions(flushing(), at_full_speed(dirty_bytes=LITTLE + 1)) == ()
    assert actions(flushing(), at_full_speed(dirty_bytes=LITTLE)) == (BypassCache(),)
    assert actions(flushing(), at_full_speed(dirty_bytes=LITTLE, cache_mode=CacheMode.NONE)) == ()


def test_what_only_the_index_calls_dirty_after_a_power_cut_is_flushed_before_writes_bypass_it() -> None:
    """The kernel's writeback thread sees no work there, and waits for a write that may never come."""
    left = at_full_speed(state=CacheState.CLEAN)
    assert actions(flushing(), left) == (WakeWriteback(),)
    assert actions(flushing(), replace(left, dirty_bytes=4096)) == (WakeWriteback(),)
    assert actions(flushing(), replace(left, dirty_bytes=0)) == (BypassCache(),)
    bypassed = replace(left, cache_mode=CacheMode.NONE)
    assert decide(flushing(), seen(host(bypassed, DISK)), POLICY).state.phase is Phase.DETACHING


def test_the_next_look_is_when_little_will_be_left() -> None:
    for dirty, wait_s in ((MUCH, 1.0), (int(1.5 * LITTLE), 0.5 * LAST_S), (LITTLE + 1, POLL_S)):
        found = decide(flushing(), seen(host(at_full_speed(dirty_bytes=dirty), DISK)), POLICY)
        assert found.wake_at == pytest.approx(NOW + wait_s)


HELD = Inhibition(InhibitionReason.SNAPSHOT, NOW + 600)
SLOWED = LimitWrites(LIMITED * POLICY.backing_bandwidth_mb_s)


@pytest.mark.parametrize(
    "before", [flushing(forced=True), replace(flushing(), paused=True), replace(flushing(), inhibition=HELD)]
)
def test_applications_are_slowed_down_where_somebody_wants_the_cache_away(before: AgentState) -> None:
    assert actions(before, at_full_speed()) == (SLOWED,)
    assert actions(before, at_full_speed(write_limit_mb_s=SLOWED.mb_s)) == ()
    assert actions(before, at_full_speed(dirty_bytes=LITTLE)) == (BypassCache(),)


def test_applications_that_keep_a_cache_from_becoming_clean_are_slowed_down() -> None:
    allowed_s = OVERDUE * MUCH / (POLICY.backing_bandwidth_mb_s * MB) + SLACK_S
    for quiet, expected in ((NOW - allowed_s + 1, ()), (NOW - allowed_s - 1, (SLOWED,))):
        before = flushing()
        assert before.cycle is not None
        late = replace(before.cycle, times=replace(before.cycle.times, quiet=quiet))
        assert actions(replace(before, cycle=late), at_full_speed()) == expected


@pytest.mark.parametrize("phase", [Phase.BOOSTING, Phase.IDLE])
def test_nobody_is_slowed_down_in_any_other_phase(phase: Phase) -> None:
    of = None if phase is Phase.IDLE else cycle(times=Timestamps(boosted=NOW - 60))
    view = at_full_speed(write_limit_mb_s=10.0, **({} if of else {"cache_set": None, "state": CacheState.NO_CACHE}))
    before = state(phase, of, load=HIGH, paused=phase is Phase.IDLE)
    found = decide(before, seen(host(view, DISK)), POLICY)
    assert found.actions == (LimitWrites(None),)
    assert found.state.phase is phase


@pytest.mark.parametrize("mode", [CacheMode.WRITETHROUGH, CacheMode.WRITEAROUND])
def test_a_mode_in_which_reads_could_keep_what_is_old_is_left_for_none_once_clean(mode: CacheMode) -> None:
    assert actions(flushing(), at_full_speed(cache_mode=mode)) == ()
    assert actions(flushing(), at_full_speed(cache_mode=mode, dirty_bytes=0)) == (BypassCache(),)


@pytest.mark.parametrize("asked", [(), (Request(RequestKind.BOOST),)])
def test_a_load_that_returns_is_not_led_back_into_a_cache_that_writes_bypass(asked: tuple[Request, ...]) -> None:
    loaded = replace(flushing(), load=HIGH)
    for mode, phase in ((CacheMode.WRITEBACK, Phase.BOOSTING), (CacheMode.NONE, Phase.FLUSHING)):
        view = host(at_full_speed(cache_mode=mode), DISK)
        found = decide(loaded, seen(view, sample=busy_sample(), requests=asked), POLICY)
        assert found.state.phase is phase
        assert any(isinstance(a, EnterPhase1) for a in found.actions) is (phase is Phase.BOOSTING)


@pytest.mark.parametrize("mode", [CacheMode.NONE, CacheMode.WRITETHROUGH, CacheMode.WRITEAROUND])
def test_a_cache_that_somebody_else_made_writes_bypass_is_flushed_even_under_load(mode: CacheMode) -> None:
    boosting = state(Phase.BOOSTING, cycle(times=Timestamps(boosted=NOW - 60)), load=HIGH)
    found = decide(boosting, seen(host(cached(cache_mode=mode), DISK), sample=busy_sample()), POLICY)
    assert found.state.phase is Phase.FLUSHING
    assert "bypass the cache" in found.reason


def test_the_moment_of_the_bypass_is_remembered() -> None:
    of = decide(flushing(), seen(host(at_full_speed(cache_mode=CacheMode.NONE), DISK)), POLICY).state.cycle
    assert of is not None
    assert of.times.bypassed == NOW


def test_a_flush_that_is_found_after_a_start_has_its_time_from_then_on() -> None:
    lost = replace(flushing(), phase=Phase.FLUSHING, recovered=False, cycle=cycle(times=Timestamps(boosted=NOW - 60)))
    of = decide(lost, seen(host(at_full_speed(), DISK)), POLICY).state.cycle
    assert of is not None
    assert (of.times.quiet, of.flush_started_dirty_bytes) == (NOW, MUCH)
