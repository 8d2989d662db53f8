"""A boost ahead of a burst that an application or a scheduler announced."""

from __future__ import annotations

from typing import Any

import pytest

from elastio.core.cycle import Trigger
from elastio.core.model import RequestKind
from elastio.core.policy import Policy
from elastio.core.state import Phase
from elastio.strategy.ahead import BEGIN_S, MOST_EXPECTED, MOST_MISSED
from elastio.strategy.spending import Caps
from elastio.units import GIB, MB
from elastio_sim.run import Simulation
from elastio_sim.workload import Segment
from tests.simulated import KERNEL, MARKET, POLICY, QUIET, assert_at_rest, bought, by_money, in_phase, machine, path
from tests.values import present

BURST_S, MB_S = 12, 60
WRITTEN = BURST_S * MB_S * MB
FIRST_S = 60.0


def waiting(*load: Segment, **policy: Any) -> Simulation:
    """An agent that is idle at 5 s, before this load."""
    sim = machine((*load, QUIET), lead_s=15.0, **policy)
    sim.run_for(5)
    return sim


def expect(sim: Simulation, at_s: float, size_bytes: int | None = WRITTEN) -> bool:
    """Announce a burst at this second of the run."""
    seconds = at_s - sim.world.clock.elapsed()
    return sim.ask(RequestKind.EXPECT, seconds=seconds, size_bytes=size_bytes).accepted


def bought_ahead(sim: Simulation) -> int:
    """How many cycles began for an announced burst."""
    decided = (r["cycle"] for r in sim.journal.records() if r["kind"] == "decision" and r["cycle"])
    return len({c["token"] for c in decided if c["trigger"] == Trigger.ANNOUNCED})


def test_an_announced_burst_finds_its_cache() -> None:
    sim = waiting(Segment(FIRST_S, 0), Segment(BURST_S, MB_S))
    assert expect(sim, FIRST_S)
    sim.run_for(FIRST_S - 15 - 5 - 2)
    assert bought(sim) == [], "nothing is bought before its lead time"
    sim.run_for(17 - 2)
    assert sim.phase is Phase.BOOSTING
    assert present(sim.state.cycle).trigger is Trigger.ANNOUNCED
    sim.run_for(2 + BURST_S)
    at_speed = [m.adaptive_mb_s for m in sim.timeline if FIRST_S + 1 < m.at_s < FIRST_S + BURST_S]
    assert min(at_speed) > MB_S - 5
    assert_at_rest(sim)
    assert len(bought(sim)) == 1
    assert sim.state.memory.missed == 0


def test_the_cache_is_released_an_inactivity_delay_after_the_load_not_after_the_announced_size() -> None:
    sim = waiting(Segment(FIRST_S, 0), Segment(BURST_S, MB_S))
    assert expect(sim, FIRST_S, size_bytes=20 * WRITTEN)
    in_phase(sim, Phase.FLUSHING)
    ended = FIRST_S + BURST_S + POLICY.inactivity_delay_s
    assert sim.world.clock.elapsed() == pytest.approx(ended, abs=3)


def test_the_lead_time_is_what_the_last_caches_took() -> None:
    sim = waiting(Segment(FIRST_S, 0), Segment(BURST_S, MB_S), Segment(200 - FIRST_S - BURST_S, 0), Segment(5, MB_S))
    assert expect(sim, FIRST_S)
    assert expect(sim, 200)
    sim.run_until(lambda: sim.state.phase is Phase.IDLE and sim.world.clock.elapsed() > FIRST_S, 120)
    took = sim.state.memory.attach_s
    assert len(took) == 1
    assert took[0] < 10
    in_phase(sim, Phase.ATTACHING)
    assert 200 - sim.world.clock.elapsed() == pytest.approx(1.1 * took[0] + 1, abs=1.1)
    sim.run_for(1.1 * took[0] + 1)
    assert sim.phase is Phase.BOOSTING


def test_a_cache_that_is_being_flushed_stays_for_a_burst_that_is_near() -> None:
    slow = (Segment(2, 0), Segment(30, 60), Segment(10, 0), Segment(BURST_S, MB_S))
    sim = waiting(*slow)
    in_phase(sim, Phase.FLUSHING)
    begins = 42.0
    assert expect(sim, begins)
    in_phase(sim, Phase.BOOSTING)
    assert sim.world.clock.elapsed() < begins
    sim.run_until(lambda: sim.world.workload.elapsed_s > begins + BURST_S, 60)
    assert_at_rest(sim)
    assert len(bought(sim)) == 1


def test_after_three_announced_bursts_that_did_not_come_nothing_is_bought_until_one_comes() -> None:
    gap = 100.0
    begins = [gap * (n + 1) for n in range(MOST_MISSED + 3)]
    right = MOST_MISSED + 1
    sim = waiting(Segment(begins[right], 0), Segment(BURST_S, 15), Segment(gap - BURST_S, 0), Segment(BURST_S, 15))
    for n, at_s in enumerate(begins):
        assert expect(sim, at_s)
        sim.run_for(at_s + gap / 2 - sim.world.clock.elapsed())
        assert bought_ahead(sim) == min(n + 1, MOST_MISSED) + (n > right), n
    assert sim.state.memory.missed == 0


def test_a_paused_agent_and_a_cap_buy_nothing_for_an_announced_burst() -> None:
    sim = waiting(Segment(FIRST_S, 0), caps=Caps(max_boosts_per_day=0))
    assert expect(sim, 30)
    sim.run_for(30)
    assert bought(sim) == []
    other = waiting(Segment(FIRST_S, 0))
    assert other.ask(RequestKind.PAUSE).accepted
    assert expect(other, 30)
    other.run_for(30)
    assert bought(other) == []


def test_announced_bursts_can_be_cancelled() -> None:
    sim = waiting(Segment(FIRST_S, 0))
    assert expect(sim, 30)
    assert sim.ask(RequestKind.EXPECT).accepted
    sim.run_for(40)
    assert bought(sim) == []
    assert sim.state.memory.expected == ()


@pytest.mark.parametrize(("chosen", "least_s"), [(POLICY, 0.0), (by_money(POLICY), MARKET.tariff.minimum_s)])
@pytest.mark.parametrize("lead_s", [3, 30])
def test_a_cache_that_waits_for_a_burst_that_is_cancelled_is_released(
    lead_s: float, chosen: Policy, least_s: float
) -> None:
    """Before the begin or after it, attached or not yet. What is paid already is paid."""
    for phase in (Phase.ATTACHING, Phase.BOOSTING):
        sim = machine((QUIET,), lead_s=lead_s, market=chosen.market, model=chosen.model)
        sim.run_for(5)
        assert expect(sim, 40, 4 * GIB)
        in_phase(sim, phase)
        sim.run_for(10 if phase is Phase.BOOSTING else 0)
        assert sim.ask(RequestKind.EXPECT).accepted
        in_phase(sim, Phase.IDLE, 2 * POLICY.inactivity_delay_s + 15 + least_s)
        assert_at_rest(sim)
        assert len(bought(sim)) == 1


def test_a_cache_waits_for_the_begin_of_a_burst_and_not_for_as_long_as_it_would_be_written() -> None:
    sim = waiting(Segment(1e9, 0))
    assert expect(sim, 60, 40 * GIB)
    in_phase(sim, Phase.FLUSHING, 60 + BEGIN_S + POLICY.inactivity_delay_s + 5)
    assert sim.world.clock.elapsed() > 60 + BEGIN_S
    assert_at_rest(sim)
    assert sim.state.memory.missed == 1


def test_announcements_that_follow_each_other_hold_no_cache_for_ever() -> None:
    sim = waiting(Segment(1e9, 0))
    for second in range(20, 1500, 20):
        sim.run_for(second - sim.world.clock.elapsed())
        assert expect(sim, second + 25, 40 * GIB)
    assert sim.world.volumes_left() == 0
    assert sim.state.memory.missed >= MOST_MISSED


@pytest.mark.parametrize("size_bytes", [KERNEL.backing_bytes + 1, 20 * 10**12, 2**62])
def test_a_burst_that_the_device_cannot_hold_is_refused_and_changes_nothing(size_bytes: int) -> None:
    sim = waiting(Segment(FIRST_S, 0))
    before = sim.state.memory.expected
    answer = sim.ask(RequestKind.EXPECT, seconds=60, size_bytes=size_bytes)
    assert (answer.accepted, answer.code) == (False, "expect.size_bytes")
    assert sim.state.memory.expected == before
    assert expect(sim, FIRST_S, KERNEL.backing_bytes)


def test_an_announced_burst_is_remembered_across_a_restart_and_a_power_cut() -> None:
    sim = waiting(Segment(FIRST_S, 0), Segment(BURST_S, MB_S))
    assert expect(sim, FIRST_S)
    sim.kill_agent()
    sim.run_for(2)
    sim.start_agent()
    sim.run_for(5)
    sim.power_cut()
    in_phase(sim, Phase.BOOSTING)
    assert present(sim.state.cycle).trigger is Trigger.ANNOUNCED
    assert_at_rest(sim)


def test_what_was_measured_and_missed_is_remembered_across_a_restart() -> None:
    sim = waiting(Segment(300, 0))
    assert expect(sim, 30)
    sim.run_until(lambda: sim.state.memory.missed == 1, 200)
    took = sim.state.memory.attach_s
    assert_at_rest(sim)
    sim.start_agent()
    assert (sim.state.memory.missed, sim.state.memory.attach_s) == (1, took)
    assert len(took) == 1


def test_bursts_beyond_the_limit_are_refused_and_change_nothing() -> None:
    sim = waiting(Segment(FIRST_S, 0))
    for n in range(MOST_EXPECTED):
        assert expect(sim, 1000 + 10 * n)
    before = sim.state.memory.expected
    assert not expect(sim, 5000)
    assert sim.state.memory.expected == before
    assert expect(sim, 1000), "one that is announced already is no further one"
    assert len(sim.state.memory.expected) == MOST_EXPECTED


def test_the_announced_size_is_bought_with_the_share_that_earlier_bursts_needed() -> None:
    sim = waiting(Segment(FIRST_S, 0), Segment(BURST_S, MB_S), Segment(300, 0))
    assert expect(sim, FIRST_S, size_bytes=8 * GIB)
    sim.run_until(lambda: bool(bought(sim)), FIRST_S)
    flows_back = POLICY.drain_bandwidth_mb_s / POLICY.cache_bandwidth_mb_s
    without = int(8 * GIB * (1 - flows_back) / POLICY.cutoff * POLICY.headroom)
    assert bought(sim)[0] == pytest.approx(without, abs=GIB)
    assert_at_rest(sim)
    assert expect(sim, 300, size_bytes=8 * GIB)
    sim.run_until(lambda: len(bought(sim)) == 2, 300)
    lesson = sim.state.memory.lessons[-1]
    assert bought(sim)[1] == pytest.approx(8 * GIB * lesson.needed_bytes / lesson.moved_bytes, abs=GIB)
    assert path(sim)[-1] == "attaching"
