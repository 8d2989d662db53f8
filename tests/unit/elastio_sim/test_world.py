"""The whole simulated machine, compared with published and measured figures."""

from __future__ import annotations

import pytest

from elastio.core.model import VolumeSpec
from elastio.core.policy import Policy
from elastio.units import GB, GIB, MIB, agbs
from elastio_adviser.checkpointing import Checkpointing, Profile, run_static
from elastio_sim.faults import FaultPlan
from elastio_sim.kernel import KernelSettings
from elastio_sim.run import Simulation
from elastio_sim.workload import Segment, Trace
from elastio_sim.world import SimWorld, WorldSettings, open_world
from tests.fixtures.caches import make_cache


def boosted(world: SimWorld, *, flush_mb_s: float | None = False) -> None:
    """Buy, attach and format a cache, as an agent would."""
    world.host.tune_backing()
    volume = world.provider.create("t1", VolumeSpec(4 * GIB, 128.0), {})
    world.advance(5.0)
    world.provider.attach(volume.id)
    world.advance(5.0)
    cache_set = make_cache(world.host, volume.serial, volume.size_bytes)
    world.host.attach_cache_set(cache_set, volume.serial, flush_mb_s=flush_mb_s)
    world.advance(1.0)


@pytest.mark.parametrize("step", [0.01, 0.07, 0.05, 1.0, 3.3])
def test_results_do_not_depend_on_the_step(step: float) -> None:
    world = SimWorld(workload=Checkpointing(Profile(5.0, 200 * 10**6, 2)))
    while not world.workload.done:
        world.advance(step)
    reference = run_static(Profile(5.0, 200 * 10**6, 2), 33.0, 50 * GB)
    assert world.workload.stats.completion_s == reference.completion_s


def test_the_time_of_day_may_jump() -> None:
    world = SimWorld(faults=FaultPlan.parse("@2=wall_jump:-7200"))
    before = world.clock.wall()
    world.advance(3.0)
    assert world.clock.wall() == pytest.approx(before + 3.0 - 7200.0)


def test_the_true_cost_is_the_backing_volume_and_every_cache() -> None:
    world = SimWorld()
    boosted(world)
    world.advance(100.0)
    backing = agbs(33.0, 50 * GB, world.clock.elapsed())
    cache = agbs(128.0, 4 * GIB, world.clock.elapsed())
    assert world.agbs() == pytest.approx(backing + cache, rel=1e-6)


def test_a_world_of_settings_follows_them() -> None:
    world = open_world({"seed": 4, "backing_mb_s": 60, "faults": "create#1=quota"}, "uuid")
    assert world.settings.kernel.backing_mb_s == 60.0
    assert world.provider.account.backing_uuid == "uuid"
    assert world.faults.spec() == "create#1=quota:10"


class Plodding(SimWorld):
    """Makes every tick, also those in which nothing happens."""

    def _skip(self, until: float) -> bool:
        return False


@pytest.mark.parametrize("spec", ["nothing", "create#1=stuck:7 detach#1=stuck_busy:9 @21.3=wall_jump:60 @clean=vanish"])
def test_jumping_over_quiet_time_changes_nothing(spec: str) -> None:
    settings = WorldSettings(KernelSettings(backing_mb_s=20, block_bytes=4 * MIB), seed=5)
    policy = Policy(20, 80, inactivity_delay_s=4, backing_uuid=settings.kernel.backing_uuid)
    load = (Segment(2.3, 0), Segment(9, 60, 7), Segment(30, 0), Segment(4.1, 30), Segment(1e9, 0))
    ends = []
    for kind in (SimWorld, Plodding):
        world = kind(settings, Trace(load, block_bytes=4 * MIB), FaultPlan.parse(spec))
        run = Simulation(world, policy)
        run.run_for(120)
        bcache, kernel = world.kernel.bcache, world.kernel
        moved = (kernel.traffic, bcache.acked, bcache.backing.durable, kernel._backing_use, kernel._fractions)
        ends.append((run.lines, world.provider.bill_agbs(), moved, world.workload.elapsed_s, world.happened))
    assert ends[0] == ends[1]
    assert len(ends[0][0]) > 20, "a run in which nothing happens proves nothing"
