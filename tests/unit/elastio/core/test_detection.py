"""Which event, or danger, an observation shows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elastio.agent.status_builder import RuntimeInfo, status_of
from elastio.core.actions import EnterPhase1, StartWithoutCache, Worker
from elastio.core.cycle import Cycle, FailureKind, Timestamps
from elastio.core.detection import Event, danger, in_attaching, in_boosting, in_flushing
from elastio.core.machine import decide
from elastio.core.model import CacheMode, CacheSetUuid, CacheState, HostView, Request, RequestKind, VolumeState
from elastio.core.planner import next_action
from elastio.core.state import AgentState, FaultKind, Phase
from elastio.core.update import fold
from tests.values import (
    BOOSTED,
    FAILED_CLEAN,
    FORMATTED,
    HIGH,
    NOW,
    OTHER_SET,
    POLICY,
    RELEASED,
    SET,
    UNBOUGHT,
    VOLUME_ID,
    WAITS_FOR_CLEAN,
    asked,
    at_full_speed,
    backing,
    boosted,
    busy_sample,
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

INCONSISTENT = host(backing(state=CacheState.INCONSISTENT))
BOOSTING = state(Phase.BOOSTING, cycle(times=BOOSTED))
ELSEWHERE = state(Phase.DETACHING, cycle(times=RELEASED, volume=volume(VolumeState.ELSEWHERE)))
FOREIGN = host(cached(cache_set=OTHER_SET), disk(cache_set=OTHER_SET, superblock=OTHER_SET))
DUPLICATES = replace(host(None), duplicates=("vdb", "vdd"))

# The observation, the fault that it is, and whether an operator's `resume` is refused.
DANGERS: dict[str, tuple[AgentState, HostView, FaultKind, bool]] = {
    "inconsistent": (state(Phase.IDLE), INCONSISTENT, FaultKind.INCONSISTENT, False),
    "inconsistent, and a volume is left": (BOOSTING, INCONSISTENT, FaultKind.INCONSISTENT, True),
    "a cache of somebody else": (state(Phase.IDLE), FOREIGN, FaultKind.FOREIGN_CACHE, True),
    "a volume on another machine": (ELSEWHERE, host(backing()), FaultKind.ATTACHED_ELSEWHERE, False),
    "two devices with one UUID": (BOOSTING, DUPLICATES, FaultKind.DUPLICATE_DEVICE, True),
    "a device that the kernel dropped": (BOOSTING, host(None), FaultKind.CACHE_FAILED, True),
}


@pytest.mark.parametrize("danger", DANGERS)
def test_a_danger_is_left_to_an_operator(danger: str) -> None:
    before, view, kind, is_refused = DANGERS[danger]
    first = decide(before, seen(view), POLICY)
    assert (first.state.phase, present(first.state.fault).kind, first.actions) == (Phase.FAULTED, kind, ())
    assert decide(first.state, seen(view), POLICY).state.phase is Phase.FAULTED
    resumed = decide(first.state, seen(view, requests=asked(RequestKind.RESUME)), POLICY)
    assert resumed.answers[0].accepted is not is_refused
    assert (resumed.state.phase is Phase.FAULTED) is is_refused


def test_a_purchase_under_way_is_waited_for_before_anything_is_called_released() -> None:
    before = state(Phase.DETACHING, UNBOUGHT)
    waiting = decide(before, seen(host(backing()), busy=frozenset({Worker.CLOUD})), POLICY)
    assert waiting.state.phase is Phase.DETACHING
    assert decide(before, seen(host(backing())), POLICY).state.phase is Phase.IDLE


@pytest.mark.parametrize("asked", [(), (Request(RequestKind.BOOST),)])
def test_a_load_that_returns_is_not_led_back_into_a_cache_that_writes_bypass(asked: tuple[Request, ...]) -> None:
    loaded = replace(flushing(), load=HIGH)
    for mode, phase in ((CacheMode.WRITEBACK, Phase.BOOSTING), (CacheMode.NONE, Phase.FLUSHING)):
        view = host(at_full_speed(cache_mode=mode), FORMATTED)
        found = decide(loaded, seen(view, sample=busy_sample(), requests=asked), POLICY)
        assert found.state.phase is phase
        assert any(isinstance(a, EnterPhase1) for a in found.actions) is (phase is Phase.BOOSTING)


@pytest.mark.parametrize("mode", [CacheMode.NONE, CacheMode.WRITETHROUGH, CacheMode.WRITEAROUND])
def test_a_cache_that_somebody_else_made_writes_bypass_is_flushed_even_under_load(mode: CacheMode) -> None:
    boosting = state(Phase.BOOSTING, cycle(times=Timestamps(boosted=NOW - 60)), load=HIGH)
    found = decide(boosting, seen(host(cached(cache_mode=mode), FORMATTED), sample=busy_sample()), POLICY)
    assert found.state.phase is Phase.FLUSHING


@pytest.mark.parametrize("phase", [Phase.BOOSTING, Phase.FLUSHING])
def test_a_device_that_the_kernel_dropped_before_the_first_scan_is_a_fault(phase: Phase) -> None:
    dropped_host = replace(host(None), dead_bcache_device="bcache0")
    after = decide(state(phase, boosted()), seen(dropped_host), POLICY).state
    assert after.phase is Phase.FAULTED
    assert VOLUME_ID in present(after.fault).text
    missing = present(status_of(after, seen(dropped_host), POLICY, RuntimeInfo("0.1.0", 0.0)).missing)
    assert (missing.volume_id, missing.adaptive, missing.waits_for_umount) == (VOLUME_ID, "bcache0", True)


def test_a_device_that_is_dropped_without_a_cache_of_ours_is_not_a_fault() -> None:
    detached = cycle(times=replace(BOOSTED, detached=NOW))
    for of in (None, detached):
        phase = Phase.IDLE if of is None else Phase.DETACHING
        assert decide(state(phase, of), seen(host(None)), POLICY).state.phase is phase


@pytest.mark.parametrize("phase", [Phase.BOOSTING, Phase.FLUSHING])
def test_it_is_the_end_of_the_boost_and_no_danger(phase: Phase) -> None:
    of = fold(state(phase, boosted()), seen(host(FAILED_CLEAN)), POLICY)
    assert danger(of, seen(host(FAILED_CLEAN))) is None
    found = present((in_boosting if phase is Phase.BOOSTING else in_flushing)(of, seen(host(FAILED_CLEAN)), POLICY))
    assert found.event is Event.CACHE_LEFT


@pytest.mark.parametrize("of", [cycle(times=Timestamps()), cycle(times=Timestamps(installing=NOW - 1), cache_set=None)])
def test_a_disk_that_went_after_it_was_formatted_is_not_attached_again(of: Cycle) -> None:
    """Also where the answer is lost, and the kernel has gone on without the cache before anybody looked."""
    found = present(in_attaching(state(Phase.ATTACHING, of), seen(host(FAILED_CLEAN)), POLICY))
    assert (found.event, found.failure) == (Event.BOOST_ABANDONED, FailureKind.LOST)


@pytest.mark.parametrize("named", [OTHER_SET, None])
def test_a_device_that_waits_for_another_set_is_not_started(named: CacheSetUuid | None) -> None:
    waiting = replace(WAITS_FOR_CLEAN, superblock_set=named)
    of = state(Phase.IDLE, failed_clean_set=SET)
    assert not isinstance(next_action(of, seen(host(waiting)), POLICY).action, StartWithoutCache)
    assert danger(of, seen(host(waiting))) is not None


def test_a_boost_that_was_given_up_is_not_missed_once_the_kernel_shows_no_cache() -> None:
    of = fold(state(Phase.DETACHING, cycle(times=Timestamps(registered=NOW - 5))), seen(host(backing())), POLICY)
    assert not present(of.cycle).may_be_attached
    assert danger(of, seen(host(None))) is None


def test_one_that_died_before_it_was_seen_attached_is_missed() -> None:
    registered = cycle(times=Timestamps(registered=NOW - 2))
    found = present(danger(state(Phase.ATTACHING, registered), seen(host(None))))
    assert found.fault is FaultKind.CACHE_FAILED
    never = cycle(times=Timestamps(created=NOW - 2))
    assert danger(state(Phase.ATTACHING, never), seen(host(None))) is None
