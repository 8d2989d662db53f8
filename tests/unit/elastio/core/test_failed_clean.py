"""A cache set that failed while it was clean: the device runs on without it, and it must not come back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from elastio.agent.status_builder import RuntimeInfo, status_of
from elastio.core import inhibition
from elastio.core.actions import AttachVolume, EnterPhase1, StartWithoutCache
from elastio.core.cycle import Failure, FailureKind
from elastio.core.detection import Event, danger, in_boosting, in_flushing
from elastio.core.invariants import check
from elastio.core.machine import decide
from elastio.core.model import CacheState, HostView, Request, RequestKind, VolumeState
from elastio.core.observation import Decision
from elastio.core.planner import must_end, next_action
from elastio.core.requests import quiesce
from elastio.core.state import Phase
from elastio.errors import InvariantError
from elastio.units import GIB
from tests.values import (
    BOOSTED,
    FAILED_CLEAN,
    FORMATTED,
    HIGH,
    NOW,
    POLICY,
    SET,
    VOLUME_ID,
    WAITS_FOR_CLEAN,
    backing,
    boosted,
    busy_sample,
    cached,
    drained,
    host,
    present,
    seen,
    state,
    volume,
)


@pytest.mark.parametrize(
    ("view", "failed", "starts"),
    [
        (WAITS_FOR_CLEAN, SET, True),
        (WAITS_FOR_CLEAN, "", False),
        (backing(state=CacheState.DIRTY, running=False), SET, False),
        (FAILED_CLEAN, SET, False),
    ],
)
def test_it_starts_without_only_what_was_seen_to_need_no_cache(view: Any, failed: str, starts: bool) -> None:
    of = state(Phase.IDLE, failed_clean_set=failed)
    start = StartWithoutCache(failed)
    assert (next_action(of, seen(host(view)), POLICY).action == start) is starts
    assert (danger(of, seen(host(view))) is None) is (starts or view is FAILED_CLEAN)
    if starts:
        check(Decision(of, (start,)), seen(host(view)), POLICY)
    else:
        with pytest.raises(InvariantError):
            check(Decision(of, (start,)), seen(host(view)), POLICY)


def test_no_copy_is_made_of_a_device_that_would_wait_for_it() -> None:
    of = state(Phase.IDLE, failed_clean_set=SET)
    _, answer = quiesce(of, Request(RequestKind.QUIESCE, seconds=60), seen(host(FAILED_CLEAN)))
    assert not answer.accepted
    assert not inhibition.is_safe_to_copy(None, host(FAILED_CLEAN))


def test_nothing_is_shown_as_missing_while_it_starts() -> None:
    shown = [
        status_of(of, seen(host(WAITS_FOR_CLEAN)), POLICY, RuntimeInfo("0.1.0", 0.0))
        for of in (state(Phase.IDLE, failed_clean_set=SET), state(Phase.IDLE))
    ]
    assert [status.missing is None for status in shown] == [True, False]


def test_a_cache_that_was_clean_in_name_only_is_kept() -> None:
    """After a power cut: the superblock that was written last says clean, the index does not."""
    clean_in_name = host(drained(dirty_bytes=64 * 2**20), FORMATTED)
    before = decide(state(Phase.DETACHING, boosted()), seen(clean_in_name), POLICY).state
    decision = decide(before, seen(host(FAILED_CLEAN)), POLICY)
    assert decision.state.phase is Phase.FAULTED
    assert decision.actions == ()
    back = host(cached(), FORMATTED)
    stays = decide(decision.state, seen(back), POLICY)
    assert (stays.state.phase, stays.actions) == (Phase.FAULTED, ())
    assert decide(replace(decision.state, recovered=False), seen(back), POLICY).state.phase is Phase.FAULTED
    ordered = decide(decision.state, seen(back, requests=(Request(RequestKind.RESUME),)), POLICY).state
    assert (ordered.phase, ordered.cycle and ordered.cycle.forced) == (Phase.FLUSHING, True)
    restarted = replace(before, recovered=False, phase=Phase.DETACHING)
    assert decide(restarted, seen(host(FAILED_CLEAN)), POLICY).state.phase is Phase.FAULTED


def test_a_device_that_may_lack_data_is_not_started_without_its_cache() -> None:
    booted = HostView(NOW, "another boot", FAILED_CLEAN)
    of = replace(state(Phase.BOOSTING, replace(boosted(), dirty_boot="boot"), recovered=False), boot_id="boot")
    faulted = decide(of, seen(booted), POLICY).state
    assert faulted.phase is Phase.FAULTED
    later = decide(faulted, seen(booted), POLICY).state
    assert not isinstance(next_action(later, seen(host(WAITS_FOR_CLEAN)), POLICY).action, StartWithoutCache)
    with pytest.raises(InvariantError):
        check(Decision(later, (StartWithoutCache(SET),)), seen(host(WAITS_FOR_CLEAN)), POLICY)


def test_nothing_is_boosted_with_it() -> None:
    boosting, flushing = (state(phase, boosted(), failed_clean_set=SET) for phase in (Phase.BOOSTING, Phase.FLUSHING))
    loaded = replace(flushing, load=HIGH)
    asked = seen(host(cached()), sample=busy_sample(), requests=(Request(RequestKind.BOOST),))
    assert in_flushing(replace(loaded, failed_clean_set=""), asked, POLICY) is not None
    assert in_flushing(loaded, asked, POLICY) is None
    found = present(in_boosting(boosting, seen(host(cached())), POLICY))
    assert found.event is Event.WENT_QUIET
    assert must_end(flushing, boosted(), NOW, POLICY)
    enter = (EnterPhase1(flush_mb_s=None),)
    check(Decision(replace(boosting, failed_clean_set=""), enter), seen(host(cached())), POLICY)
    with pytest.raises(InvariantError):
        check(Decision(boosting, enter), seen(host(cached())), POLICY)


def test_one_that_took_writes_again_is_not_done_without() -> None:
    """What its superblock says of dirty data lags behind."""
    left = decide(state(Phase.BOOSTING, boosted()), seen(host(FAILED_CLEAN)), POLICY).state
    assert isinstance(next_action(left, seen(host(WAITS_FOR_CLEAN)), POLICY).action, StartWithoutCache)
    back = decide(left, seen(host(cached(), FORMATTED)), POLICY).state
    assert (back.phase, back.failed_clean_set) == (Phase.FLUSHING, SET)
    booted = decide(replace(back, recovered=False), seen(host(WAITS_FOR_CLEAN)), POLICY)
    assert booted.state.phase is Phase.FAULTED
    assert not isinstance(booted.actions[0], StartWithoutCache)


def test_a_boost_that_was_withdrawn_teaches_no_size() -> None:
    gone = replace(boosted(), moved_bytes=GIB, volume=volume(VolumeState.GONE))
    gone = replace(gone, times=replace(BOOSTED, detached=NOW - 2, durable=NOW - 1))
    for failure, updates_learned_size in ((None, True), (Failure(FailureKind.WITHDRAWN, "the load was over"), False)):
        of = state(Phase.DETACHING, replace(gone, failure=failure), learned_size_bytes=None)
        after = decide(of, seen(host(backing())), POLICY).state
        assert (after.learned_size_bytes is not None) is updates_learned_size


@pytest.mark.parametrize(("shown", "is_in_doubt"), [(CacheState.CLEAN, True), (CacheState.DIRTY, False)])
def test_the_status_tells_whether_a_missing_cache_may_be_older_than_the_device(
    shown: CacheState, is_in_doubt: bool
) -> None:
    faulted = state(Phase.FAULTED, boosted(volume=volume(VolumeState.AVAILABLE)))
    view = seen(host(backing(state=shown, running=False, superblock_set=SET)))
    missing = present(status_of(faulted, view, POLICY, RuntimeInfo("0.1.0", 0.0)).missing)
    assert missing.may_be_older is is_in_doubt
    assert (decide(faulted, view, POLICY).actions == (AttachVolume(VOLUME_ID),)) is not is_in_doubt


def test_without_a_journal_a_clean_cache_is_brought_back_by_name_alone() -> None:
    faulted = state(Phase.FAULTED, owned=(volume(VolumeState.AVAILABLE),))
    refused = decide(faulted, seen(host(WAITS_FOR_CLEAN), requests=(Request(RequestKind.RECOVER),)), POLICY)
    assert not refused.answers[0].accepted
    assert refused.state.cycle is None
    named = Request(RequestKind.RECOVER, volume_id=VOLUME_ID)
    assert decide(faulted, seen(host(WAITS_FOR_CLEAN), requests=(named,)), POLICY).actions == (AttachVolume(VOLUME_ID),)
