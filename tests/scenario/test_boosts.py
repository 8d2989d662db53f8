"""The whole agent on a simulated machine: what it does for a load and for an operator."""

from __future__ import annotations

import itertools

import pytest

from elastio.core.cycle import FailureKind
from elastio.core.model import RequestKind
from elastio.core.state import Phase
from elastio.strategy.spending import Caps
from elastio.units import GIB
from elastio_sim.workload import Segment
from tests.simulated import BURST, QUIET, STEADY, assert_at_rest, bought, failures, in_phase, machine, path

CYCLE = ["idle", "attaching", "boosting", "flushing", "detaching", "idle"]


# --- loads -----------------------------------------------------------------------------------------------------


def test_a_burst_is_ridden_on_a_cache_that_is_gone_afterwards() -> None:
    sim = machine()
    sim.run_for(15)
    assert_at_rest(sim)
    assert path(sim) == CYCLE
    assert bought(sim) == [2 * GIB]
    assert sim.world.kernel.bcache.absorbed_bytes > 0
    assert sim.state.cycle is None


def test_load_that_returns_while_flushing_boosts_on_the_same_volume() -> None:
    sim = machine((Segment(2, 0), Segment(15, 70), Segment(7, 0), Segment(8, 40), QUIET))
    sim.run_for(35)
    assert_at_rest(sim)
    assert path(sim) == ["idle", "attaching", "boosting", "flushing", "boosting", "flushing", "detaching", "idle"]
    assert len(bought(sim)) == 1


def test_sizes_shrink_to_what_was_used_and_grow_by_what_was_evicted() -> None:
    bursts = [(Segment(5, 0), Segment(seconds, 78), Segment(200, 0)) for seconds in (45, 20, 60, 60)]
    sim = machine((*itertools.chain(*bursts), QUIET), initial_size_bytes=10 * GIB)
    sim.run_for(1010)
    assert_at_rest(sim)
    sizes = [size / GIB for size in bought(sim)]
    assert sizes[0] == 10
    assert sizes[1] < sizes[0], "the first one was too large"
    assert sizes[2] < sizes[1], "the second one was used less"
    assert sizes[3] > sizes[2], "the third one had to evict"


def test_a_load_that_is_over_before_the_cache_is_there_releases_it() -> None:
    sim = machine((Segment(2, 0), Segment(3, 60), QUIET), "attach#1=stuck:60")
    sim.run_for(20)
    assert_at_rest(sim)
    assert failures(sim) == {FailureKind.WITHDRAWN}
    assert "boosting" not in path(sim)
    assert sim.state.failures == 0


# --- operators -------------------------------------------------------------------------------------------------


def test_a_boost_of_an_operator_survives_a_restart_while_it_is_attached() -> None:
    sim = machine((QUIET,), inactivity_delay_s=1.0)
    sim.run_for(3)
    assert sim.ask(RequestKind.BOOST).accepted
    sim.run_for(0.5)
    sim.start_agent()
    in_phase(sim, Phase.BOOSTING)
    assert_at_rest(sim)


@pytest.mark.parametrize("is_cut", [False, True])
def test_a_forced_flush_ends_under_load_and_is_not_forgotten_before_the_kernel_knows(*, is_cut: bool) -> None:
    sim = machine(STEADY)
    in_phase(sim, Phase.BOOSTING)
    sim.run_for(5)
    assert sim.ask(RequestKind.FLUSH).accepted
    if is_cut:
        sim.power_cut()
        sim.run_until(lambda: sim.state.recovered, 10)
        assert sim.phase is Phase.FLUSHING
    in_phase(sim, Phase.DETACHING)
    assert "boosting" not in path(sim)[3:]
    assert not sim.world.lost()


def test_a_pause_flushes_and_holds_until_resume() -> None:
    sim = machine(STEADY)
    in_phase(sim, Phase.BOOSTING)
    assert sim.ask(RequestKind.PAUSE).accepted
    in_phase(sim, Phase.IDLE)
    sim.run_for(60)
    sim.start_agent()
    sim.run_for(60)
    assert len(bought(sim)) == 1, "a pause outlives the agent"
    assert sim.ask(RequestKind.RESUME).accepted
    in_phase(sim, Phase.BOOSTING)
    assert len(bought(sim)) == 2


@pytest.mark.parametrize(
    ("caps", "boosts"),
    [
        (Caps(max_boosts_per_day=1), 1),
        (Caps(max_agbs_per_day=100.0), 0),
        (Caps(max_boosts_per_month=1), 1),
        (Caps(max_agbs_per_month=100.0), 0),
        (Caps(max_cost_per_month=0.00005), 0),
        (Caps(max_cost_per_month=0.0001), 1),
    ],
)
def test_a_cap_on_a_day_or_a_month_is_kept_under_any_load(caps: Caps, boosts: int) -> None:
    sim = machine((*BURST[:2], Segment(60, 0), Segment(100, 60), QUIET), caps=caps)
    sim.run_for(250)
    assert_at_rest(sim)
    assert len(bought(sim)) == boosts


def test_buys_the_size_that_it_was_told_and_goes_on_learning_from_there() -> None:
    sim = machine((Segment(5, 0), *BURST[1:]))
    sim.run_for(2)
    answer = sim.ask(RequestKind.LEARN, 3 * GIB)
    assert answer.accepted
    assert sim.recorder.learned_size() == 3 * GIB
    sim.run_for(15)
    assert_at_rest(sim)
    assert bought(sim) == [3 * GIB]
    assert sim.state.memory.learned_size_bytes == GIB


@pytest.mark.parametrize("dies", [False, True])
def test_a_size_that_is_set_during_a_boost_outlasts_the_lesson_of_that_boost(*, dies: bool) -> None:
    sim = machine((Segment(2, 0), *BURST[1:]))
    in_phase(sim, Phase.BOOSTING)
    assert sim.ask(RequestKind.LEARN, 3 * GIB).accepted
    if dies:
        sim.start_agent()
    sim.run_for(60)
    assert_at_rest(sim)
    assert len(bought(sim)) == 1
    assert (sim.state.memory.learned_size_bytes, sim.recorder.learned_size()) == (3 * GIB, 3 * GIB)


@pytest.mark.parametrize("size", [GIB // 2, 10**15])
def test_refuses_to_learn_a_size_outside_its_bounds(size: int) -> None:
    sim = machine((QUIET,))
    sim.run_for(2)
    assert not sim.ask(RequestKind.LEARN, size).accepted
    assert sim.state.memory.learned_size_bytes is None
