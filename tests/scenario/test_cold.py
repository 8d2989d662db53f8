"""A cold backing volume: the agent flushes without running its credits down, and still ends every flush."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elastio.core.state import Phase
from elastio.strategy.credits import CreditBucket
from elastio.units import GB, GIB, MIB
from elastio_sim.run import Simulation
from elastio_sim.workload import Segment, Trace
from elastio_sim.world import SimWorld, WorldSettings
from tests.simulated import KERNEL, POLICY, intents

# A full bucket holds 20 GB, of which a flush leaves 2; 0.3 GB more are there at the start.
BUCKET = CreditBucket(base_mb_s=4.0, burst_mb_s=20.0, capacity_bytes=20 * GB)
FIRST = 2.3 * GB
BURSTS = (Segment(2, 0), Segment(20, 60), Segment(300, 0)) * 3 + (Segment(1e9, 0),)


def cold(*, knows: bool = True) -> Simulation:
    """Three bursts of 1.2 GB on the cold volume. `knows`: the agent is told of its credits."""
    kernel = replace(KERNEL, backing_credits=BUCKET, first_credits_bytes=FIRST)
    world = SimWorld(WorldSettings(kernel=kernel, seed=5), Trace(BURSTS, block_bytes=4 * MIB))
    policy = replace(POLICY, initial_size_bytes=4 * GIB)
    if knows:
        policy = replace(policy, backing_credits=BUCKET, first_credits_bytes=FIRST)
    return Simulation(world, policy)


def test_bursts_are_absorbed_and_flushed_and_the_reserve_stays() -> None:
    sim = cold()
    sim.run_for(1200)
    sim.run_until_settled(2000)
    assert sim.phase is Phase.IDLE
    assert sim.world.volumes_left() == 0
    assert sim.world.kernel.lost() == frozenset()
    assert intents(sim, "CreateVolume") >= 2
    assert sim.world.kernel.least_credits_bytes >= 0.9 * BUCKET.reserve_bytes
    assert intents(sim, "SetFlush") < 100


def test_an_agent_that_does_not_know_of_the_credits_spends_them() -> None:
    sim = cold(knows=False)
    sim.run_for(1200)
    assert sim.world.kernel.least_credits_bytes < 0.9 * BUCKET.reserve_bytes


def test_the_agents_balance_is_that_of_the_volume() -> None:
    sim = cold()
    sim.run_for(400)
    known = sim.state.memory.credits
    assert known is not None
    assert known.balance_bytes == pytest.approx(sim.world.kernel.credits_bytes, rel=0.01)
