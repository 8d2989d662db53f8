"""When the tombstone of an adopted volume is written and tombstone_removed."""

from __future__ import annotations

from dataclasses import replace

from elastio.core.actions import (
    HELD_MB_S,
    Action,
    InstallCache,
    ListVolumes,
    Outcome,
    OutcomeKind,
    RemoveTombstone,
    Worker,
    WriteTombstone,
)
from elastio.core.cycle import Backoff
from elastio.core.machine import decide
from elastio.core.model import BackingView, CacheState, VolumeState, VolumeTag
from elastio.core.release import tombstone_removed
from elastio.core.state import AgentState, Fault, FaultKind, Listed, Phase
from tests.values import IDENTITY, NOW, POLICY, backing, cycle, disk, host, seen, state, volume

ON_ITS_WAY = replace(cycle(volume=volume(VolumeState.ATTACHING), cache_set=None), tag=VolumeTag.DIRTY)


def awaiting(before: AgentState, view: BackingView) -> tuple[Action, ...]:
    """What is done while the disk does not show yet."""
    return decide(before, seen(host(view)), POLICY).actions


BARE, COVERED = backing(has_tombstone=False), backing(has_tombstone=True)


def test_a_tombstone_is_written_when_the_disk_is_there_or_writes_are_held_back_for_it() -> None:
    """What it holds back is in flight afterwards, so nothing may pass before the attach."""
    quiet = replace(ON_ITS_WAY, backoffs={"DescribeVolume": Backoff(1, NOW + 60)})
    before = replace(state(Phase.ATTACHING, quiet), appear_s=(20.0,))  # as long ago as the decision
    assert awaiting(replace(before, appear_s=()), BARE) == ()
    held = replace(BARE, write_limit_mb_s=HELD_MB_S)
    assert awaiting(before, held) == (WriteTombstone(),)
    assert decide(before, replace(seen(host(held)), busy=frozenset({Worker.CLOUD})), POLICY).actions == (
        WriteTombstone(),
    )
    for view in (COVERED, backing()):
        assert awaiting(before, replace(view, write_limit_mb_s=HELD_MB_S)) == ()


def test_no_cache_is_installed_before_the_tombstone_is_there() -> None:
    before = state(Phase.ATTACHING, ON_ITS_WAY)
    assert decide(before, seen(host(BARE, disk())), POLICY).actions == (WriteTombstone(),)
    failed = {"WriteTombstone": Backoff(1, NOW + 5, "busy")}
    waiting = replace(before, cycle=replace(ON_ITS_WAY, backoffs=failed))
    assert decide(waiting, seen(host(BARE, disk())), POLICY).actions == ()
    assert isinstance(decide(before, seen(host(COVERED, disk())), POLICY).actions[0], InstallCache)


def test_a_tombstone_that_is_refused_gives_the_boost_up() -> None:
    before = state(Phase.ATTACHING, ON_ITS_WAY)
    outcome = Outcome(WriteTombstone(), OutcomeKind.REFUSED, error="not ours", code="tombstone.other")
    found = decide(before, replace(seen(host(BARE)), outcomes=(outcome,)), POLICY)
    assert found.state.phase is Phase.DETACHING


def test_an_idle_agent_makes_the_volume_a_plain_filesystem_again_and_tries_later_where_that_fails() -> None:
    before = replace(state(Phase.IDLE, None), listed=Listed(NOW, NOW + 600), identity=IDENTITY)
    assert decide(before, seen(host(COVERED)), POLICY).actions == (RemoveTombstone(),)
    for view in (BARE, backing(), replace(COVERED, state=CacheState.CLEAN)):
        assert RemoveTombstone() not in decide(before, seen(host(view)), POLICY).actions
    accepted = replace(before, is_stale_accepted=True)
    after = decide(accepted, seen(host(replace(COVERED, state=CacheState.INCONSISTENT))), POLICY)
    assert (after.state.phase, after.actions) == (Phase.IDLE, ()), "the kernel would attach the lost cache by itself"
    stopped = replace(before, phase=Phase.FAULTED, fault=Fault(FaultKind.CACHE_MISSING, "a copy may be there"))
    assert RemoveTombstone() not in decide(stopped, seen(host(COVERED)), POLICY).actions
    assert tombstone_removed(stopped, seen(host(COVERED))).action is None
    outcome = Outcome(RemoveTombstone(), OutcomeKind.RETRY, error="busy", code="adopt.lock")
    after = decide(before, replace(seen(host(COVERED)), outcomes=(outcome,)), POLICY)
    assert after.actions == ()
    assert after.state.backoff_of("RemoveTombstone").tries == 1
    listed = replace(before.with_backoff("RemoveTombstone", Backoff(1, NOW + 5)), listed=None)
    assert decide(listed, seen(host(COVERED)), POLICY).actions == (ListVolumes(),), "it holds up nothing else"
