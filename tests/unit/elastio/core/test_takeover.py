"""The order to take a volume over: what the planner makes of it, and of the disk that appears then."""

from __future__ import annotations

import pytest

from elastio.core.actions import Action, Outcome, OutcomeKind, RegisterCache, TakeOverVolume
from elastio.core.machine import decide
from elastio.core.model import CacheSetUuid, CacheState, Request, RequestKind, VolumeState, VolumeTag
from elastio.core.planner import next_action
from elastio.core.state import AgentState, Listed, Phase, TakeOver
from tests.values import (
    NOW,
    OTHER_SET,
    POLICY,
    SERIAL,
    SET,
    VOLUME_ID,
    backing,
    boosted,
    disk,
    host,
    present,
    seen,
    state,
    volume,
)

WAITING = backing(state=CacheState.DIRTY, running=False, superblock_set=SET)
ORDERED = state(Phase.FAULTED, None, owned=(), listed=Listed(NOW, NOW + 900), take_over=TakeOver(VOLUME_ID))
TAKE = TakeOverVolume(VOLUME_ID, POLICY.backing_uuid, SET, is_attached=False)
ORDER = Request(RequestKind.RECOVER, volume_id=VOLUME_ID, is_foreign=True)


def test_order_asks_for_the_volume_whose_set_the_superblock_names() -> None:
    assert next_action(ORDERED, seen(host(WAITING)), POLICY).action == TAKE
    attached = backing(cache_set=SET, state=CacheState.DIRTY)
    assert next_action(ORDERED, seen(host(attached)), POLICY).action == TakeOverVolume(VOLUME_ID, "uuid", SET, True)


def after(kind: OutcomeKind, value: object = None, error: str = "", code: str = "") -> AgentState:
    outcome = Outcome(TAKE, kind, value, error, code=code)  # type: ignore[arg-type]
    return decide(ORDERED, seen(host(WAITING), outcomes=(outcome,)), POLICY).state


def test_volume_that_was_taken_over_is_a_missing_cache_that_is_brought_back_and_flushed() -> None:
    taken = after(OutcomeKind.DONE, volume(VolumeState.AVAILABLE, tag=VolumeTag.DIRTY))
    cycle = present(taken.cycle)
    assert (cycle.volume_id, cycle.serial, cycle.forced, cycle.tag) == (VOLUME_ID, SERIAL, True, VolumeTag.DIRTY)
    assert cycle.may_be_attached
    assert (taken.phase, taken.take_over) == (Phase.FAULTED, None)


def test_refusal_is_kept_for_who_asked_and_nothing_is_tried_again() -> None:
    refused = after(OutcomeKind.REFUSED, error="no", code="volume.owner")
    assert (refused.cycle, present(refused.take_over).refused, present(refused.take_over).code) == (
        None,
        "no",
        "volume.owner",
    )
    assert next_action(refused, seen(host(WAITING)), POLICY).action is None


@pytest.mark.parametrize("kind", [OutcomeKind.RETRY, OutcomeKind.UNKNOWN])
def test_order_without_an_answer_is_repeated_later(kind: OutcomeKind) -> None:
    waiting = after(kind, error="throttled")
    plan = next_action(waiting, seen(host(WAITING)), POLICY)
    assert plan.action is None
    assert next_action(waiting, seen(host(WAITING), now=NOW + 60), POLICY).action == TAKE


@pytest.mark.parametrize(
    ("carried", "action"), [(SET, RegisterCache(SERIAL, SET)), (OTHER_SET, None)], ids=["its set", "another set"]
)
def test_only_the_set_that_the_superblock_names_is_registered(carried: CacheSetUuid, action: Action | None) -> None:
    before = state(Phase.FAULTED, boosted())
    plan = next_action(before, seen(host(WAITING, disk(superblock=carried))), POLICY)
    assert plan.action == action


def test_superblock_that_cannot_be_read_proves_nothing() -> None:
    unread = backing(state=CacheState.DIRTY, running=False)
    decision = decide(state(Phase.FAULTED, None), seen(host(unread), requests=(ORDER,)), POLICY)
    assert (decision.answers[0].accepted, decision.answers[0].code) == (False, "device.unknown")


def test_device_that_is_in_use_is_unmounted_first() -> None:
    running = backing(state=CacheState.DIRTY, superblock_set=SET)
    decision = decide(state(Phase.FAULTED, None), seen(host(running), requests=(ORDER,)), POLICY)
    assert (decision.answers[0].code, decision.state.take_over) == ("device.in_use", None)
