"""The phase after a start: what the kernel shows decides, what was remembered only names."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from elastio.core.actions import is_read
from elastio.core.cycle import Backoff, Cycle, Failure, FailureKind, Timestamps, Trigger
from elastio.core.detection import danger
from elastio.core.machine import decide
from elastio.core.model import BackingView, CacheMode, CacheState, HostView, Request, RequestKind
from elastio.core.recovery import cycle_of, phase_of, recover
from elastio.core.state import AgentState, FaultKind, Phase
from tests.values import (
    FAILED_CLEAN,
    FORMATTED,
    NOW,
    OTHER_SET,
    POLICY,
    SET,
    VOLUME_ID,
    backing,
    boosted,
    cached,
    cycle,
    disk,
    drained,
    host,
    present,
    seen,
    state,
    volume,
)

ATTACHED = host(cached(), FORMATTED)


def remembered(phase: Phase = Phase.IDLE, **changes: object) -> AgentState:
    return replace(AgentState(phase=phase), **changes)  # type: ignore[arg-type]


def recovered(state: AgentState, view: HostView | None) -> AgentState:
    found = present(recover(state, seen(view)))
    assert found[0].recovered
    assert found[1]
    return found[0]


AFTER_A_START: dict[str, tuple[AgentState, HostView, Phase]] = {
    "no cache and no cycle": (remembered(), host(backing()), Phase.IDLE),
    "a cycle that never boosted": (remembered(Phase.ATTACHING, cycle=cycle()), host(backing()), Phase.ATTACHING),
    **{
        f"a flush that an operator forced, after {phase}": (
            remembered(phase, cycle=cycle(forced=True)),
            ATTACHED,
            Phase.FLUSHING,
        )
        for phase in (Phase.FLUSHING, Phase.DETACHING, Phase.FAULTED)
    },
    **{f"attached, after {phase}": (remembered(phase, cycle=cycle()), ATTACHED, Phase.BOOSTING) for phase in Phase},
}


@pytest.mark.parametrize("case", AFTER_A_START)
def test_the_phase_after_a_start_is_what_the_kernel_shows(case: str) -> None:
    before, view, phase = AFTER_A_START[case]
    assert recovered(before, view).phase is phase


def test_the_phase_follows_the_kernel() -> None:
    assert phase_of(cached()) is Phase.BOOSTING
    assert phase_of(cached(flush_full_speed=True)) is Phase.FLUSHING
    assert phase_of(cached(cache_mode=CacheMode.NONE)) is Phase.FLUSHING
    assert phase_of(cached(cache_mode=CacheMode.WRITETHROUGH)) is Phase.FLUSHING
    assert phase_of(drained(state=CacheState.NO_CACHE)) is Phase.DETACHING


def test_times_of_a_missing_cache_are_void_once_it_is_there() -> None:
    early = cycle(times=Timestamps(boosted=NOW - 50, clean=NOW - 9, detached=NOW - 5, released=NOW - 4))
    for view, clean in ((cached(), None), (drained(state=CacheState.NO_CACHE), NOW - 9)):
        state = recovered(remembered(Phase.DETACHING, cycle=early), host(view, FORMATTED))
        assert present(state.cycle).times == Timestamps(boosted=NOW - 50, clean=clean)


@pytest.mark.parametrize(("boot_id", "kept"), [("boot", NOW - 2), ("before", None)])
def test_a_detach_that_the_kernel_does_not_show_yet_is_remembered_within_its_boot(
    boot_id: str, kept: float | None
) -> None:
    """The kernel may end it before the agent can write down that it asks again."""
    leaving = cycle(times=Timestamps(boosted=NOW - 50, detaching=NOW - 2))
    after = recovered(remembered(Phase.DETACHING, cycle=leaving, boot_id=boot_id), host(drained(), FORMATTED))
    assert after.phase is Phase.FLUSHING
    assert after.cycle is not None
    assert (after.cycle.times.detaching, after.cycle.may_have_left) == (kept, kept is not None)


@pytest.mark.parametrize("phase", [Phase.ATTACHING, Phase.BOOSTING, Phase.FLUSHING, Phase.DETACHING, Phase.FAULTED])
def test_a_cache_is_off_only_where_the_agent_took_it_off(phase: Phase) -> None:
    """In the same boot, too: whoever stops bcache by hand may put a copy in the device's place."""
    boosted = cycle(times=Timestamps(boosted=NOW - 50, detaching=NOW - 9))
    assert recovered(remembered(phase, cycle=boosted), host(backing())).phase is Phase.DETACHING
    not_by_us = recovered(remembered(phase, cycle=cycle(times=Timestamps(boosted=NOW - 50))), host(backing()))
    assert not_by_us.phase is Phase.FAULTED
    assert present(not_by_us.cycle).may_lack_data


@pytest.mark.parametrize(
    ("serial", "shown", "phase"),
    [("disk-1", "disk-1", Phase.DETACHING), ("disk-1", "disk-2", Phase.FAULTED), ("disk-1", None, Phase.DETACHING)],
)
def test_a_cycle_belongs_to_one_backing_disk(serial: str, shown: str | None, phase: Phase) -> None:
    of = cycle(times=Timestamps(boosted=NOW - 50, detaching=NOW - 9), backing_serial=serial)
    before = state(Phase.DETACHING, of, recovered=False)
    assert decide(before, seen(host(backing(disk_serial=shown))), POLICY).state.phase is phase


def test_a_purchase_without_an_outcome_is_in_doubt_from_the_start_on() -> None:
    open_intent = cycle(volume_id=None, serial=None, cache_set=None, volume=None, create_unconfirmed_at=NOW - 1e6)
    state = recovered(remembered(Phase.ATTACHING, cycle=open_intent), host(backing()))
    assert present(state.cycle).create_unconfirmed_at == NOW


def test_what_the_old_agent_waited_for_means_nothing_to_the_new_one() -> None:
    late = cycle(backoffs={"AttachVolume": Backoff(9, NOW + 60)}, failure=Failure(FailureKind.ERROR, "old"))
    state = recovered(remembered(Phase.ATTACHING, cycle=late), host(backing()))
    assert state.cycle is not None
    assert (state.cycle.backoffs, state.cycle.failure) == ({}, None)


def test_a_cache_that_nobody_remembers_waits_for_the_cloud_to_say_whose_it_is() -> None:
    assert recover(remembered(), seen(ATTACHED)) is None


def test_a_cache_on_a_volume_of_this_agent_is_taken_up() -> None:
    state = recovered(remembered(owned=(volume(),)), ATTACHED)
    assert state.phase is Phase.BOOSTING
    assert state.cycle is not None
    assert (state.cycle.trigger, state.cycle.cache_set, state.cycle.volume_id) == (Trigger.ORPHAN, SET, volume().id)
    assert state.cycle.times.boosted == NOW, "it may hold data: it must never be formatted"


def test_a_cache_on_a_volume_of_somebody_else_is_a_fault() -> None:
    strange = host(cached(cache_set=OTHER_SET), disk(cache_set=OTHER_SET, serial="other"))
    state = recovered(remembered(owned=(volume(),)), strange)
    assert state.phase is Phase.FAULTED
    assert present(state.fault).kind is FaultKind.FOREIGN_CACHE


def test_a_cache_that_was_attached_before_its_outcome_was_written_is_the_cycles() -> None:
    half = cycle(cache_set=None)
    state = recovered(remembered(Phase.ATTACHING, cycle=half), ATTACHED)
    assert (state.phase, present(state.cycle).cache_set) == (Phase.BOOSTING, SET)


def test_a_cycle_made_from_tags_runs_its_bill_from_the_clouds_own_time() -> None:
    made = cycle_of(volume(), seen(None))
    assert made.opened_wall == volume().created_wall
    assert made.token == volume().token


@pytest.mark.parametrize(("boot_id", "is_kept"), [("before", True), ("boot", False)])
def test_a_cache_that_died_at_a_boot_before_anybody_saw_it_attached_is_kept(boot_id: str, is_kept: bool) -> None:
    """After a power cut the superblock may say clean of what the last second before it wrote to the new cache."""
    installing = cycle(cache_set=None, times=Timestamps(installing=NOW - 5))
    died = host(backing(state=CacheState.CLEAN, superblock_set=SET))
    after = recovered(remembered(Phase.ATTACHING, cycle=installing, boot_id=boot_id), died)
    assert (after.phase is Phase.FAULTED, present(after.cycle).may_lack_data) == (is_kept, is_kept)


def booted(phase: Phase, **changes: Any) -> AgentState:
    return AgentState(phase=phase, cycle=boosted(**changes), boot_id="an earlier boot")


# No write has gone to the cache since it held nothing.
BYPASSED = replace(boosted(), dirty_bytes=0).stamped(bypassed=NOW - 5)


@pytest.mark.parametrize("phase", [Phase.BOOSTING, Phase.FLUSHING, Phase.FAULTED])
def test_a_device_whose_dirty_data_was_out_at_the_last_boot_is_not_taken_for_clean(phase: Phase) -> None:
    found = decide(booted(phase), seen(host(backing())), POLICY)
    assert found.state.phase is Phase.FAULTED
    assert VOLUME_ID in present(found.state.fault).text
    assert all(is_read(action) for action in found.actions)
    resumed = seen(host(backing()), requests=(Request(RequestKind.RESUME),))
    assert decide(found.state, resumed, POLICY).state.phase is Phase.FAULTED


@pytest.mark.parametrize(
    ("of", "view"),
    [
        (booted(Phase.DETACHING).cycle, backing()),  # the agent took it off
        (boosted(), FAILED_CLEAN),  # in this boot, by the kernel's own word
        (BYPASSED, FAILED_CLEAN),
    ],
)
def test_a_device_that_was_clean_lacks_no_data(of: Cycle, view: BackingView) -> None:
    of = of.stamped(detaching=NOW - 9) if view is not FAILED_CLEAN else of
    earlier = AgentState(phase=Phase.FLUSHING, cycle=of, boot_id="boot" if view is FAILED_CLEAN else "an earlier boot")
    found = present(recover(earlier, seen(host(view))))
    assert found[0].phase is Phase.DETACHING
    assert danger(found[0], seen(host(view))) is None


def test_while_writes_went_to_the_cache_the_last_figure_proves_nothing() -> None:
    empty = replace(boosted(), dirty_bytes=0)
    for phase, of, may_lack_data in (
        (Phase.BOOSTING, empty, True),
        (Phase.FAULTED, empty, True),
        (Phase.FLUSHING, empty, True),
        (Phase.FLUSHING, BYPASSED, False),
    ):
        found = present(recover(replace(booted(phase), cycle=of), seen(host(FAILED_CLEAN))))
        assert present(found[0].cycle).may_lack_data is may_lack_data


def test_a_boot_is_noticed_also_by_the_second_start_after_it() -> None:
    """Records of this boot say nothing about when the cache was last seen."""
    before = replace(booted(Phase.BOOSTING, dirty_boot="an earlier boot"), boot_id="boot")
    found = present(recover(before, seen(host(backing()))))
    assert found[0].phase is Phase.FAULTED
    again = present(recover(replace(found[0], recovered=False), seen(host(backing()))))
    assert (again[0].phase, again[0].fault) == (Phase.FAULTED, found[0].fault)


def test_one_that_came_back_is_flushed_whatever_the_load() -> None:
    found = recover(state(Phase.BOOSTING, boosted(), recovered=False, failed_clean_set=SET), seen(host(cached())))
    after = present(found)[0]
    assert after.phase is Phase.FLUSHING
    assert present(after.cycle).forced


@pytest.mark.parametrize(
    ("is_ordered", "phase", "fault"),
    [(False, Phase.FAULTED, FaultKind.CACHE_STALE), (True, Phase.FLUSHING, None)],
)
def test_one_that_came_back_and_may_have_been_dirty_is_flushed_by_order_only(
    is_ordered: bool, phase: Phase, fault: FaultKind | None
) -> None:
    before = state(Phase.FAULTED, boosted(may_lack_data=True), recovered=False, failed_clean_set=SET)
    after = present(recover(before, seen(host(cached())), is_ordered=is_ordered))[0]
    assert (after.phase, after.fault and after.fault.kind) == (phase, fault)


def test_one_that_failed_while_no_agent_ran_in_the_same_boot_is_remembered_at_the_start() -> None:
    of = replace(state(Phase.BOOSTING, replace(boosted(), dirty_boot="boot"), recovered=False), boot_id="boot")
    after = decide(of, seen(host(FAILED_CLEAN)), POLICY).state
    assert (after.phase, after.failed_clean_set) == (Phase.DETACHING, SET)


def test_a_device_that_was_started_without_its_cache_lacks_no_data() -> None:
    inconsistent = host(backing(state=CacheState.INCONSISTENT))
    crashed = state(Phase.DETACHING, boosted(), recovered=False, failed_clean_set=SET)
    assert decide(crashed, seen(inconsistent), POLICY).state.phase is Phase.DETACHING
    later = state(Phase.DETACHING, boosted(), recovered=False, is_stale_accepted=True)
    assert decide(later, seen(inconsistent), POLICY).state.phase is Phase.DETACHING
    foreign = state(Phase.DETACHING, boosted(), recovered=False)
    assert decide(foreign, seen(inconsistent), POLICY).state.phase is Phase.FAULTED
