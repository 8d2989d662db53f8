"""A cache that is missing: brought back in the right order, never started without, unless an operator says so."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from elastio.agent.status_builder import RuntimeInfo, status_of
from elastio.core import missing_cache
from elastio.core.actions import RegisterBacking, RegisterCache, StartWithoutCache
from elastio.core.cycle import UNKNOWN_VOLUME, Cycle
from elastio.core.detection import danger, in_faulted
from elastio.core.invariants import check
from elastio.core.machine import decide
from elastio.core.model import (
    BackingView,
    CacheState,
    HostView,
    Request,
    RequestKind,
    VolumeId,
    VolumeState,
    VolumeTag,
)
from elastio.core.observation import Answer, Decision
from elastio.core.planner import next_action
from elastio.core.recovery import recover
from elastio.core.state import AgentState, Fault, FaultKind, Phase
from elastio.errors import InvariantError

from .simulated import STEADY, in_phase, intents, machine
from .values import (
    BOOSTED,
    NOW,
    OTHER_SET,
    POLICY,
    SERIAL,
    SET,
    VOLUME_ID,
    backing,
    boosted,
    cached,
    cycle,
    disk,
    host,
    seen,
    state,
    volume,
)

WAITING = host(backing(running=False, state=CacheState.DIRTY))
RECOVER = Request(RequestKind.RECOVER)
GIVE_UP = Request(RequestKind.RECOVER, accepts_loss=True)
BY_NAME = replace(GIVE_UP, volume_id=VOLUME_ID)

MISSED = Fault(FaultKind.CACHE_MISSING, "the cache is missing")


def wounded(of: Cycle | None = None, **changes: Any) -> AgentState:
    return state(Phase.FAULTED, of, **{"fault": MISSED, **changes})


def ask(of: AgentState, request: Request, view: HostView = WAITING) -> tuple[AgentState, Answer]:
    return missing_cache.answer(of, request, seen(view))


# --- what an operator is told and may decide ------------------------------------------------------------


def test_recover_says_which_volume_is_needed_and_what_only_it_holds() -> None:
    after, answer = ask(wounded(boosted()), RECOVER)
    assert answer.accepted
    assert after.loss_accepted_for == ""
    assert all(text in answer.text for text in (VOLUME_ID, "1.0 GiB", "2.0 GiB", "ago"))


@pytest.mark.parametrize(
    ("of", "view"),
    [
        (state(Phase.BOOSTING, boosted()), host(cached())),
        (state(Phase.IDLE), host(backing())),
        (wounded(boosted(), fault=Fault(FaultKind.RULE_BROKEN, "a rule")), host(None)),
        (wounded(cycle()), host(None)),
    ],
)
def test_without_a_missing_cache_nothing_is_recovered_or_given_up(of: AgentState, view: HostView) -> None:
    for request in (RECOVER, GIVE_UP, BY_NAME):
        after, answer = ask(of, request, view)
        assert not answer.accepted
        assert after == of


@pytest.mark.parametrize(("view", "told"), [(None, "dmesg"), (host(None), "not registered")])
def test_a_device_that_is_not_seen_is_told_from_one_that_is_not_there(view: HostView | None, told: str) -> None:
    of = state(Phase.FLUSHING, boosted())
    after, answer = missing_cache.answer(of, RECOVER, seen(view))
    assert (answer.accepted, after) == (False, of)
    assert told in answer.text


def test_what_a_start_by_force_left_behind_is_given_up_by_its_name_alone() -> None:
    inconsistent = host(backing(state=CacheState.INCONSISTENT))
    for request in (RECOVER, GIVE_UP):
        after, answer = ask(wounded(boosted()), request, inconsistent)
        assert (answer.accepted, after) == (False, wounded(boosted()))
        assert VOLUME_ID in answer.text
    ordered, answer = ask(wounded(boosted()), BY_NAME, inconsistent)
    assert answer.accepted
    after = decide(ordered, seen(inconsistent), POLICY).state
    assert (after.phase, after.given_up, after.cycle) == (Phase.IDLE, (VOLUME_ID,), None)


@pytest.mark.parametrize("view", [host(None), None])
def test_a_device_that_is_not_registered_yet_is_brought_back_and_not_given_up(view: HostView | None) -> None:
    """Right after the umount the kernel has let go of it, and the agent is about to register it again."""
    after, answer = missing_cache.answer(wounded(boosted()), RECOVER, seen(view))
    assert answer.accepted
    assert VOLUME_ID in answer.text
    after, answer = missing_cache.answer(wounded(boosted()), BY_NAME, seen(view))
    assert (answer.accepted, after.loss_accepted_for) == (False, "")
    assert "ask again in a moment" in answer.text


def test_a_wrong_choice_among_the_volumes_can_be_put_right_until_the_kernel_has_confirmed_it() -> None:
    there = (volume(VolumeState.AVAILABLE), volume(VolumeState.AVAILABLE, id="vol-2"))
    other = replace(RECOVER, volume_id="vol-2")
    chosen, _ = ask(wounded(owned=there), replace(RECOVER, volume_id=VOLUME_ID))
    after, answer = ask(chosen, other)
    assert answer.accepted
    assert after.cycle is not None
    assert (after.cycle.volume_id, after.cycle.times.boosted) == ("vol-2", NOW)
    assert chosen.cycle is not None
    assert not ask(replace(chosen, cycle=replace(chosen.cycle, cache_set=SET)), other)[1].accepted
    assert not ask(wounded(boosted(cache_set=None), owned=there), other)[1].accepted


def test_the_one_volume_of_this_device_is_adopted_where_the_journal_knows_none() -> None:
    after, answer = ask(wounded(owned=(volume(VolumeState.AVAILABLE), volume(VolumeState.GONE))), RECOVER)
    assert answer.accepted
    assert after.cycle is not None
    assert (after.cycle.volume_id, after.cycle.times.boosted) == (VOLUME_ID, NOW)


def test_between_several_volumes_an_operator_chooses() -> None:
    there = (volume(VolumeState.AVAILABLE), volume(VolumeState.AVAILABLE, id="vol-2"))
    after, answer = ask(wounded(owned=there), RECOVER)
    assert not answer.accepted
    assert "vol-2" in answer.text
    assert after.cycle is None
    after, answer = ask(wounded(owned=there), replace(RECOVER, volume_id="vol-2"))
    assert after.cycle is not None
    assert after.cycle.volume_id == "vol-2"


def test_no_volume_means_no_guess() -> None:
    for owned in ((), None):
        after, answer = ask(wounded(owned=owned), RECOVER)
        assert not answer.accepted
        assert after.cycle is None


@pytest.mark.parametrize("there", [s for s in VolumeState if s is not VolumeState.GONE])
def test_nothing_is_given_up_while_the_volume_exists(there: VolumeState) -> None:
    before = wounded(boosted(volume=volume(there)))
    for request in (GIVE_UP, replace(GIVE_UP, volume_id="vol-other")):
        after, answer = ask(before, request)
        assert not answer.accepted
        assert VOLUME_ID in answer.text
        assert after == before
    assert ask(before, BY_NAME)[0].loss_accepted_for == VOLUME_ID


def test_a_volume_that_is_gone_may_be_given_up_without_a_name() -> None:
    after, answer = ask(wounded(boosted(volume=volume(VolumeState.GONE))), GIVE_UP)
    assert answer.accepted
    assert after.loss_accepted_for == VOLUME_ID
    assert "1.0 GiB" in answer.text


@pytest.mark.parametrize("phase", [Phase.BOOSTING, Phase.FLUSHING])
def test_a_device_that_the_kernel_let_go_of_before_anybody_looked_is_missed(phase: Phase) -> None:
    wounded_host = replace(host(None), dead_bcache_device="bcache0")
    after = decide(state(phase, boosted()), seen(wounded_host), POLICY).state
    assert after.phase is Phase.FAULTED
    assert after.fault is not None
    assert VOLUME_ID in after.fault.text
    assert "unmounted" in after.waiting_for
    missing = status_of(after, seen(wounded_host), POLICY, RuntimeInfo("0.1.0", 0.0)).missing
    assert missing is not None
    assert (missing.volume_id, missing.adaptive, missing.waits_for_umount) == (VOLUME_ID, "bcache0", True)


def test_a_device_that_is_let_go_of_without_a_cache_of_ours_is_no_fault() -> None:
    detached = cycle(times=replace(BOOSTED, detached=NOW))
    for of in (None, detached):
        phase = Phase.IDLE if of is None else Phase.DETACHING
        assert decide(state(phase, of), seen(host(None)), POLICY).state.phase is phase


def test_nothing_is_given_up_under_a_mount() -> None:
    mounted = host(backing(running=True, state=CacheState.DIRTY))
    assert not ask(wounded(boosted(volume=volume(VolumeState.GONE))), GIVE_UP, mounted)[1].accepted


def test_what_nobody_remembers_is_given_up_only_when_no_volume_is_left() -> None:
    assert not ask(wounded(owned=None), GIVE_UP)[1].accepted
    assert not ask(wounded(owned=(volume(VolumeState.AVAILABLE),)), GIVE_UP)[1].accepted
    assert ask(wounded(owned=()), GIVE_UP)[0].loss_accepted_for == UNKNOWN_VOLUME
    assert ask(wounded(owned=(volume(VolumeState.AVAILABLE),)), BY_NAME)[0].loss_accepted_for == VOLUME_ID


# --- what is done ---------------------------------------------------------------------------------------


def test_the_device_is_started_without_its_cache_only_after_that_decision() -> None:
    before = wounded(boosted(volume=volume(VolumeState.AVAILABLE)))
    assert not isinstance(next_action(before, seen(WAITING), POLICY).action, StartWithoutCache)
    after = replace(before, loss_accepted_for=VOLUME_ID)
    assert next_action(after, seen(WAITING), POLICY).action == StartWithoutCache(VOLUME_ID)
    with pytest.raises(InvariantError, match="no operator"):
        check(Decision(before, (StartWithoutCache(VOLUME_ID),)), seen(WAITING), POLICY)
    check(Decision(after, (StartWithoutCache(VOLUME_ID),)), seen(WAITING), POLICY)


@pytest.mark.parametrize(
    ("of", "asked"),
    [
        (boosted(), True),
        (cycle(), False),
        (cycle(times=replace(BOOSTED, detached=NOW)), False),
        (None, False),
    ],
)
def test_a_dropped_backing_device_is_registered_only_where_a_cache_of_ours_was_lost(
    of: Cycle | None, asked: bool
) -> None:
    dropped = replace(host(None), unregistered_backing="vdb")
    for recovered in (True, False):
        found = decide(state(Phase.FAULTED if of else Phase.IDLE, of, recovered=recovered), seen(dropped), POLICY)
        assert (RegisterBacking() in found.actions) is asked
    if not asked:
        with pytest.raises(InvariantError):
            check(Decision(state(Phase.IDLE, of), (RegisterBacking(),)), seen(dropped), POLICY)


def test_a_disk_that_is_back_is_registered_only_once_the_dead_device_is_gone() -> None:
    back = disk(superblock=SET)
    before = wounded(boosted())
    plan = next_action(before, seen(host(WAITING.backing, back)), POLICY)
    assert plan.action == RegisterCache(SERIAL, SET)
    mounted = host(backing(running=True, state=CacheState.DIRTY), back)
    assert next_action(before, seen(mounted), POLICY).action is None


def test_a_volume_that_is_not_marked_clean_and_that_nobody_remembers_is_no_orphan() -> None:
    there = tuple(volume(VolumeState.AVAILABLE, id=f"vol-{tag}", tag=tag) for tag in VolumeTag)
    for given_up, left in (((), ["vol-clean"]), (("vol-clean",), [])):
        of = state(Phase.IDLE, owned=there, given_up=given_up)
        assert [v.id for v in of.orphans] == left
        assert [v.id for v in there if not of.is_kept(v)] == left


# --- an accepted loss is that of one volume, once --------------------------------------------------------

OTHERS = "vol-other"


def test_an_accepted_loss_is_not_that_of_another_volume() -> None:
    before = wounded(boosted(), loss_accepted_for=OTHERS, given_up=(OTHERS,))
    assert not isinstance(next_action(before, seen(WAITING), POLICY).action, StartWithoutCache)
    with pytest.raises(InvariantError, match="no operator"):
        check(Decision(before, (StartWithoutCache(VolumeId(OTHERS)),)), seen(WAITING), POLICY)
    forced = seen(host(backing(state=CacheState.INCONSISTENT)))
    assert danger(before, forced) is not None
    disputed = replace(before, phase=Phase.BOOSTING, cycle=boosted(may_lack_data=True))
    assert danger(disputed, seen(host(backing()))) is not None
    taken_off = replace(before, phase=Phase.DETACHING, cycle=boosted().stamped(detaching=NOW - 9))
    started = recover(taken_off, seen(host(backing())), POLICY)
    assert started is not None
    assert (started[0].phase, started[0].cycle is None) == (Phase.DETACHING, False)
    assert started[0].loss_accepted_for == ""


def test_an_accepted_loss_is_void_once_the_cache_is_back_or_is_asked_for() -> None:
    accepted = wounded(boosted(), loss_accepted_for=VOLUME_ID, given_up=(VOLUME_ID, OTHERS))
    back = decide(accepted, seen(host(cached(), disk(cache_set=SET, superblock=SET, held=True))), POLICY).state
    assert (back.phase, back.loss_accepted_for, back.given_up) == (Phase.BOOSTING, "", (OTHERS,))
    assert ask(accepted, RECOVER)[0].loss_accepted_for == ""
    foreign = recover(accepted, seen(host(cached(cache_set=OTHER_SET))), POLICY)
    assert foreign is not None
    assert (foreign[0].phase, foreign[0].cycle, foreign[0].loss_accepted_for) == (Phase.FAULTED, None, "")


def test_an_accepted_loss_is_used_up_and_the_volume_left_while_it_exists() -> None:
    """The list that was there is older than the volume: it says nothing about it."""
    view = seen(host(backing(state=CacheState.INCONSISTENT)))
    after = decide(wounded(boosted(), loss_accepted_for=VOLUME_ID), view, POLICY).state
    assert (after.phase, after.loss_accepted_for, after.given_up, after.owned) == (Phase.IDLE, "", (VOLUME_ID,), None)
    assert danger(after, view) is None
    assert missing_cache.settle(after, view) == after
    listed = missing_cache.settle(replace(after, owned=(volume(VolumeState.AVAILABLE),)), seen(host(backing())))
    assert (listed.given_up, listed.orphans) == ((VOLUME_ID,), ())
    assert danger(listed, view) is not None, "the tag was gone: this is another one"
    assert missing_cache.settle(replace(after, owned=()), view).given_up == ()


@pytest.mark.parametrize("rebooted", [False, True])
def test_a_volume_that_was_given_up_and_still_exists_costs_the_next_boost_nothing(rebooted: bool) -> None:
    sim = machine(STEADY, "@dirty=vanish attach#2x5=throttle")
    in_phase(sim, Phase.FAULTED)
    sim.run_for(3)
    first = sim.state.cycle.volume_id if sim.state.cycle else None
    assert sim.ask(RequestKind.RECOVER, accepts_loss=True, volume_id=first).accepted
    in_phase(sim, Phase.BOOSTING, 600)
    sim.run_until(lambda: sim.world.kernel.bcache.sb_dirty, 60)
    lost = sim.world.lost()
    sim.world.vanish()
    if rebooted:
        sim.power_cut()
    in_phase(sim, Phase.FAULTED)
    in_phase(sim, Phase.BOOSTING, 600)
    assert intents(sim, "StartWithoutCache") == 1
    assert sim.world.lost() <= lost
    sim.ask(RequestKind.PAUSE)
    sim.run_until(lambda: sim.phase is Phase.IDLE, 900)
    sim.run_for(60)
    assert [v.id for v in sim.world.provider.existing()] == [first]


# --- a device that came up as if clean ------------------------------------------------------------------


def booted(phase: Phase, **changes: Any) -> AgentState:
    return AgentState(phase=phase, cycle=boosted(**changes), boot_id="the boot before")


# No write has gone to the cache since it held nothing.
OUTLIVED = backing(state=CacheState.CLEAN, superblock_set=SET)
BYPASSED = replace(boosted(), dirty_bytes=0).stamped(bypassed=NOW - 5)


@pytest.mark.parametrize("phase", [Phase.BOOSTING, Phase.FLUSHING, Phase.FAULTED])
def test_a_device_whose_dirty_data_was_out_at_the_last_boot_is_not_taken_for_clean(phase: Phase) -> None:
    found = decide(booted(phase), seen(host(backing())), POLICY)
    assert found.state.phase is Phase.FAULTED
    assert found.state.fault is not None
    assert VOLUME_ID in found.state.fault.text
    assert found.actions == ()
    resumed = seen(host(backing()), requests=(Request(RequestKind.RESUME),))
    assert decide(found.state, resumed, POLICY).state.phase is Phase.FAULTED


@pytest.mark.parametrize(
    ("of", "view"),
    [
        (booted(Phase.DETACHING).cycle, backing()),  # the agent took it off
        (boosted(), OUTLIVED),  # in this boot, by the kernel's own word
        (BYPASSED, OUTLIVED),
    ],
)
def test_a_device_that_was_clean_is_not_disputed(of: Cycle, view: BackingView) -> None:
    of = of.stamped(detaching=NOW - 9) if view is not OUTLIVED else of
    before = AgentState(phase=Phase.FLUSHING, cycle=of, boot_id="boot" if view is OUTLIVED else "the boot before")
    found = recover(before, seen(host(view)), POLICY)
    assert found is not None
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
        found = recover(replace(booted(phase), cycle=of), seen(host(OUTLIVED)), POLICY)
        assert found is not None
        assert found[0].cycle is not None
        assert found[0].cycle.may_lack_data is may_lack_data


def test_a_boot_is_noticed_also_by_the_second_start_after_it() -> None:
    """Records of this boot say nothing about when the cache was last seen."""
    before = replace(booted(Phase.BOOSTING, dirty_boot="the boot before"), boot_id="boot")
    found = recover(before, seen(host(backing())), POLICY)
    assert found is not None
    assert found[0].phase is Phase.FAULTED
    again = recover(replace(found[0], recovered=False), seen(host(backing())), POLICY)
    assert again is not None
    assert (again[0].phase, again[0].fault) == (Phase.FAULTED, found[0].fault)


def test_a_dispute_ends_when_the_cache_is_attached_again() -> None:
    disputed = wounded(boosted(may_lack_data=True))
    view = seen(host(cached(), disk(cache_set=SET, superblock=SET, held=True)))
    for found in (decide(disputed, view, POLICY), decide(replace(disputed, recovered=False), view, POLICY)):
        assert found.state.phase is Phase.BOOSTING
        assert found.state.cycle is not None
        assert not found.state.cycle.may_lack_data


def test_a_disputed_device_is_not_said_to_be_brought_back() -> None:
    disputed = wounded(boosted(may_lack_data=True, volume=volume(VolumeState.AVAILABLE)))
    after, answer = ask(disputed, RECOVER, host(backing()))
    assert (answer.accepted, after) == (False, disputed)
    assert "right backing volume" in answer.text
    assert f"--accept-data-loss --volume {VOLUME_ID}" in answer.text
    assert answer.text in ask(disputed, GIVE_UP, host(backing()))[1].text
    assert ask(disputed, RECOVER)[1].accepted, "this device does wait for a cache"


def test_an_operator_settles_the_dispute_by_name_and_the_volume_stays() -> None:
    disputed = wounded(boosted(may_lack_data=True, volume=volume(VolumeState.AVAILABLE)))
    view = host(backing())
    assert not ask(disputed, GIVE_UP, view)[1].accepted
    settled, answer = ask(disputed, BY_NAME, view)
    assert answer.accepted
    event = in_faulted(settled, seen(view), POLICY)
    assert event is not None
    after = decide(settled, seen(view), POLICY).state
    assert (after.phase, after.cycle) == (Phase.IDLE, None)
    listed = replace(after, owned=(volume(VolumeState.AVAILABLE),))
    assert listed.orphans == ()
