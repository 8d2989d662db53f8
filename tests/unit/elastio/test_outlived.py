"""A cache that fails while it is clean: the device goes on without it, and the cache must not come back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from elastio.agent.status_builder import RuntimeInfo, status_of
from elastio.core import inhibition
from elastio.core.actions import (
    AttachVolume,
    EnterPhase1,
    LimitWrites,
    MakeDurable,
    Outcome,
    OutcomeKind,
    StartWithoutCache,
)
from elastio.core.cycle import Failure, FailureKind, Timestamps
from elastio.core.detection import Event, danger, in_attaching, in_boosting, in_flushing
from elastio.core.invariants import check
from elastio.core.machine import decide
from elastio.core.model import CacheSetUuid, CacheState, HostView, Request, RequestKind, VolumeState
from elastio.core.observation import Decision
from elastio.core.planner import GONE, must_end, next_action
from elastio.core.recovery import recover
from elastio.core.requests import quiesce
from elastio.core.state import FaultKind, Phase
from elastio.core.update import fold
from elastio.errors import InvariantError
from elastio.sim.run import Simulation
from elastio.sim.workload import Segment
from elastio.units import GIB

from .simulated import QUIET, assert_at_rest, decisions, in_phase, intents, machine
from .values import (
    BOOSTED,
    HIGH,
    NOW,
    OTHER_SET,
    POLICY,
    SET,
    VOLUME_ID,
    backing,
    boosted,
    busy_sample,
    cached,
    cycle,
    disk,
    drained,
    host,
    seen,
    state,
    volume,
)

OUTLIVED = backing(state=CacheState.CLEAN, superblock_set=SET)
WAITING = backing(state=CacheState.CLEAN, running=False, superblock_set=SET)
LATER = Segment(3, 60), Segment(60, 0), Segment(12, 60), QUIET


def clean_and_boosting(*load: Segment) -> Simulation:
    """A boost whose cache has become clean, with nothing to end it."""
    sim = machine((Segment(2, 0), Segment(9, 60), Segment(80, 0), *(load or (QUIET,))), inactivity_delay_s=1e6)
    in_phase(sim, Phase.BOOSTING)
    sim.run_until(lambda: sim.world.clock.elapsed() > 30 and not sim.world.kernel.bcache.sb_dirty, 300)
    return sim


def torn_off_clean(*load: Segment) -> Simulation:
    sim = clean_and_boosting(*load)
    sim.world.vanish()
    sim.run_until(lambda: bool(sim.state.failed_clean_set), 30)
    return sim


# --- on the simulator --------------------------------------------------------------------------------------


def test_the_device_goes_on_and_the_volume_is_released() -> None:
    sim = torn_off_clean()
    assert_at_rest(sim)
    assert Phase.FAULTED not in {r["to"] for r in sim.journal.records() if r["kind"] == "decision"}
    assert intents(sim, "AttachVolume") == 1
    assert sim.world.kernel.bcache.running


@pytest.mark.parametrize("is_released", [True, False])
def test_after_a_boot_the_device_is_started_without_it(is_released: bool) -> None:
    sim = torn_off_clean(*LATER)
    if is_released:
        sim.run_until_settled(300)
    sim.power_cut()
    assert not sim.world.kernel.bcache.running
    sim.run_until(lambda: sim.world.kernel.bcache.running, 60)
    assert intents(sim, "StartWithoutCache") == 1
    assert not any("faulted" in line for line in decisions(sim))
    assert_at_rest(sim)


def test_the_next_boost_ends_it() -> None:
    sim = torn_off_clean(*LATER)
    in_phase(sim, Phase.IDLE)
    sim.run_until(lambda: sim.phase is Phase.BOOSTING, 300)
    assert sim.state.failed_clean_set == ""
    sim.ask(RequestKind.FLUSH)
    assert_at_rest(sim)
    assert sim.world.kernel.bcache.state is CacheState.NO_CACHE
    sim.power_cut()
    assert sim.world.kernel.bcache.running
    assert sim.world.kernel.bcache.stale_links == 0


def test_one_that_is_there_again_after_a_boot_is_taken_off_at_once() -> None:
    sim = clean_and_boosting(*LATER)
    disk = sim.world.kernel.cache_disk()
    assert disk is not None
    sim.world.kernel.pull(disk.serial)
    sim.run_until(lambda: bool(sim.state.failed_clean_set), 30)
    sim.kill_agent()
    sim.world.kernel.disks[disk.serial] = disk
    sim.power_cut()
    assert sim.world.kernel.bcache.cache_set == disk.superblock
    sim.run_until(lambda: sim.phase is Phase.DETACHING, 60)
    assert_at_rest(sim)


def test_what_was_flushed_is_durable_before_the_volume_goes() -> None:
    sim = torn_off_clean()
    assert_at_rest(sim)
    assert intents(sim, "MakeDurable") == 1
    assert not sim.world.lost(power_cut=True)


def test_without_a_journal_it_is_remembered_all_the_same() -> None:
    sim = torn_off_clean(*LATER)
    sim.kill_agent()
    sim.lines.clear()
    sim.start_agent()
    sim.run_until(lambda: bool(sim.state.failed_clean_set), 60)
    sim.power_cut()
    sim.run_until(lambda: sim.world.kernel.bcache.running, 60)
    assert not any("faulted" in line for line in decisions(sim))


def test_one_that_is_registered_again_under_load_is_taken_off_whatever_the_load() -> None:
    sim = machine((Segment(2, 0), Segment(9, 60), Segment(24, 0), Segment(60, 60), QUIET), inactivity_delay_s=1e6)
    kernel = sim.world.kernel
    in_phase(sim, Phase.BOOSTING)
    sim.run_until(lambda: sim.world.clock.elapsed() > 34.5 and not kernel.bcache.sb_dirty, 300)
    torn = kernel.cache_disk()
    assert torn is not None
    kernel.pull(torn.serial)
    sim.run_until(lambda: kernel.bcache.passed is not None and sim.state.load.above_since is not None, 30)
    sim.run_for(0.5)
    kernel.plug(torn)
    assert kernel.bcache.stale_links == 1
    phases = set()
    sim.on_step = lambda: phases.add(sim.phase)
    sim.run_until(lambda: kernel.bcache.cache_set is None, 60)
    assert Phase.FLUSHING in phases
    assert Phase.BOOSTING not in phases


# --- the rules, one by one ---------------------------------------------------------------------------------


@pytest.mark.parametrize("phase", [Phase.BOOSTING, Phase.FLUSHING])
def test_it_is_the_end_of_the_boost_and_no_danger(phase: Phase) -> None:
    of = fold(state(phase, boosted()), seen(host(OUTLIVED)), POLICY)
    assert danger(of, seen(host(OUTLIVED))) is None
    found = (in_boosting if phase is Phase.BOOSTING else in_flushing)(of, seen(host(OUTLIVED)), POLICY)
    assert found is not None
    assert found.event is Event.CACHE_LEFT


def test_it_is_remembered_until_the_superblock_names_another_or_none() -> None:
    of = fold(state(Phase.BOOSTING, boosted()), seen(host(OUTLIVED)), POLICY)
    assert of.failed_clean_set == SET
    assert fold(of, seen(host(WAITING)), POLICY).failed_clean_set == SET
    assert fold(of, seen(host(cached())), POLICY).failed_clean_set == SET
    assert fold(of, seen(host(backing())), POLICY).failed_clean_set == ""
    assert fold(of, seen(host(cached(cache_set=OTHER_SET))), POLICY).failed_clean_set == ""
    started = fold(of, seen(host(backing(state=CacheState.INCONSISTENT))), POLICY)
    assert (started.failed_clean_set, started.is_stale_accepted) == ("", True)


def test_while_the_kernel_is_still_attaching_nothing_is_outlived() -> None:
    of = state(Phase.ATTACHING, cycle(times=Timestamps()))
    assert fold(of, seen(host(OUTLIVED)), POLICY).failed_clean_set == ""
    assert fold(state(Phase.DETACHING, cycle(times=Timestamps())), seen(host(OUTLIVED)), POLICY).failed_clean_set == SET


@pytest.mark.parametrize(
    ("view", "outlived", "starts"),
    [
        (WAITING, SET, True),
        (WAITING, "", False),
        (backing(state=CacheState.DIRTY, running=False), SET, False),
        (OUTLIVED, SET, False),
    ],
)
def test_it_starts_without_only_what_was_seen_to_need_no_cache(view: Any, outlived: str, starts: bool) -> None:
    of = state(Phase.IDLE, failed_clean_set=outlived)
    start = StartWithoutCache(outlived)
    assert (next_action(of, seen(host(view)), POLICY).action == start) is starts
    assert (danger(of, seen(host(view))) is None) is (starts or view is OUTLIVED)
    if starts:
        check(Decision(of, (start,)), seen(host(view)), POLICY)
    else:
        with pytest.raises(InvariantError):
            check(Decision(of, (start,)), seen(host(view)), POLICY)


def test_a_disk_that_went_after_it_was_formatted_is_not_attached_again() -> None:
    of = state(Phase.ATTACHING, cycle(times=Timestamps()))
    found = in_attaching(of, seen(host(OUTLIVED)), POLICY)
    assert found is not None
    assert found.event is Event.BOOST_ABANDONED


def test_a_disk_that_went_while_its_cache_was_put_in_front_is_not_attached_again() -> None:
    """The answer is lost, and the kernel has gone on without it before anybody looked."""
    of = state(Phase.ATTACHING, cycle(times=Timestamps(installing=NOW - 1), cache_set=None))
    found = in_attaching(of, seen(host(OUTLIVED)), POLICY)
    assert found is not None
    assert found.event is Event.BOOST_ABANDONED


def test_one_that_came_back_is_flushed_whatever_the_load() -> None:
    found = recover(
        state(Phase.BOOSTING, boosted(), recovered=False, failed_clean_set=SET), seen(host(cached())), POLICY
    )
    assert found is not None
    after = found[0]
    assert after.phase is Phase.FLUSHING
    assert after.cycle is not None
    assert after.cycle.forced


def test_no_copy_is_made_of_a_device_that_would_wait_for_it() -> None:
    of = state(Phase.IDLE, failed_clean_set=SET)
    _, answer = quiesce(of, Request(RequestKind.QUIESCE, seconds=60), seen(host(OUTLIVED)))
    assert not answer.accepted
    assert not inhibition.is_safe_to_copy(None, host(OUTLIVED))


def test_nothing_is_shown_as_missing_while_it_starts() -> None:
    shown = [
        status_of(of, seen(host(WAITING)), POLICY, RuntimeInfo("0.1.0", 0.0))
        for of in (state(Phase.IDLE, failed_clean_set=SET), state(Phase.IDLE))
    ]
    assert [status.missing is None for status in shown] == [True, False]


# --- what only looks like it -------------------------------------------------------------------------------


def test_a_cache_that_was_clean_in_name_only_is_kept() -> None:
    """After a power cut: the superblock that was written last says clean, the index does not."""
    clean_in_name = host(drained(dirty_bytes=64 * 2**20), disk(cache_set=SET, superblock=SET, held=True))
    before = decide(state(Phase.DETACHING, boosted()), seen(clean_in_name), POLICY).state
    decision = decide(before, seen(host(OUTLIVED)), POLICY)
    assert decision.state.phase is Phase.FAULTED
    assert decision.actions == ()
    back = host(cached(), disk(cache_set=SET, superblock=SET, held=True))
    stays = decide(decision.state, seen(back), POLICY)
    assert (stays.state.phase, stays.actions) == (Phase.FAULTED, ())
    assert decide(replace(decision.state, recovered=False), seen(back), POLICY).state.phase is Phase.FAULTED
    ordered = decide(decision.state, seen(back, requests=(Request(RequestKind.RESUME),)), POLICY).state
    assert (ordered.phase, ordered.cycle and ordered.cycle.forced) == (Phase.FLUSHING, True)
    restarted = replace(before, recovered=False, phase=Phase.DETACHING)
    assert decide(restarted, seen(host(OUTLIVED)), POLICY).state.phase is Phase.FAULTED


def test_a_device_in_dispute_is_not_started_without_its_cache() -> None:
    booted = HostView(NOW, "another boot", OUTLIVED)
    of = replace(state(Phase.BOOSTING, replace(boosted(), dirty_boot="boot"), recovered=False), boot_id="boot")
    faulted = decide(of, seen(booted), POLICY).state
    assert faulted.phase is Phase.FAULTED
    later = decide(faulted, seen(booted), POLICY).state
    assert not isinstance(next_action(later, seen(host(WAITING)), POLICY).action, StartWithoutCache)
    with pytest.raises(InvariantError):
        check(Decision(later, (StartWithoutCache(SET),)), seen(host(WAITING)), POLICY)


def test_one_that_failed_while_no_agent_ran_in_the_same_boot_is_remembered_at_the_start() -> None:
    of = replace(state(Phase.BOOSTING, replace(boosted(), dirty_boot="boot"), recovered=False), boot_id="boot")
    after = decide(of, seen(host(OUTLIVED)), POLICY).state
    assert (after.phase, after.failed_clean_set) == (Phase.DETACHING, SET)


@pytest.mark.parametrize("named", [OTHER_SET, None])
def test_a_device_that_waits_for_another_set_is_not_started(named: CacheSetUuid | None) -> None:
    waiting = replace(WAITING, superblock_set=named)
    of = state(Phase.IDLE, failed_clean_set=SET)
    assert not isinstance(next_action(of, seen(host(waiting)), POLICY).action, StartWithoutCache)
    assert danger(of, seen(host(waiting))) is not None


def test_a_start_that_is_over_is_no_dispute() -> None:
    inconsistent = host(backing(state=CacheState.INCONSISTENT))
    crashed = state(Phase.DETACHING, boosted(), recovered=False, failed_clean_set=SET)
    assert decide(crashed, seen(inconsistent), POLICY).state.phase is Phase.DETACHING
    later = state(Phase.DETACHING, boosted(), recovered=False, is_stale_accepted=True)
    assert decide(later, seen(inconsistent), POLICY).state.phase is Phase.DETACHING
    foreign = state(Phase.DETACHING, boosted(), recovered=False)
    assert decide(foreign, seen(inconsistent), POLICY).state.phase is Phase.FAULTED


# --- there again -------------------------------------------------------------------------------------------


def test_nothing_is_boosted_with_it() -> None:
    boosting, flushing = (state(phase, boosted(), failed_clean_set=SET) for phase in (Phase.BOOSTING, Phase.FLUSHING))
    loaded = replace(flushing, load=HIGH)
    asked = seen(host(cached()), sample=busy_sample(), requests=(Request(RequestKind.BOOST),))
    assert in_flushing(replace(loaded, failed_clean_set=""), asked, POLICY) is not None
    assert in_flushing(loaded, asked, POLICY) is None
    found = in_boosting(boosting, seen(host(cached())), POLICY)
    assert found is not None
    assert found.event is Event.WENT_QUIET
    assert must_end(flushing, boosted(), NOW, POLICY)
    enter = (EnterPhase1(flush_mb_s=None),)
    check(Decision(replace(boosting, failed_clean_set=""), enter), seen(host(cached())), POLICY)
    with pytest.raises(InvariantError):
        check(Decision(boosting, enter), seen(host(cached())), POLICY)


def test_one_that_took_writes_again_is_not_done_without() -> None:
    """What its superblock says of dirty data lags behind."""
    left = decide(state(Phase.BOOSTING, boosted()), seen(host(OUTLIVED)), POLICY).state
    assert isinstance(next_action(left, seen(host(WAITING)), POLICY).action, StartWithoutCache)
    back = decide(left, seen(host(cached(), disk(cache_set=SET, superblock=SET, held=True))), POLICY).state
    assert (back.phase, back.failed_clean_set) == (Phase.FLUSHING, SET)
    booted = decide(replace(back, recovered=False), seen(host(WAITING)), POLICY)
    assert booted.state.phase is Phase.FAULTED
    assert not isinstance(booted.actions[0], StartWithoutCache)


def test_one_that_may_have_been_in_front_unseen_goes_after_a_sync() -> None:
    of = state(Phase.DETACHING, cycle(times=Timestamps(registered=NOW - 5)))
    assert next_action(of, seen(host(OUTLIVED)), POLICY).action == MakeDurable()


def test_a_disk_that_lingers_after_its_volume_is_gone_holds_nothing_up() -> None:
    lingers = host(backing(), disk(superblock=SET, held=True))
    of = state(Phase.DETACHING, replace(boosted(), volume=volume(VolumeState.GONE)).stamped(detaching=NOW - 9))
    first = decide(of, seen(lingers), POLICY)
    assert first.actions == (MakeDurable(),)
    done = Outcome(MakeDurable(), OutcomeKind.DONE)
    assert decide(first.state, seen(lingers, outcomes=(done,)), POLICY).state.phase is Phase.IDLE


def test_a_boost_that_was_given_up_is_not_missed_once_the_kernel_shows_no_cache() -> None:
    of = fold(state(Phase.DETACHING, cycle(times=Timestamps(registered=NOW - 5))), seen(host(backing())), POLICY)
    assert of.cycle is not None
    assert not of.cycle.may_be_attached
    assert danger(of, seen(host(None))) is None


def test_a_boost_that_was_withdrawn_teaches_no_size() -> None:
    gone = replace(boosted(), moved_bytes=GIB, volume=volume(VolumeState.GONE))
    gone = replace(gone, times=replace(BOOSTED, detached=NOW - 2, durable=NOW - 1))
    for failure, updates_learned_size in ((None, True), (Failure(FailureKind.WITHDRAWN, "the load was over"), False)):
        of = state(Phase.DETACHING, replace(gone, failure=failure), learned_size_bytes=None)
        after = decide(of, seen(host(backing())), POLICY).state
        assert (after.learned_size_bytes is not None) is updates_learned_size


def test_a_cache_that_is_there_again_is_in_front_again() -> None:
    gone = replace(boosted(), times=replace(BOOSTED, detached=NOW - 2, durable=NOW - 1))
    assert not gone.may_be_attached
    after = fold(state(Phase.DETACHING, gone), seen(host(cached())), POLICY).cycle
    assert after is not None
    assert (after.may_be_attached, after.needs_sync) == (True, True)


def test_one_that_died_before_it_was_seen_in_front_is_missed() -> None:
    registered = cycle(times=Timestamps(registered=NOW - 2))
    found = danger(state(Phase.ATTACHING, registered), seen(host(None)))
    assert found is not None
    assert found.fault is FaultKind.CACHE_FAILED
    never = cycle(times=Timestamps(created=NOW - 2))
    assert danger(state(Phase.ATTACHING, never), seen(host(None))) is None


@pytest.mark.parametrize("phase", [Phase.BOOSTING, Phase.FLUSHING])
def test_a_disk_that_is_gone_and_not_missed_by_the_kernel_is_told(phase: Phase) -> None:
    linked = cached(flush_full_speed=phase is Phase.FLUSHING)
    of = state(phase, boosted(), flush_mb_s=None)
    plans = [next_action(of, seen(host(linked, *there)), POLICY) for there in ((), (disk(superblock=SET),))]
    assert [plan.waiting_for == GONE for plan in plans] == [True, False]
    assert not isinstance(plans[0].action, LimitWrites)


@pytest.mark.parametrize(("shown", "is_in_doubt"), [(CacheState.CLEAN, True), (CacheState.DIRTY, False)])
def test_the_status_tells_whether_a_missing_cache_may_be_older_than_the_device(
    shown: CacheState, is_in_doubt: bool
) -> None:
    faulted = state(Phase.FAULTED, boosted(volume=volume(VolumeState.AVAILABLE)))
    view = seen(host(backing(state=shown, running=False, superblock_set=SET)))
    missing = status_of(faulted, view, POLICY, RuntimeInfo("0.1.0", 0.0)).missing
    assert missing is not None
    assert missing.may_be_older is is_in_doubt
    assert (decide(faulted, view, POLICY).actions == (AttachVolume(VOLUME_ID),)) is not is_in_doubt


def test_without_a_journal_a_clean_cache_is_brought_back_by_name_alone() -> None:
    faulted = state(Phase.FAULTED, owned=(volume(VolumeState.AVAILABLE),))
    refused = decide(faulted, seen(host(WAITING), requests=(Request(RequestKind.RECOVER),)), POLICY)
    assert not refused.answers[0].accepted
    assert refused.state.cycle is None
    named = Request(RequestKind.RECOVER, volume_id=VOLUME_ID)
    assert decide(faulted, seen(host(WAITING), requests=(named,)), POLICY).actions == (AttachVolume(VOLUME_ID),)
