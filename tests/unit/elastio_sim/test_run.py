"""The real loop on the simulated world, and the three-way comparison made with it."""

from __future__ import annotations

import pytest

from elastio.core.model import RequestKind
from elastio.core.policy import Policy
from elastio.core.state import Phase
from elastio.units import GB, GIB
from elastio_adviser.checkpointing import CM1
from elastio_adviser.experiment import DEMO, Experiment, compare
from elastio_sim.faults import FaultMode, ScheduledFault
from elastio_sim.run import Simulation
from elastio_sim.workload import Segment, Trace
from elastio_sim.world import SimWorld


def simulation(*load: Segment) -> Simulation:
    world = SimWorld(workload=Trace((*load, Segment(1e9, 0))))
    uuid = world.settings.kernel.backing_uuid
    return Simulation(world, Policy(33, 128, inactivity_delay_s=5, initial_size_bytes=2 * GIB, backing_uuid=uuid))


def test_time_goes_on_while_no_agent_runs() -> None:
    sim = simulation(Segment(60, 60))
    sim.kill_agent()
    sim.run_for(30)
    assert sim.world.clock.elapsed() == pytest.approx(30)
    assert sim.agent is None
    assert sim.lines == []
    with pytest.raises(RuntimeError):
        sim.request(RequestKind.BOOST)


def test_a_killed_agent_leaves_its_call_under_way() -> None:
    sim = simulation(Segment(60, 60))
    sim.run_until(lambda: sim.world.volumes_left() == 1, 30)
    sim.kill_agent()
    sim.run_for(10)
    sim.start_agent()
    sim.run_until(lambda: sim.phase is Phase.BOOSTING, 60)
    assert len(sim.world.provider.volumes) == 1


def test_a_power_cut_starts_a_new_agent_on_a_new_boot() -> None:
    sim = simulation()
    sim.run_for(5)
    first = sim.agent
    sim.power_cut()
    assert sim.agent is not first
    assert sim.world.clock.now() < 100
    sim.run_for(5)
    boots = {r["boot"] for r in sim.journal.records()}
    assert len(boots) == 2


def test_an_outcome_that_was_not_on_the_disk_is_gone_after_a_power_cut() -> None:
    sim = simulation()
    sim.run_until(lambda: any(r["kind"] == "outcome" for r in sim.journal.records()), 5)
    sim.journal.power_cut()
    assert [r["kind"] for r in sim.journal.records()][-1] == "intent"


def test_a_stopped_agent_continues_later_and_the_machine_does_not_wait() -> None:
    sim = simulation(Segment(60, 60))
    sim.run_for(3)
    seen = len(sim.lines)
    sim.happen(ScheduledFault("0", FaultMode.STOP, 20.0))
    sim.run_for(20)
    assert len(sim.lines) == seen
    assert sim.world.workload.elapsed_s == pytest.approx(23, abs=0.1)
    sim.run_until(lambda: sim.phase is Phase.BOOSTING, 30)
    assert sim.starts == 1


def test_an_agent_that_ran_out_of_memory_is_started_again() -> None:
    sim = simulation(Segment(60, 60))
    sim.run_for(3)
    sim.happen(ScheduledFault("0", FaultMode.KILL, 5.0))
    assert sim.agent is None
    sim.run_until(lambda: sim.phase is Phase.BOOSTING, 30)
    assert sim.starts == 2
    assert len(sim.world.provider.volumes) == 1


def test_a_job_whose_child_is_killed_may_or_may_not_have_happened() -> None:
    sim = simulation(Segment(60, 60))
    sim.run_until(lambda: sim.world.volumes_left() == 1, 30)
    sim.happen(ScheduledFault("0", FaultMode.KILL_CHILD))
    sim.run_until(lambda: sim.phase is Phase.BOOSTING, 200)
    verdicts = [r["verdict"] for r in sim.journal.records() if r["kind"] == "outcome" and r["action"] == "CreateVolume"]
    assert verdicts == ["unknown", "done"]  # asked for again, with the same token
    assert len(sim.world.provider.volumes) == 1


def test_the_timeline_shows_rates_and_sizes() -> None:
    sim = simulation(Segment(40, 60))
    sim.run_for(40)
    boosted = [m for m in sim.timeline if m.phase is Phase.BOOSTING]
    assert boosted[-1].cache_bytes == 2 * GIB
    assert boosted[5].adaptive_mb_s == pytest.approx(60, rel=0.1)
    assert boosted[5].dirty_bytes > 0
    assert all(m.backing_mb_s < 34 for m in sim.timeline)


def test_waiting_for_what_does_not_happen_says_where_the_agent_stands() -> None:
    sim = simulation()
    with pytest.raises(TimeoutError) as caught:
        sim.run_until(lambda: sim.phase is Phase.FAULTED, 10)
    assert sim.standing() in str(caught.value)
    assert sim.standing().startswith(Phase.IDLE)


# --- the comparison --------------------------------------------------------------------------------------------


def test_the_adaptive_device_is_nearly_as_fast_as_a_fast_volume_at_a_fraction_of_its_cost() -> None:
    found = compare(Experiment(CM1.scaled(0.25), initial_bytes=4 * GIB))
    assert found.fast.completion_s < found.adaptive.completion_s < found.slow.completion_s
    assert found.adaptive.completion_s < 1.10 * found.fast.completion_s
    assert found.adaptive.agbs < 0.5 * found.fast.agbs
    assert (found.lost_blocks, found.volumes_left) == (0, 0)
    assert len(found.phases) == 4
    assert sum(p.agbs for p in found.phases) == pytest.approx(found.cache_agbs, rel=0.02)


def test_a_comparison_follows_from_its_seed() -> None:
    experiment = Experiment(DEMO.scaled(0.3), initial_bytes=2 * GIB, seed=4)
    assert compare(experiment) == compare(experiment)


def test_faults_strike_the_adaptive_run_only() -> None:
    plain = Experiment(DEMO.scaled(0.3), initial_bytes=2 * GIB)
    struck = Experiment(DEMO.scaled(0.3), initial_bytes=2 * GIB, faults="create#1+=expired")
    calm, stormy = compare(plain), compare(struck)
    assert (calm.slow, calm.fast) == (stormy.slow, stormy.fast)
    assert stormy.adaptive.completion_s > calm.adaptive.completion_s


def test_what_a_comparison_buys_follows_its_options() -> None:
    found = compare(Experiment(DEMO.scaled(0.3), initial_bytes=3 * GIB, size_bytes=20 * GB, cache_mb_s=200))
    assert found.phases[0].size_bytes == 3 * GIB
    assert found.fast.completion_s < 0.3 * 3 * 120 + 20
