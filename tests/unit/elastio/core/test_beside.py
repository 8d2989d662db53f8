"""What is due beside the next action of a phase: the depth of the disks' queues, and the shares of cgroups."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elastio.core import capacity, polling
from elastio.core.actions import Action, BypassCache, Outcome, OutcomeKind, SetFlush, SetShares, TuneBacking
from elastio.core.cycle import Backoff
from elastio.core.machine import decide
from elastio.core.model import CacheState, Depth, HostView, Rates, Sample
from elastio.core.shares import SharePlan
from elastio.core.state import AgentState, Fault, FaultKind, Phase
from tests.values import (
    FORMATTED,
    LITTLE,
    NOW,
    POLICY,
    SET,
    at_full_speed,
    backing,
    boosted,
    cached,
    disk,
    faulted,
    flushing,
    host,
    seen,
    state,
    volume,
)

DEEP = Depth(64, 32)
BROKEN = Fault(FaultKind.RULE_BROKEN, "a rule")
FLUSHED = host(at_full_speed(depth=DEEP), FORMATTED)
WITHOUT_CACHE = host(backing(running=True, state=CacheState.DIRTY, depth=DEEP), disk(superblock=SET))
DEPTHS: dict[str, tuple[AgentState, HostView, tuple[Action, ...]]] = {
    "at rest": (state(Phase.IDLE), host(backing(depth=DEEP)), (TuneBacking(DEEP),)),
    "while a flush goes on": (flushing(), FLUSHED, (TuneBacking(DEEP),)),
    "not before a step": (flushing(), host(at_full_speed(dirty_bytes=LITTLE, depth=DEEP), FORMATTED), (BypassCache(),)),
    "not after a broken rule": (replace(flushing(), fault=BROKEN), FLUSHED, ()),
    "not without the cache": (faulted(boosted()), WITHOUT_CACHE, ()),
}


@pytest.mark.parametrize("case", DEPTHS)
def test_the_depth_follows_the_load_where_nothing_waits_for_it(case: str) -> None:
    before, view, actions = DEPTHS[case]
    assert decide(before, seen(view), POLICY).actions == actions


@pytest.mark.parametrize(
    ("last", "actions"),
    [
        (Backoff(0, NOW + 2), (SetShares(None),)),
        (Backoff(3, NOW + 2, "no"), ()),
        (Backoff(3, NOW, "no"), (SetShares(None),)),
    ],
)
def test_shares_end_at_once_and_again_later_where_that_failed(last: Backoff, actions: tuple[Action, ...]) -> None:
    before = state(Phase.IDLE, backoffs={"SetShares": last})
    assert decide(before, seen(host(backing(shared_mb_s=58.0))), POLICY).actions == actions


@pytest.mark.parametrize(("in_force_mb_s", "is_changed"), [(18.7, True), (19.1, False), (19.7, False), (20.1, True)])
def test_a_capacity_that_is_a_little_different_is_not_put_in_force(in_force_mb_s: float, *, is_changed: bool) -> None:
    policy = replace(POLICY, share_reserve=())
    before = state(Phase.IDLE, share_plan=SharePlan(in_force_mb_s))
    now = seen(host(backing(shared_mb_s=in_force_mb_s)), sample=Sample(NOW, 1.0, Rates()))
    assert (SetShares(SharePlan(19.4)) in decide(before, now, policy).actions) is is_changed


@pytest.mark.parametrize(
    ("in_force_mb_s", "last", "is_changed"),
    [
        (19.9, Backoff(), False),
        (21.5, Backoff(0, NOW + 2), False),
        (21.6, Backoff(0, NOW + 2), True),
        (21.6, Backoff(1, NOW + 2, "no"), False),
        (15.0, Backoff(0, NOW + 2), False),
    ],
)
def test_shares_of_much_less_are_due_at_once(in_force_mb_s: float, last: Backoff, *, is_changed: bool) -> None:
    policy = replace(POLICY, share_reserve=())
    before = state(Phase.IDLE, share_plan=SharePlan(in_force_mb_s), backoffs={"SetShares": last})
    now = seen(host(backing(shared_mb_s=in_force_mb_s)), sample=Sample(NOW, 1.0, Rates()))
    assert (SetShares(SharePlan(19.4)) in decide(before, now, policy).actions) is is_changed


@pytest.mark.parametrize(("in_force_mb_s", "shared_mb_s"), [(9.0, 13.8), (10.0, 10.6), (13.2, 13.8), (20.0, 13.8)])
def test_a_little_more_of_what_iops_limit_is_approached_in_steps(in_force_mb_s: float, shared_mb_s: float) -> None:
    policy = replace(POLICY, share_reserve=())
    before = replace(state(Phase.BOOSTING, boosted(volume=volume(iops=3000))), share_plan=SharePlan(in_force_mb_s))
    small = Sample(NOW, 1.0, Rates(0.0, 15.0), cache=Rates(0.0, 20.0), cache_iops=(0.0, 3000.0))
    found = decide(before, seen(host(cached(shared_mb_s=in_force_mb_s), FORMATTED), sample=small), policy)
    shared = [each.plan.capacity_mb_s for each in found.actions if isinstance(each, SetShares) and each.plan]
    assert shared == [pytest.approx(shared_mb_s)]


def test_a_little_more_of_what_bandwidth_limits_is_put_in_force_at_once() -> None:
    before = replace(state(Phase.IDLE), share_plan=SharePlan(18.0))
    now = seen(host(backing(shared_mb_s=18.0)), sample=Sample(NOW, 1.0, Rates()))
    assert SetShares(SharePlan(19.4)) in decide(before, now, replace(POLICY, share_reserve=())).actions


def test_a_capacity_that_is_not_known_to_be_there_is_not_shared() -> None:
    policy = replace(POLICY, share_reserve=())
    before = state(Phase.BOOSTING, boosted(volume=volume(bandwidth_mb_s=0.0)))
    found = decide(before, seen(host(cached(flush_limit_mb_s=20.0, shared_mb_s=20.0), FORMATTED)), policy)
    assert found.actions == (SetShares(None),)


def test_shares_change_before_a_writeback_rate_which_is_set_next() -> None:
    policy = replace(POLICY, share_reserve=(), drain_bandwidth_mb_s=0.0)
    before = replace(state(Phase.BOOSTING, boosted()), share_plan=SharePlan(20.0))
    view = host(cached(flush_limit_mb_s=12.0, shared_mb_s=20.0), FORMATTED)
    busy = Sample(NOW, 1.0, Rates(0.0, 78.0), cache=Rates(0.0, 79.0))
    first = decide(before, seen(view, sample=busy), policy)
    second = decide(first.state, seen(view), policy)
    assert [type(each) for each in (*first.actions, *second.actions)] == [SetShares, SetFlush]


@pytest.mark.parametrize(("code", "tries_again"), [("cgroup.no_limits", False), ("cgroup.disabled", True)])
def test_what_only_another_kernel_can_do_is_asked_for_once(code: str, *, tries_again: bool) -> None:
    action = SetShares(SharePlan(58.0))
    failed = Outcome(action, OutcomeKind.RETRY, error="not here", code=code)
    after = capacity.after_shares(state(Phase.IDLE), action, failed, seen(host(backing())))
    assert after.backoff_of("SetShares").error
    assert (after.backoff_of("SetShares").retry_at <= NOW + polling.RETRY_MOST_S) is tries_again
