"""The next action of each phase."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from elastio.core.actions import (
    Action,
    AttachVolume,
    BypassCache,
    CreateVolume,
    DeleteVolume,
    DescribeVolume,
    DetachVolume,
    EnterPhase2,
    HelpDetach,
    Identify,
    LimitWrites,
    ListVolumes,
    MakeDurable,
    Outcome,
    OutcomeKind,
    PollNotice,
    RegisterBacking,
    RegisterCache,
    StartWithoutCache,
    TagVolume,
    TuneBacking,
    Value,
    WakeWriteback,
)
from elastio.core.cycle import UNKNOWN_S, Backoff, Cycle, Timestamps
from elastio.core.invariants import check
from elastio.core.machine import decide
from elastio.core.model import BackingView, CacheMode, CacheState, HostView, Notice, VolumeState, VolumeTag
from elastio.core.planner import GONE, LAST_S, OVERDUE, POLL_S, SLACK_S, next_action
from elastio.core.policy import LIMITED
from elastio.core.state import AgentState, Decision, Fault, FaultKind, Inhibition, InhibitionReason, Phase
from elastio.core.update import intended
from elastio.errors import InvariantError
from elastio.strategy.spending import Caps
from elastio.units import MB
from tests.values import (
    BOOSTED,
    FAILED_CLEAN,
    FORMATTED,
    HIGH,
    IDENTITY,
    LITTLE,
    MUCH,
    NOW,
    POLICY,
    RELEASED,
    SERIAL,
    SET,
    UNBOUGHT,
    VOLUME_ID,
    WAITS_FOR_DIRTY,
    at_full_speed,
    backing,
    boosted,
    cached,
    cycle,
    disk,
    drained,
    faulted,
    flushing,
    host,
    seen,
    state,
    volume,
)

BESIDE = (CacheMode.WRITETHROUGH, CacheMode.WRITEAROUND)


def released(state_of_volume: VolumeState) -> AgentState:
    """Its disk was released, and the cloud has been polled since."""
    polled = {"DescribeVolume": Backoff(1, NOW)}
    of = cycle(times=RELEASED, volume=volume(state_of_volume), backoffs=polled, tag=VolumeTag.CLEAN)
    return state(Phase.DETACHING, of)


def attached(**changes: Any) -> HostView:
    return host(at_full_speed(**changes), FORMATTED)


MISSING = faulted(boosted(volume=volume(VolumeState.AVAILABLE)))
BACK = disk(superblock=SET)
# The kernel's writeback thread sees no work in what only the index calls dirty, and waits for a write.
LEFT_CLEAN: dict[str, Any] = {"state": CacheState.CLEAN}

PLANS: dict[str, tuple[AgentState, HostView, Action | None]] = {
    "the flush begins in writeback mode": (flushing(), attached(flush_full_speed=False), EnterPhase2()),
    "much is left": (flushing(), attached(), None),
    "a little too much is left": (flushing(), attached(dirty_bytes=LITTLE + 1), None),
    "hardly anything is left": (flushing(), attached(dirty_bytes=LITTLE), BypassCache()),
    "writes bypass already": (flushing(), attached(dirty_bytes=LITTLE, cache_mode=CacheMode.NONE), None),
    "dirty in the index alone": (flushing(), attached(**LEFT_CLEAN), WakeWriteback()),
    "little dirty in the index alone": (flushing(), attached(**LEFT_CLEAN, dirty_bytes=4096), WakeWriteback()),
    "dirty in the index alone, which nothing flushes in the mode that somebody has set": (
        flushing(),
        attached(**LEFT_CLEAN, cache_mode=CacheMode.WRITETHROUGH, dirty_bytes=4096),
        WakeWriteback(),
    ),
    "dirty in the index alone, which only a detach flushes": (
        flushing(),
        attached(**LEFT_CLEAN, cache_mode=CacheMode.WRITEAROUND),
        BypassCache(),
    ),
    "clean": (flushing(), attached(**LEFT_CLEAN, dirty_bytes=0), BypassCache()),
    **{f"dirty in {mode}": (flushing(), attached(cache_mode=mode), None) for mode in BESIDE},
    **{f"flushed in {mode}": (flushing(), attached(cache_mode=mode, dirty_bytes=0), BypassCache()) for mode in BESIDE},
    "a missing cache": (MISSING, WAITS_FOR_DIRTY, AttachVolume(VOLUME_ID)),
    "a missing cache after a broken rule": (
        replace(MISSING, fault=Fault(FaultKind.RULE_BROKEN, "a rule")),
        WAITS_FOR_DIRTY,
        None,
    ),
    "its disk is back": (faulted(boosted()), host(WAITS_FOR_DIRTY.backing, BACK), RegisterCache(SERIAL, SET)),
    "its disk is back, the dead device runs": (
        faulted(boosted()),
        host(backing(running=True, state=CacheState.DIRTY), BACK),
        None,
    ),
    "attached unseen, and failed": (
        state(Phase.DETACHING, cycle(times=Timestamps(registered=NOW - 5))),
        host(FAILED_CLEAN),
        MakeDurable(),
    ),
    "a volume in error, its disk is there": (
        released(VolumeState.ERROR),
        host(backing(), disk()),
        DetachVolume(VOLUME_ID, SERIAL),
    ),
    # A machine that lost its power in the middle of a detach may boot with the disk plugged in again.
    "detached by the cloud, its disk is there": (
        released(VolumeState.AVAILABLE),
        host(backing(), disk()),
        DeleteVolume(VOLUME_ID, SERIAL),
    ),
    "detached": (released(VolumeState.AVAILABLE), host(backing()), DeleteVolume(VOLUME_ID, SERIAL)),
}


@pytest.mark.parametrize("plan", PLANS)
def test_the_next_action(plan: str) -> None:
    before, view, action = PLANS[plan]
    assert decide(before, seen(view), POLICY).actions == (() if action is None else (action,))


@pytest.mark.parametrize("kind", OutcomeKind)
def test_a_wait_of_weeks_is_a_wait_like_any_other(kind: OutcomeKind) -> None:
    of = cycle(times=replace(BOOSTED, detaching=NOW - 9), volume=volume(VolumeState.DETACHING))
    values: dict[Action, Value] = {
        ListVolumes(): (volume(VolumeState.DETACHING),),
        DescribeVolume(VOLUME_ID): volume(VolumeState.DETACHING),
    }
    values |= {DetachVolume(VOLUME_ID, SERIAL): None, TuneBacking(): None}
    of_agent = ("ListVolumes", "TuneBacking")
    for action, value in values.items():
        often = Backoff(100_000, NOW - 1, "" if kind is OutcomeKind.DONE else "no")
        before = state(Phase.DETACHING, of.with_backoff(action, often), backoffs=dict.fromkeys(of_agent, often))
        outcome = Outcome(action, kind, value, error=often.error)
        after = decide(before, seen(host(backing()), outcomes=(outcome,)), POLICY).state
        assert after.phase is Phase.DETACHING
        backoffs = [*after.backoffs.values(), *(after.cycle.backoffs.values() if after.cycle else ())]
        assert all(p.retry_at <= NOW + 60 for p in backoffs)


def test_the_first_failure_after_many_good_polls_is_a_first_one() -> None:
    before = state(Phase.IDLE, backoffs={"ListVolumes": Backoff(5000, NOW - 1)})
    failed_now = (Outcome(ListVolumes(), OutcomeKind.RETRY, error="throttled"),)
    after = decide(before, seen(host(backing()), outcomes=failed_now), POLICY).state
    assert after.backoff_of("ListVolumes").retry_at <= NOW + 2


def test_an_idle_agent_asks_once_who_it_is_and_again_later_when_it_is_not_told() -> None:
    unknown = replace(state(Phase.IDLE), identity=None)
    view = host(backing())
    assert decide(unknown, seen(view), POLICY).actions == (Identify(),)

    told = Outcome(Identify(), OutcomeKind.DONE, IDENTITY)
    known = decide(unknown, seen(view, outcomes=(told,)), POLICY)
    assert known.state.identity == IDENTITY
    assert known.actions == ()

    silent = Outcome(Identify(), OutcomeKind.RETRY, error="no answer")
    waiting = decide(unknown, seen(view, outcomes=(silent,)), POLICY)
    assert waiting.actions == ()
    assert decide(waiting.state, replace(seen(view), now=NOW + 61), POLICY).actions == (Identify(),)


def actions(before: AgentState, view: BackingView) -> tuple[object, ...]:
    return decide(before, seen(host(view, FORMATTED)), POLICY).actions


def test_the_next_scan_is_when_little_will_be_left() -> None:
    for dirty, wait_s in ((MUCH, 1.0), (int(1.5 * LITTLE), 0.5 * LAST_S), (LITTLE + 1, POLL_S)):
        found = decide(flushing(), seen(host(at_full_speed(dirty_bytes=dirty), FORMATTED)), POLICY)
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
    found = decide(before, seen(host(view, FORMATTED)), POLICY)
    assert found.actions == (LimitWrites(None),)
    assert found.state.phase is phase


NOTICED = replace(POLICY, notice_poll_s=5.0)
ON_ITS_WAY = replace(cycle(volume=volume(VolumeState.ATTACHING), cache_set=None), tag=VolumeTag.DIRTY)


@pytest.mark.parametrize(
    ("asked", "notice", "is_polled"),
    [(None, None, False), (NOW - 60, None, True), (None, Notice("stop", NOW + 60), True)],
    ids=["the volume is not being attached", "it is", "a notice may be withdrawn"],
)
def test_no_call_of_an_attach_waits_for_a_first_notice(
    asked: float | None, notice: Notice | None, is_polled: bool
) -> None:
    times = Timestamps(decided=NOW, created=NOW, asked=asked)
    quiet = replace(ON_ITS_WAY, backoffs={"DescribeVolume": Backoff(1, NOW + 60)}, times=times)
    before = replace(state(Phase.ATTACHING, quiet), notice=notice)
    found = next_action(before, seen(host(backing())), NOTICED).action
    assert (found == PollNotice()) is is_polled


def test_notices_are_polled_for_a_cache_that_another_run_or_machine_has_attached() -> None:
    before = state(Phase.BOOSTING, replace(boosted(), times=replace(BOOSTED, asked=None)))
    assert next_action(before, seen(host(cached(writeback_running=False))), NOTICED).action == PollNotice()


def test_the_device_is_started_without_its_cache_only_after_that_decision() -> None:
    before = faulted(boosted(volume=volume(VolumeState.AVAILABLE)))
    assert not isinstance(next_action(before, seen(WAITS_FOR_DIRTY), POLICY).action, StartWithoutCache)
    after = replace(before, loss_accepted_for=VOLUME_ID)
    assert next_action(after, seen(WAITS_FOR_DIRTY), POLICY).action == StartWithoutCache(VOLUME_ID)
    with pytest.raises(InvariantError):
        check(Decision(before, (StartWithoutCache(VOLUME_ID),)), seen(WAITS_FOR_DIRTY), POLICY)
    check(Decision(after, (StartWithoutCache(VOLUME_ID),)), seen(WAITS_FOR_DIRTY), POLICY)


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


@pytest.mark.parametrize("released", [None, NOW - 1])
def test_without_proof_of_the_release_no_volume_is_tagged_clean(released: float | None) -> None:
    """An agent that was killed right after the release does not know of it."""
    of = boosted(volume=volume(VolumeState.DETACHING), backoffs={"DescribeVolume": Backoff(3, NOW + 9)})
    of = replace(of, times=replace(BOOSTED, detached=NOW - 2, released=released))
    action = next_action(state(Phase.DETACHING, of), seen(host(backing())), replace(POLICY, tags_volumes=True)).action
    assert isinstance(action, TagVolume) is (released is not None)


def test_a_cache_whose_tag_may_have_become_clean_is_tagged_dirty_again() -> None:
    """It was installed late, when its boost had been given up, and the answer to the tag was lost."""
    of, policy = boosted(tag=VolumeTag.DIRTY), replace(POLICY, tags_volumes=True)
    asked = intended(state(Phase.DETACHING, of), TagVolume(VOLUME_ID, VolumeTag.CLEAN), NOW)
    for before, expected in ((asked.cycle, TagVolume(VOLUME_ID, VolumeTag.DIRTY)), (of, None)):
        plan = next_action(
            state(Phase.BOOSTING, before), seen(host(cached(writeback_running=False), FORMATTED)), policy
        )
        assert plan.action == expected


@pytest.mark.parametrize(("waited_s", "helped"), [(9.9, False), (10.0, True)])
def test_a_detach_is_helped_only_when_it_has_waited_long_enough(waited_s: float, helped: bool) -> None:
    of = cycle(times=replace(BOOSTED, clean=NOW - waited_s))
    view = host(drained(state=CacheState.NO_CACHE), FORMATTED)
    plan = next_action(state(Phase.DETACHING, of), seen(view), replace(POLICY, detach_throttle_after_s=10.0))
    assert (plan.action == HelpDetach()) is helped
    assert plan.wake_at == (None if helped else NOW + 0.25)


@pytest.mark.parametrize(("retry_at", "wake_at"), [(NOW + 5.0, NOW + 5.0), (float("inf"), None)])
def test_a_poll_for_a_notice_is_waited_for_where_there_will_be_one(retry_at: float, wake_at: float | None) -> None:
    before = state(Phase.BOOSTING, boosted(), backoffs={"PollNotice": Backoff(0, retry_at)})
    view = host(cached(writeback_running=False), FORMATTED)
    plan = next_action(before, seen(view), replace(POLICY, notice_poll_s=5.0))
    assert (plan.action, plan.wake_at) == (None, wake_at)


@pytest.mark.parametrize(
    ("stamps", "phase"),
    [
        ({"detaching": NOW - 9}, Phase.DETACHING),
        ({"detaching": NOW - UNKNOWN_S}, Phase.IDLE),
        ({"detaching": NOW - 9, "deleted": NOW - 1}, Phase.IDLE),
    ],
)
def test_a_disk_that_lingers_after_its_volume_is_gone_holds_nothing_up_for_long(
    stamps: dict[str, float], phase: Phase
) -> None:
    """Nobody here has deleted it: it may be another project that the cloud shows."""
    lingers = host(backing(), disk(superblock=SET, held=True))
    of = state(Phase.DETACHING, replace(boosted(), volume=volume(VolumeState.GONE)).stamped(**stamps))
    first = decide(of, seen(lingers), POLICY)
    assert first.actions == (MakeDurable(),)
    done = Outcome(MakeDurable(), OutcomeKind.DONE)
    assert decide(first.state, seen(lingers, outcomes=(done,)), POLICY).state.phase is phase


@pytest.mark.parametrize("phase", [Phase.BOOSTING, Phase.FLUSHING])
def test_a_disk_that_is_gone_and_not_missed_by_the_kernel_is_reported(phase: Phase) -> None:
    linked = cached(flush_full_speed=phase is Phase.FLUSHING)
    of = state(phase, boosted(), flush_mb_s=None)
    plans = [next_action(of, seen(host(linked, *there)), POLICY) for there in ((), (disk(superblock=SET),))]
    assert [plan.waiting_for == GONE for plan in plans] == [True, False]
    assert not isinstance(plans[0].action, LimitWrites)


@pytest.mark.parametrize(("asked_at", "ago_s"), [(None, None), (NOW - 5, 5.0), (NOW + 1e6, 0.0)])
def test_a_purchase_says_how_long_ago_it_was_requested_without_an_answer(
    asked_at: float | None, ago_s: float | None
) -> None:
    before = state(Phase.ATTACHING, replace(UNBOUGHT, create_unconfirmed_at=asked_at), load=HIGH)
    (create,) = decide(before, seen(host(backing())), POLICY).actions
    assert isinstance(create, CreateVolume)
    assert create.unconfirmed_s == ago_s


@pytest.mark.parametrize(
    ("caps", "needs_price"),
    [
        (Caps(), False),
        (Caps(max_boosts_per_day=5, max_agbs_per_month=1e9), False),
        (Caps(max_cost_per_day=1.0), True),
        (Caps(max_cost_per_month=1.0), True),
    ],
)
def test_under_a_cap_on_cost_a_purchase_needs_a_price(caps: Caps, needs_price: bool) -> None:
    (create,) = decide(state(Phase.ATTACHING, UNBOUGHT), seen(host(backing())), replace(POLICY, caps=caps)).actions
    assert isinstance(create, CreateVolume)
    assert create.needs_price is needs_price
