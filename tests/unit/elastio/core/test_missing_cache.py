"""A missing cache: what an operator may decide, and what an accepted loss permits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elastio.core import missing_cache
from elastio.core.actions import ListForBacking, Outcome, OutcomeKind, StartWithoutCache
from elastio.core.cycle import NO_BACKOFF, UNKNOWN_VOLUME, Backoff, Cycle
from elastio.core.detection import danger, in_faulted
from elastio.core.invariants import check
from elastio.core.machine import decide
from elastio.core.model import CacheState, HostView, Request, RequestKind, Volume, VolumeId, VolumeState, VolumeTag
from elastio.core.planner import next_action
from elastio.core.recovery import recover
from elastio.core.state import AgentState, Answer, Decision, Fault, FaultKind, Phase
from elastio.errors import InvariantError
from elastio.strategy.situation import Wish
from tests.values import (
    FORMATTED,
    NOW,
    OTHER_SET,
    POLICY,
    SET,
    VOLUME_ID,
    WAITS_FOR_DIRTY,
    backing,
    boosted,
    cached,
    cycle,
    faulted,
    host,
    present,
    seen,
    state,
    volume,
)

RECOVER = Request(RequestKind.RECOVER)
GIVE_UP = Request(RequestKind.RECOVER, accepts_loss=True)
BY_NAME = replace(GIVE_UP, volume_id=VOLUME_ID)


def ask(of: AgentState, request: Request, view: HostView = WAITS_FOR_DIRTY) -> tuple[AgentState, Answer]:
    return missing_cache.answer(of, request, seen(view))


def test_recover_says_which_volume_is_needed_and_what_only_it_holds() -> None:
    after, answer = ask(faulted(boosted()), RECOVER)
    assert answer.accepted
    assert after.loss_accepted_for == ""
    assert all(text in answer.text for text in (VOLUME_ID, "1.0 GiB", "2.0 GiB"))


@pytest.mark.parametrize(
    ("of", "view"),
    [
        (state(Phase.BOOSTING, boosted()), host(cached())),
        (state(Phase.IDLE), host(backing())),
        (faulted(boosted(), fault=Fault(FaultKind.RULE_BROKEN, "a rule")), host(None)),
        (faulted(cycle()), host(None)),
    ],
)
def test_without_a_missing_cache_nothing_is_recovered_or_given_up(of: AgentState, view: HostView) -> None:
    for request in (RECOVER, GIVE_UP, BY_NAME):
        after, answer = ask(of, request, view)
        assert not answer.accepted
        assert after == of


def test_a_device_that_is_not_seen_differs_from_one_that_is_not_there() -> None:
    of = state(Phase.FLUSHING, boosted())
    unseen, absent = (missing_cache.answer(of, RECOVER, seen(view)) for view in (None, host(None)))
    assert [(after, answer.accepted) for after, answer in (unseen, absent)] == [(of, False)] * 2
    assert unseen[1].text != absent[1].text


def test_what_a_start_by_force_left_behind_is_given_up_by_its_name_alone() -> None:
    inconsistent = host(backing(state=CacheState.INCONSISTENT))
    for request in (RECOVER, GIVE_UP):
        after, answer = ask(faulted(boosted()), request, inconsistent)
        assert (answer.accepted, after) == (False, faulted(boosted()))
        assert VOLUME_ID in answer.text
    ordered, answer = ask(faulted(boosted()), BY_NAME, inconsistent)
    assert answer.accepted
    after = decide(ordered, seen(inconsistent), POLICY).state
    assert (after.phase, after.given_up, after.cycle) == (Phase.IDLE, (VOLUME_ID,), None)


@pytest.mark.parametrize("view", [host(None), None])
def test_a_device_that_is_not_registered_yet_is_brought_back_and_not_given_up(view: HostView | None) -> None:
    """Right after the umount the kernel has dropped it, and the agent is about to register it again."""
    after, answer = missing_cache.answer(faulted(boosted()), RECOVER, seen(view))
    assert answer.accepted
    assert VOLUME_ID in answer.text
    after, answer = missing_cache.answer(faulted(boosted()), BY_NAME, seen(view))
    assert (answer.accepted, after.loss_accepted_for) == (False, "")


def test_a_wrong_choice_among_the_volumes_can_be_put_right_until_the_kernel_has_confirmed_it() -> None:
    there = (volume(VolumeState.AVAILABLE), volume(VolumeState.AVAILABLE, id="vol-2"))
    other = replace(RECOVER, volume_id="vol-2")
    chosen, _ = ask(faulted(owned=there), replace(RECOVER, volume_id=VOLUME_ID))
    after, answer = ask(chosen, other)
    assert answer.accepted
    assert after.cycle is not None
    assert (after.cycle.volume_id, after.cycle.times.boosted) == ("vol-2", NOW)
    assert not ask(replace(chosen, cycle=replace(present(chosen.cycle), cache_set=SET)), other)[1].accepted
    assert not ask(faulted(boosted(cache_set=None), owned=there), other)[1].accepted


@pytest.mark.parametrize(
    ("owned", "adopted"),
    [((volume(VolumeState.AVAILABLE), volume(VolumeState.GONE)), (VOLUME_ID, NOW)), ((), None), (None, None)],
)
def test_the_one_volume_of_this_device_is_adopted_where_the_journal_knows_none_and_no_guess_is_made(
    owned: tuple[Volume, ...] | None, adopted: tuple[VolumeId, float] | None
) -> None:
    after, answer = ask(faulted(owned=owned), RECOVER)
    assert answer.accepted is (adopted is not None)
    assert (after.cycle and (after.cycle.volume_id, after.cycle.times.boosted)) == adopted


def test_between_several_volumes_an_operator_chooses() -> None:
    there = (volume(VolumeState.AVAILABLE), volume(VolumeState.AVAILABLE, id="vol-2"))
    after, answer = ask(faulted(owned=there), RECOVER)
    assert not answer.accepted
    assert "vol-2" in answer.text
    assert after.cycle is None
    after, answer = ask(faulted(owned=there), replace(RECOVER, volume_id="vol-2"))
    assert present(after.cycle).volume_id == "vol-2"


@pytest.mark.parametrize("there", [s for s in VolumeState if s is not VolumeState.GONE])
def test_nothing_is_given_up_while_the_volume_exists(there: VolumeState) -> None:
    before = faulted(boosted(volume=volume(there)))
    for request in (GIVE_UP, replace(GIVE_UP, volume_id="vol-other")):
        after, answer = ask(before, request)
        assert not answer.accepted
        assert VOLUME_ID in answer.text
        assert after == before
    assert ask(before, BY_NAME)[0].loss_accepted_for == VOLUME_ID


def test_a_volume_that_is_gone_may_be_given_up_without_a_name() -> None:
    after, answer = ask(faulted(boosted(volume=volume(VolumeState.GONE))), GIVE_UP)
    assert answer.accepted
    assert after.loss_accepted_for == VOLUME_ID
    assert "1.0 GiB" in answer.text


def test_nothing_is_given_up_under_a_mount() -> None:
    mounted = host(backing(running=True, state=CacheState.DIRTY))
    assert not ask(faulted(boosted(volume=volume(VolumeState.GONE))), GIVE_UP, mounted)[1].accepted


def test_what_nobody_remembers_is_given_up_only_when_no_volume_is_left() -> None:
    assert not ask(faulted(owned=None), GIVE_UP)[1].accepted
    assert not ask(faulted(owned=(volume(VolumeState.AVAILABLE),)), GIVE_UP)[1].accepted
    assert ask(faulted(owned=()), GIVE_UP)[0].loss_accepted_for == UNKNOWN_VOLUME
    assert ask(faulted(owned=(volume(VolumeState.AVAILABLE),)), BY_NAME)[0].loss_accepted_for == VOLUME_ID


OTHERS = "vol-other"
DIRTY = volume(VolumeState.AVAILABLE, id=VolumeId(OTHERS), tag=VolumeTag.DIRTY)
GONE = boosted(volume=volume(VolumeState.GONE))


@pytest.mark.parametrize("of", [None, GONE, boosted(volume_id=None, volume=None)], ids=["none", "gone", "not bought"])
@pytest.mark.parametrize("tag", [VolumeTag.DIRTY, VolumeTag.UNKNOWN])
def test_no_loss_is_accepted_without_a_name_beside_a_volume_that_is_not_clean_whoever_owns_it(
    of: Cycle | None, tag: VolumeTag
) -> None:
    before = faulted(of, for_backing=(replace(DIRTY, tag=tag),))
    after, answer = ask(before, GIVE_UP)
    assert (after, answer.accepted, answer.code) == (before, False, "recover.volume_id")
    assert all(text in answer.text for text in (f"--foreign {OTHERS}", "10.0 GiB", "1 min 40 s old"))
    assert ask(before, replace(GIVE_UP, volume_id=(of and of.volume_id) or OTHERS))[1].accepted


@pytest.mark.parametrize(
    "there",
    [
        replace(DIRTY, tag=VolumeTag.CLEAN),
        replace(DIRTY, state=VolumeState.DELETING),
        replace(DIRTY, id=VolumeId("vol-given-up")),
    ],
)
def test_what_is_clean_or_gone_or_was_given_up_before_hinders_nothing(there: Volume) -> None:
    before = faulted(GONE, for_backing=(there,), given_up=(VolumeId("vol-given-up"),))
    assert ask(before, GIVE_UP)[1].accepted


def test_no_loss_is_accepted_without_a_name_before_the_cloud_has_listed_all_owners() -> None:
    before = faulted(GONE, for_backing=None, backoffs={"ListForBacking": Backoff(1, NOW + 9, "throttled")})
    after, answer = ask(before, GIVE_UP)
    assert (after, answer.accepted, answer.code) == (before, False, "cloud.unlisted")
    assert "throttled" in answer.text
    assert ask(before, BY_NAME)[1].accepted, "a cloud that cannot list them hinders no order with a name"


def test_volume_of_another_owner_may_be_given_up_beside_own_ones() -> None:
    before = faulted(owned=(volume(VolumeState.AVAILABLE),), for_backing=(DIRTY,))
    assert ask(before, replace(GIVE_UP, volume_id=OTHERS))[0].loss_accepted_for == OTHERS
    assert not ask(before, replace(GIVE_UP, volume_id="vol-unknown"))[1].accepted


LIST = ListForBacking()


def test_volumes_of_all_owners_are_listed_each_minute_while_a_cache_is_missing() -> None:
    unlisted = faulted(owned=(), for_backing=None, backoffs={})
    assert next_action(unlisted, seen(WAITS_FOR_DIRTY), POLICY).action == LIST
    stopped = replace(unlisted, fault=Fault(FaultKind.RULE_BROKEN, "a rule"))
    assert next_action(stopped, seen(WAITS_FOR_DIRTY), POLICY).action is None
    done = Outcome(LIST, OutcomeKind.DONE, (DIRTY,))
    listed = missing_cache.settle(unlisted, seen(WAITS_FOR_DIRTY, outcomes=(done,)))
    assert listed.for_backing == (DIRTY,)
    assert next_action(listed, seen(WAITS_FOR_DIRTY), POLICY).action != LIST
    later = seen(WAITS_FOR_DIRTY, now=NOW + 80)
    assert next_action(listed, later, POLICY).action == LIST
    failed = missing_cache.settle(listed, replace(later, outcomes=(Outcome(LIST, OutcomeKind.RETRY, error="no"),)))
    assert (failed.for_backing, failed.backoff_of("ListForBacking").error) == (None, "no")


@pytest.mark.parametrize("of", [state(Phase.IDLE), state(Phase.BOOSTING, boosted())])
def test_list_of_an_earlier_fault_is_not_used_for_the_next(of: AgentState) -> None:
    old = replace(of, for_backing=(), backoffs={"ListForBacking": Backoff(0, NOW + 60)})
    assert missing_cache.settle(old, seen(host(backing()))) == of.with_backoff(LIST, NO_BACKOFF)
    assert next_action(of, seen(host(backing())), POLICY).action != LIST


def test_an_accepted_loss_is_not_that_of_another_volume() -> None:
    before = faulted(boosted(), loss_accepted_for=OTHERS, given_up=(OTHERS,))
    assert not isinstance(next_action(before, seen(WAITS_FOR_DIRTY), POLICY).action, StartWithoutCache)
    with pytest.raises(InvariantError):
        check(Decision(before, (StartWithoutCache(VolumeId(OTHERS)),)), seen(WAITS_FOR_DIRTY), POLICY)
    forced = seen(host(backing(state=CacheState.INCONSISTENT)))
    assert danger(before, forced) is not None
    lacking = replace(before, phase=Phase.BOOSTING, cycle=boosted(may_lack_data=True))
    assert danger(lacking, seen(host(backing()))) is not None
    taken_off = replace(before, phase=Phase.DETACHING, cycle=boosted().stamped(detaching=NOW - 9))
    started = present(recover(taken_off, seen(host(backing()))))
    assert (started[0].phase, started[0].cycle is None) == (Phase.DETACHING, False)
    assert started[0].loss_accepted_for == ""


def test_an_accepted_loss_is_void_once_the_cache_is_back_or_is_asked_for() -> None:
    accepted = faulted(boosted(), loss_accepted_for=VOLUME_ID, given_up=(VOLUME_ID, OTHERS))
    back = decide(accepted, seen(host(cached(), FORMATTED)), POLICY).state
    assert (back.phase, back.loss_accepted_for, back.given_up) == (Phase.BOOSTING, "", (OTHERS,))
    assert ask(accepted, RECOVER)[0].loss_accepted_for == ""
    foreign = present(recover(accepted, seen(host(cached(cache_set=OTHER_SET)))))
    assert (foreign[0].phase, foreign[0].cycle, foreign[0].loss_accepted_for) == (Phase.FAULTED, None, "")


def test_an_accepted_loss_is_used_up_and_the_volume_left_while_it_exists() -> None:
    """The list that was there is older than the volume: it says nothing about it."""
    view = seen(host(backing(state=CacheState.INCONSISTENT)))
    accepted = faulted(boosted(), loss_accepted_for=VOLUME_ID, for_backing=None, backoffs={})
    after = decide(accepted, view, POLICY).state
    assert (after.phase, after.loss_accepted_for, after.given_up, after.owned) == (Phase.IDLE, "", (VOLUME_ID,), None)
    assert danger(after, view) is None
    assert missing_cache.settle(after, view) == after
    listed = missing_cache.settle(replace(after, owned=(volume(VolumeState.AVAILABLE),)), seen(host(backing())))
    assert (listed.given_up, listed.orphans) == ((VOLUME_ID,), ())
    assert danger(listed, view) is not None, "the tag was gone: this is another one"
    assert missing_cache.settle(replace(after, owned=()), view).given_up == ()


def test_a_device_lacks_no_data_once_its_cache_is_attached_again() -> None:
    lacking = faulted(boosted(may_lack_data=True))
    view = seen(host(cached(), FORMATTED))
    for found in (decide(lacking, view, POLICY), decide(replace(lacking, recovered=False), view, POLICY)):
        assert found.state.phase is Phase.BOOSTING
        assert not present(found.state.cycle).may_lack_data


def test_a_device_that_may_lack_data_is_not_said_to_be_brought_back() -> None:
    lacking = faulted(boosted(may_lack_data=True, volume=volume(VolumeState.AVAILABLE)))
    after, answer = ask(lacking, RECOVER, host(backing()))
    assert (answer.accepted, after) == (False, lacking)
    assert f"--accept-data-loss --volume {VOLUME_ID}" in answer.text
    assert answer.text in ask(lacking, GIVE_UP, host(backing()))[1].text
    assert ask(lacking, RECOVER)[1].accepted, "this device does wait for a cache"


def test_an_operator_accepts_the_loss_by_name_and_the_volume_stays() -> None:
    lacking = faulted(boosted(may_lack_data=True, volume=volume(VolumeState.AVAILABLE)))
    view = host(backing())
    assert not ask(lacking, GIVE_UP, view)[1].accepted
    settled, answer = ask(lacking, BY_NAME, view)
    assert answer.accepted
    assert in_faulted(settled, seen(view), Wish(POLICY)) is not None
    after = decide(settled, seen(view), POLICY).state
    assert (after.phase, after.cycle) == (Phase.IDLE, None)
    listed = replace(after, owned=(volume(VolumeState.AVAILABLE),))
    assert listed.orphans == ()
