"""The backing volume earns 6 MB/s and bursts to 40; a full bucket holds 100 GB, of which a flush leaves 10."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from elastio.core.actions import Action, BypassCache, EnterPhase2, SetFlush
from elastio.core.cycle import Cycle
from elastio.core.machine import decide
from elastio.core.model import BackingView, Rates, Sample
from elastio.core.planner import must_end, next_action
from elastio.core.state import AgentState, Phase
from elastio.strategy import backing_credits, governor
from elastio.strategy.backing_credits import SUSTAINED_S
from elastio.strategy.credits import CreditBalance, CreditBucket
from elastio.strategy.memory import Memory
from elastio.units import GB, MB
from tests.values import FORMATTED, NOW, POLICY, ask, boosted, cached, changed, host, seen, state, told

BUCKET = CreditBucket(6.0, 40.0, 100 * GB)
COLD = replace(POLICY, backing_bandwidth_mb_s=40.0, cache_bandwidth_mb_s=128.0, backing_credits=BUCKET)


def moved(read: float = 0.0, write: float = 0.0, *, flush: float = 0.0, seconds: float = 1.0) -> Sample:
    """Applications that read and write past the cache while so much is flushed."""
    backing = Rates(read, write + flush)
    return Sample(NOW, seconds, Rates(read, write), backing=backing, cache=Rates(flush, 0.0))


def after(balance: float | None, sample: Sample, backing: BackingView | None = None, **changes: Any) -> AgentState:
    """The state after a sample that follows this balance without a gap."""
    known = None if balance is None else CreditBalance(balance, NOW - sample.seconds)
    before = changed(AgentState(), credits=known, **changes)
    obs = seen(host(backing or cached()), sample=sample)
    of = told(backing_credits.update, before, obs, COLD)
    limit = ask(backing_credits.flush_limit_mb_s, of, obs, COLD)
    return replace(of, flush_mb_s=governor.slower(of.flush_mb_s, limit))


def test_a_volume_without_credits_is_left_as_it_is() -> None:
    before = AgentState(flush_mb_s=7.0)
    assert backing_credits.in_force(POLICY, before.memory) is POLICY
    assert told(backing_credits.update, before, seen(host(cached()), sample=moved(10.0)), POLICY) is before
    assert ask(backing_credits.flush_limit_mb_s, before, seen(), POLICY) is None


@pytest.mark.parametrize(
    ("balance", "mb_s"), [(0.0, 6.0), (10 * SUSTAINED_S * MB, 16.0), (34 * SUSTAINED_S * MB, 40.0), (100 * GB, 40.0)]
)
def test_the_bandwidth_in_force_falls_evenly_as_credits_run_out(balance: float, mb_s: float) -> None:
    of = Memory(credits=CreditBalance(balance, NOW))
    assert backing_credits.in_force(COLD, of).backing_bandwidth_mb_s == pytest.approx(mb_s)


def test_a_balance_that_is_not_known_counts_as_used_unless_the_operator_states_it() -> None:
    assert backing_credits.in_force(COLD, Memory()).backing_bandwidth_mb_s == 6.0
    assert after(None, moved()).memory.credits == CreditBalance(6 * MB, NOW)
    new = replace(COLD, first_credits_bytes=float(50 * GB))
    assert backing_credits.in_force(new, Memory()).backing_bandwidth_mb_s == 40.0
    first = told(backing_credits.update, AgentState(), seen(host(cached()), sample=moved(6.0)), new)
    assert first.memory.credits == CreditBalance(50 * GB, NOW)


def test_a_first_balance_is_at_most_a_full_bucket() -> None:
    new = replace(COLD, first_credits_bytes=float(500 * GB))
    first = told(backing_credits.update, AgentState(), seen(host(cached()), sample=moved(40.0)), new)
    assert first.memory.credits == CreditBalance(100 * GB - 34 * MB, NOW)


def test_reads_writes_and_flushing_all_spend_credits() -> None:
    found = after(20.0 * GB, moved(5.0, 10.0, flush=20.0, seconds=2.0)).memory.credits
    assert found == CreditBalance(20 * GB - 58 * MB, NOW)


def test_a_time_without_samples_counts_as_spent_at_the_burst_rate() -> None:
    before = AgentState(memory=Memory(credits=CreditBalance(20.0 * GB, NOW - 101.0)))
    found = told(backing_credits.update, before, seen(host(cached()), sample=moved()), COLD).memory.credits
    assert found == CreditBalance(20 * GB - 100 * 34 * MB + 6 * MB, NOW)


def test_without_a_sample_nothing_changes() -> None:
    before = AgentState(memory=Memory(credits=CreditBalance(20.0 * GB, NOW - 10.0), credit_limit_mb_s=9.0))
    assert told(backing_credits.update, before, seen(host(cached())), COLD) is before


def test_a_flush_is_limited_only_where_it_would_touch_the_reserve() -> None:
    dirty = cached(dirty_bytes=4 * GB)
    plenty = after(20.0 * GB, moved(6.0), dirty, flush_mb_s=None)
    assert (plenty.memory.credit_limit_mb_s, plenty.flush_mb_s) == (None, None)
    scarce = after(12.0 * GB, moved(6.0), dirty, flush_mb_s=None)
    # 4 GB of which 2 GB are paid from credits above the reserve: half of it is earned meanwhile.
    assert scarce.memory.credit_limit_mb_s == scarce.flush_mb_s == pytest.approx(12.0 - 6.0)
    none = after(8.0 * GB, moved(0.0, flush=6.0), dirty, flush_mb_s=None)
    assert none.memory.credit_limit_mb_s == pytest.approx(6.0)


def test_the_governor_may_ask_for_less_than_the_limit() -> None:
    assert after(10.0 * GB, moved(), flush_mb_s=0.0).flush_mb_s == 0.0
    assert after(10.0 * GB, moved(), flush_mb_s=2.0).flush_mb_s == 2.0


def test_a_flush_is_never_starved_by_applications() -> None:
    assert after(8.0 * GB, moved(read=30.0)).memory.credit_limit_mb_s == pytest.approx(3.0)


def test_a_cache_that_is_nearly_full_is_flushed_at_any_price() -> None:
    full = cached(available_percent=30, cutoff_percent=70, dirty_bytes=4 * GB)
    boosting = after(10.0 * GB, moved(), full, phase=Phase.BOOSTING, flush_mb_s=40.0)
    assert boosting.flush_mb_s == 40.0
    assert boosting.memory.credit_limit_mb_s == pytest.approx(6.0, rel=0.01)


def test_without_a_cache_there_is_nothing_to_limit() -> None:
    idle = after(10.0 * GB, moved(), cached(cache_set=None), flush_mb_s=None)
    assert (idle.memory.credit_limit_mb_s, idle.flush_mb_s) == (None, None)


# --- decisions ---------------------------------------------------------------------------------------------


def flushing(backing: BackingView, cycle: Cycle | None = None, **changes: Any) -> Action | None:
    """What phase 2 does next with scarce credits."""
    before = state(Phase.FLUSHING, cycle or boosted(), **{"credit_limit_mb_s": 6.0, **changes})
    return next_action(before, seen(host(backing, FORMATTED)), COLD).action


FULL_SPEED = cached(dirty_bytes=4 * GB, flush_full_speed=True)
LIMITED = cached(dirty_bytes=4 * GB, flush_limit_mb_s=6.0)


def test_phase_2_flushes_at_what_credits_allow() -> None:
    assert flushing(FULL_SPEED) == SetFlush(6.0)
    assert flushing(LIMITED) is None
    assert flushing(replace(LIMITED, writeback_running=False)) == SetFlush(6.0)
    assert flushing(LIMITED, credit_limit_mb_s=None) == EnterPhase2()


def test_whoever_waits_for_the_end_of_a_flush_does_not_wait_for_credits() -> None:
    assert flushing(LIMITED, replace(boosted(), forced=True)) == EnterPhase2()
    assert flushing(LIMITED, paused=True) == EnterPhase2()


def test_requests_are_held_back_only_for_what_a_limited_flush_does_in_a_moment() -> None:
    assert flushing(replace(LIMITED, dirty_bytes=10 * MB)) is None
    assert flushing(replace(LIMITED, dirty_bytes=2 * MB)) == BypassCache()


def test_a_flush_that_credits_slow_down_is_not_overdue() -> None:
    cycle = replace(boosted(), flush_started_dirty_bytes=4 * GB).stamped(quiet=NOW - 1000.0)
    assert must_end(state(Phase.FLUSHING, cycle), cycle, NOW, COLD)
    assert not must_end(state(Phase.FLUSHING, cycle, credit_limit_mb_s=6.0), cycle, NOW, COLD)


@pytest.mark.parametrize(("balance", "utilization"), [(50.0 * GB, 0.5), (0.0, 20 / 6)])
def test_a_load_is_compared_with_the_bandwidth_in_force(balance: float, utilization: float) -> None:
    before = state(Phase.IDLE, None, credits=CreditBalance(balance, NOW - 1.0))
    sample = Sample(NOW, 1.0, Rates(0.0, 20.0), backing=Rates(0.0, 20.0))
    decision = decide(before, seen(host(cached(cache_set=None)), sample=sample), COLD)
    assert decision.state.memory.load.utilization == pytest.approx(utilization)
    assert decision.state.memory.credits is not None
