"""A cap that a running boost would pass ends it: the cache is flushed and released, and applications go on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from elastio.accounting.ledger import LateLedger
from elastio.accounting.recorder import CostRecorder
from elastio.core.cycle import FailureKind
from elastio.core.model import RequestKind, VolumeSpec
from elastio.core.state import Phase
from elastio.strategy.spending import Caps
from elastio.units import MIB
from elastio_adviser.volume_types import volume_type
from elastio_sim.run import Simulation
from elastio_sim.workload import Segment, Trace
from elastio_sim.world import SimWorld, WorldSettings
from tests.simulated import KERNEL, POLICY, assert_at_rest, bought, failures, in_phase, machine, path
from tests.spending import Cap
from tests.values import present

GP3 = volume_type("gp3").tariff
# Makes an hour of the cache cost 0.42 USD, so that minutes of simulated time are enough.
IOPS = 64_000
CAP_USD, MOST_USD = 0.05, 0.06
CAP_AGBS = 50_000.0
ENDLESS = (Segment(2, 0), Segment(1e9, 60))
# Ends after the cap has ended the boost, so that the machine comes to rest.
LONG = (Segment(2, 0), Segment(900, 60), Segment(1e9, 0))
CYCLE = ["idle", "attaching", "boosting", "flushing", "detaching", "idle"]
DAY_S = 86_400.0


def under(caps: Caps, load: tuple[Segment, ...] = LONG, faults: str = "nothing") -> Simulation:
    return machine(load, faults, tariff=GP3, caps=caps, cache_iops=IOPS)


def reasons(sim: Simulation) -> str:
    return "\n".join(str(r["reason"]) for r in sim.journal.records() if r["kind"] == "decision")


@pytest.mark.parametrize(
    ("caps", "key"),
    [
        (Caps(max_cost_per_day=CAP_USD), "caps.max_cost_per_day"),
        (Caps(max_cost_per_month=CAP_USD), "caps.max_cost_per_month"),
        (Caps(max_agbs_per_day=CAP_AGBS), "caps.max_agbs_per_day"),
        (Caps(max_agbs_per_month=CAP_AGBS), "caps.max_agbs_per_month"),
    ],
)
def test_a_load_without_an_end_is_flushed_and_released_before_it_passes_the_cap(caps: Caps, key: str) -> None:
    sim = under(caps)
    in_phase(sim, Phase.FLUSHING, 600)
    began_s = sim.world.clock.elapsed()
    in_phase(sim, Phase.IDLE, 600)
    while_released = [p for p in sim.timeline if p.at_s > began_s + 1]
    assert all(point.adaptive_mb_s > 0 for point in while_released), "applications go on"
    assert_at_rest(sim, 1200)
    assert path(sim) == CYCLE
    assert len(bought(sim)) == 1, "the rest below the cap is too little for a cache that is of use"
    assert key in reasons(sim)
    provider = sim.world.provider
    spent, most, cap = (
        (provider.bill_cost(), MOST_USD, CAP_USD) if "cost" in key else (provider.bill_agbs(), 1.2 * CAP_AGBS, CAP_AGBS)
    )
    assert spent <= cap < most
    assert spent > cap / 2, "the cap was not used"


@pytest.mark.parametrize("steps", [1, 3])
def test_a_boost_ends_before_a_step_that_the_cap_has_no_room_for(steps: int) -> None:
    """The cloud bills begun steps of five minutes; the cap has room for some, and for nearly one more."""
    tariff = replace(GP3, minimum_s=0.0, step_s=300.0)
    per_step = tariff.per_hour(VolumeSpec(POLICY.initial_size_bytes, POLICY.bought_bandwidth_mb_s, IOPS)) / 12
    cap = per_step * (steps + 0.9)
    load = (Segment(2, 0), Segment(300.0 * (steps + 2), 60), Segment(1e9, 0))
    sim = machine(load, tariff=tariff, caps=Caps(max_cost_per_day=cap), cache_iops=IOPS)
    in_phase(sim, Phase.FLUSHING, 1500)
    assert_at_rest(sim, 1500)
    (volume,) = sim.world.provider.volumes.values()
    assert present(volume.deleted_at) - volume.created_at > 300 * (steps - 1) + 150, "what is paid is used"
    assert cap - per_step <= sim.world.provider.bill_cost() <= cap


def test_what_a_running_boost_has_reserved_is_in_the_steps_of_its_cloud(tmp_path: Path) -> None:
    tariff = replace(GP3, step_s=300.0)
    caps = Cap("max_cost_per_day", 3600.0).caps(POLICY.bought_bandwidth_mb_s, tariff, is_shared=True)
    settings = WorldSettings(kernel=KERNEL, seed=5, tariff=tariff, statements=tmp_path)
    sim = Simulation(SimWorld(settings, Trace(ENDLESS, block_bytes=4 * MIB)), replace(POLICY, caps=caps))
    in_phase(sim, Phase.BOOSTING, 200)
    sim.run_for(5)
    reserved = present(present(present(sim.account).own()).reserved)
    assert (reserved.is_bought, reserved.step_s) == (True, 300.0)


def test_a_cap_that_does_not_end_boosts_only_refuses_the_next_one() -> None:
    sim = under(Caps(max_agbs_per_day=CAP_AGBS, ends_boosts=False), ENDLESS)
    sim.run_for(2 * CAP_AGBS / 170)
    assert sim.phase is Phase.BOOSTING
    assert sim.world.provider.bill_agbs() > CAP_AGBS


def test_the_number_of_boosts_never_ends_one() -> None:
    sim = under(Caps(max_boosts_per_day=1), ENDLESS)
    sim.run_for(300)
    assert sim.phase is Phase.BOOSTING


def ended() -> Simulation:
    """A machine whose load goes on after a cap has ended its boost."""
    sim = under(Caps(max_agbs_per_day=CAP_AGBS), ENDLESS)
    in_phase(sim, Phase.FLUSHING, 600)
    in_phase(sim, Phase.IDLE, 600)
    return sim


@pytest.mark.parametrize("dies", [False, True])
def test_the_next_boost_begins_on_the_next_day(*, dies: bool) -> None:
    sim = ended()
    if dies:
        sim.start_agent()
    sim.run_for(200)
    assert len(bought(sim)) == 1
    sim.world.clock.jump_wall(DAY_S)
    in_phase(sim, Phase.BOOSTING, 200)
    assert len(bought(sim)) == 2


def test_a_raised_cap_lets_the_next_boost_begin() -> None:
    sim = ended()
    agent = present(sim.agent)
    agent.policy = replace(agent.policy, caps=Caps(max_agbs_per_day=2 * CAP_AGBS))
    in_phase(sim, Phase.BOOSTING, 200)
    assert len(bought(sim)) == 2


def test_an_operator_cannot_boost_again_before_a_resume() -> None:
    sim = ended()
    agent = present(sim.agent)
    agent.policy = replace(agent.policy, initial_size_bytes=agent.policy.min_size_bytes)
    assert not sim.ask(RequestKind.BOOST).accepted
    assert sim.state.memory.capped is not None
    assert sim.ask(RequestKind.RESUME).accepted
    assert sim.state.memory.capped is None


def test_an_operator_cannot_turn_back_a_flush_that_a_cap_began() -> None:
    sim = under(Caps(max_agbs_per_day=CAP_AGBS), ENDLESS)
    in_phase(sim, Phase.FLUSHING, 600)
    assert not sim.ask(RequestKind.BOOST).accepted
    in_phase(sim, Phase.DETACHING, 600)
    assert path(sim) == CYCLE[:-1]


def test_a_load_that_returns_does_not_keep_a_cache_whose_cap_is_reached() -> None:
    """The boost goes quiet by itself, and an operator lowers the cap while it is flushed."""
    sim = under(Caps(), (Segment(2, 0), Segment(40, 60), Segment(8, 0), Segment(1e9, 30)))
    in_phase(sim, Phase.FLUSHING)
    agent = present(sim.agent)
    agent.policy = replace(agent.policy, caps=Caps(max_agbs_per_day=1000.0))
    in_phase(sim, Phase.IDLE, 600)
    assert path(sim) == CYCLE
    assert sim.state.memory.capped is not None


def test_an_attachment_that_takes_too_long_for_the_cap_is_given_up() -> None:
    sim = under(Caps(max_agbs_per_day=20_000.0), faults="attach#1=stuck:150")
    in_phase(sim, Phase.DETACHING)
    assert failures(sim) == {FailureKind.WITHDRAWN}
    assert sim.state.memory.capped is not None
    assert sim.state.failures == 0


def test_nothing_is_bought_whose_least_billed_time_passes_the_cap() -> None:
    spec = VolumeSpec(POLICY.initial_size_bytes, POLICY.bought_bandwidth_mb_s, IOPS)
    sim = under(Caps(max_cost_per_day=0.9 * GP3.cost(spec, POLICY.least_boost_s)))
    sim.run_for(60)
    assert bought(sim) == []


def test_a_day_that_ends_before_the_cap_is_passed_lets_the_boost_go_on() -> None:
    """What is billed after midnight counts for the next day."""
    sim = under(Caps(max_agbs_per_day=CAP_AGBS), ENDLESS)
    in_phase(sim, Phase.BOOSTING)
    day = sim.recorder.spend(wall=sim.world.clock.wall()).day
    cycle = present(sim.state.cycle)
    left_s = day.until_wall - cycle.wall_at(sim.world.clock.now())
    assert left_s > 600, "the day must not end by itself in this test"
    agent = present(sim.agent)
    shifted = replace(
        cycle, started_wall=cycle.started_wall + left_s - 100, opened_wall=cycle.started_wall + left_s - 95
    )
    agent.state = replace(agent.state, cycle=shifted)
    sim.recorder.record_cycle(shifted, now=0.0, wall=0.0)
    sim.run_for(170)
    assert sim.phase is Phase.BOOSTING


def unopened(folder: Path) -> CostRecorder:
    """A recorder whose ledger does not open: a directory is in its place."""
    return CostRecorder(LateLedger(folder), KERNEL.backing_uuid)


@pytest.mark.parametrize("caps", [Caps(max_agbs_per_day=2 * CAP_AGBS), Caps(max_cost_per_month=2 * CAP_USD)])
def test_a_boost_does_not_begin_its_cap_from_zero_when_the_ledger_is_lost(caps: Caps, tmp_path: Path) -> None:
    sim = under(caps)
    in_phase(sim, Phase.BOOSTING)
    sim.run_for(100)
    known, sim.recorder = sim.recorder, unopened(tmp_path)
    sim.start_agent()
    in_phase(sim, Phase.FLUSHING, 30)
    assert not sim.ask(RequestKind.BOOST).accepted
    assert_at_rest(sim, 1200)
    assert len(bought(sim)) == 1
    sim.recorder = known
    sim.world.workload = Trace(LONG, block_bytes=4 * MIB)
    sim.start_agent()
    in_phase(sim, Phase.BOOSTING, 200)


@pytest.mark.parametrize("caps", [Caps(max_boosts_per_day=9), Caps(max_agbs_per_day=CAP_AGBS, ends_boosts=False)])
def test_a_boost_that_no_cap_ends_goes_on_without_a_ledger(caps: Caps, tmp_path: Path) -> None:
    sim = under(caps)
    in_phase(sim, Phase.BOOSTING)
    sim.recorder = unopened(tmp_path)
    sim.start_agent()
    sim.run_for(60)
    assert sim.phase is Phase.BOOSTING
