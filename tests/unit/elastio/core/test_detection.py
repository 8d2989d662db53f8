"""Which event, or danger, an observation shows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from elastio.agent.status_builder import RuntimeInfo, is_safe_to_copy, status_of
from elastio.core.actions import AttachVolume, EnterPhase1, StartWithoutCache, Worker, is_read
from elastio.core.cycle import Backoff, Cycle, Failure, FailureKind, Timestamps, Trigger
from elastio.core.detection import Event, danger, in_attaching, in_boosting, in_flushing
from elastio.core.invariants import check
from elastio.core.machine import decide
from elastio.core.model import CacheMode, CacheSetUuid, CacheState, HostView, Request, RequestKind, VolumeState
from elastio.core.planner import must_end, next_action
from elastio.core.requests import quiesce
from elastio.core.state import AgentState, Decision, FaultKind, Phase
from elastio.core.update import fold
from elastio.errors import InvariantError
from elastio.strategy.situation import Wish
from elastio.units import GIB
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
    changed,
    cycle,
    disk,
    drained,
    flushing,
    host,
    present,
    seen,
    state,
    volume,
)

INCONSISTENT = host(backing(state=CacheState.INCONSISTENT))
BOOSTING = state(Phase.BOOSTING, cycle(times=BOOSTED))
POLLED = {"DescribeVolume": Backoff(1)}
ELSEWHERE, UNLABELED = (
    state(Phase.DETACHING, cycle(times=RELEASED, volume=volume(of), backoffs=POLLED))
    for of in (VolumeState.ELSEWHERE, VolumeState.UNLABELED)
)
FOREIGN = host(cached(cache_set=OTHER_SET), disk(cache_set=OTHER_SET, superblock=OTHER_SET))
DUPLICATES = replace(host(None), duplicates=("vdb", "vdd"))

ACCEPTED = Request(RequestKind.RESUME, accepts_loss=True)

# The observation, the fault that it is, and whether an operator's `resume` is refused.
DANGERS: dict[str, tuple[AgentState, HostView, FaultKind, bool]] = {
    "inconsistent": (state(Phase.IDLE), INCONSISTENT, FaultKind.INCONSISTENT, False),
    "inconsistent, and a volume is left": (BOOSTING, INCONSISTENT, FaultKind.INCONSISTENT, True),
    "a cache of somebody else": (state(Phase.IDLE), FOREIGN, FaultKind.FOREIGN_CACHE, True),
    "a volume on another machine": (ELSEWHERE, host(backing()), FaultKind.ATTACHED_ELSEWHERE, False),
    "a volume without its label": (UNLABELED, host(backing()), FaultKind.UNLABELED, False),
    "two devices with one UUID": (BOOSTING, DUPLICATES, FaultKind.DUPLICATE_DEVICE, True),
    "a device that the kernel dropped": (BOOSTING, host(None), FaultKind.CACHE_FAILED, True),
}


@pytest.mark.parametrize("danger", DANGERS)
def test_a_danger_is_left_to_an_operator(danger: str) -> None:
    before, view, kind, is_refused = DANGERS[danger]
    first = decide(before, seen(view), POLICY)
    assert (first.state.phase, present(first.state.fault).kind) == (Phase.FAULTED, kind)
    assert all(is_read(action) for action in first.actions)
    assert decide(first.state, seen(view), POLICY).state.phase is Phase.FAULTED
    resumed = decide(first.state, seen(view, requests=(ACCEPTED,)), POLICY)
    assert resumed.answers[0].accepted is not is_refused
    assert (resumed.state.phase is Phase.FAULTED) is is_refused
    plain = decide(first.state, seen(view, requests=asked(RequestKind.RESUME)), POLICY)
    needs_loss = view is INCONSISTENT and not is_refused
    assert plain.answers[0].code == ("resume.accepts_loss" if needs_loss else resumed.answers[0].code)
    assert (plain.state.phase is Phase.FAULTED) is (is_refused or needs_loss)
    assert not needs_loss or plain.course.transitions == ()


@pytest.mark.parametrize("danger", [ELSEWHERE, UNLABELED])
@pytest.mark.parametrize("poll", [Backoff(), Backoff(1, error="no answer")])
def test_what_was_seen_of_a_volume_before_its_fault_is_no_danger_after_it(danger: AgentState, poll: Backoff) -> None:
    resumed = replace(danger, cycle=replace(present(danger.cycle), backoffs={"DescribeVolume": poll}))
    assert decide(resumed, seen(host(backing())), POLICY).state.phase is Phase.DETACHING


def test_a_purchase_under_way_is_waited_for_before_anything_is_called_released() -> None:
    before = state(Phase.DETACHING, UNBOUGHT)
    waiting = decide(before, seen(host(backing()), busy=frozenset({Worker.CLOUD})), POLICY)
    assert waiting.state.phase is Phase.DETACHING
    assert decide(before, seen(host(backing())), POLICY).state.phase is Phase.IDLE


@pytest.mark.parametrize("asked", [(), (Request(RequestKind.BOOST),)])
def test_a_load_that_returns_is_not_led_back_into_a_cache_that_writes_bypass(asked: tuple[Request, ...]) -> None:
    loaded = changed(flushing(), load=HIGH)
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


@pytest.mark.parametrize("of", [cycle(times=Timestamps()), cycle(times=Timestamps(installing=NOW - 1), cache_set=None)])
def test_a_disk_that_went_after_it_was_formatted_is_not_attached_again(of: Cycle) -> None:
    """Also where the answer is lost, and the kernel has gone on without the cache before anybody looked."""
    found = present(in_attaching(state(Phase.ATTACHING, of), seen(host(FAILED_CLEAN)), Wish(POLICY)))
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


# --- a cache set that failed while it was clean: the device runs on without it, and it must not come back ---------


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
    assert not is_safe_to_copy(None, host(FAILED_CLEAN))


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
    assert all(is_read(action) for action in decision.actions)
    back = host(cached(), FORMATTED)
    stays = decide(decision.state, seen(back), POLICY)
    assert stays.state.phase is Phase.FAULTED
    assert all(is_read(action) for action in stays.actions)
    assert decide(replace(decision.state, recovered=False), seen(back), POLICY).state.phase is Phase.FAULTED
    plain = decide(stays.state, seen(back, requests=asked(RequestKind.RESUME)), POLICY)
    assert (plain.answers[0].code, plain.state.phase) == ("resume.accepts_loss", Phase.FAULTED)
    ordered = decide(decision.state, seen(back, requests=(ACCEPTED,)), POLICY).state
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
    loaded = changed(flushing, load=HIGH)
    again = Wish(POLICY, again="the load is back")
    asked = seen(host(cached()), sample=busy_sample(), requests=(Request(RequestKind.BOOST),))
    assert in_flushing(replace(loaded, failed_clean_set=""), asked, again) is not None
    assert in_flushing(loaded, asked, again) is None
    found = present(in_boosting(boosting, seen(host(cached())), again))
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


def test_neither_a_boost_that_was_withdrawn_nor_an_orphan_teaches_a_size() -> None:
    gone = replace(boosted(), volume=volume(VolumeState.GONE))
    gone = replace(gone, times=replace(BOOSTED, detached=NOW - 2, durable=NOW - 1))
    withdrawn = Failure(FailureKind.WITHDRAWN, "the load was over")
    for changes, teaches in (({}, True), ({"failure": withdrawn}, False), ({"trigger": Trigger.ORPHAN}, False)):
        of = state(Phase.DETACHING, replace(gone, **changes), learned_size_bytes=None, moved_bytes=GIB)
        after = decide(of, seen(host(backing())), POLICY).state
        assert (after.memory.learned_size_bytes is not None) is teaches


@pytest.mark.parametrize(("shown", "is_in_doubt"), [(CacheState.CLEAN, True), (CacheState.DIRTY, False)])
def test_the_status_tells_whether_a_missing_cache_may_be_older_than_the_device(
    shown: CacheState, is_in_doubt: bool
) -> None:
    faulted = state(Phase.FAULTED, boosted(volume=volume(VolumeState.AVAILABLE)))
    view = seen(host(backing(state=shown, running=False, superblock_set=SET)))
    missing = present(status_of(faulted, view, POLICY, RuntimeInfo("0.1.0", 0.0)).missing)
    assert missing.may_be_older is is_in_doubt
    assert (decide(faulted, view, POLICY).actions == (AttachVolume(VOLUME_ID),)) is not is_in_doubt


def test_without_a_journal_a_clean_cache_is_brought_back_by_its_name_and_with_its_loss_accepted() -> None:
    faulted = state(Phase.FAULTED, owned=(volume(VolumeState.AVAILABLE),))
    refused = decide(faulted, seen(host(WAITS_FOR_CLEAN), requests=(Request(RequestKind.RECOVER),)), POLICY)
    assert not refused.answers[0].accepted
    assert refused.state.cycle is None
    named = Request(RequestKind.RECOVER, volume_id=VOLUME_ID, brings_back=True)
    refused = decide(faulted, seen(host(WAITS_FOR_CLEAN), requests=(named,)), POLICY)
    assert (refused.answers[0].code, refused.state.cycle) == ("recover.may-be-older", None)
    accepted = seen(host(WAITS_FOR_CLEAN), requests=(replace(named, accepts_loss=True),))
    assert decide(faulted, accepted, POLICY).actions == (AttachVolume(VOLUME_ID),)


@pytest.mark.parametrize(("known", "fault"), [(None, None), (OTHER_SET, FaultKind.FOREIGN_CACHE)])
def test_a_cache_set_that_appears_is_the_one_that_this_agent_formats(known: Any, fault: FaultKind | None) -> None:
    found = danger(state(Phase.ATTACHING, cycle(cache_set=known)), seen(host(cached(), FORMATTED)))
    assert (found and found.fault) == fault
