"""Blips and odd bursts under the real agent, with the settings that a configuration has by default."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from elastio.config.schema import parse
from elastio.core.cycle import Cycle
from elastio.core.policy import Policy
from elastio.units import GB, GIB, MIB
from elastio_adviser.checkpointing import CM1, Checkpointing
from elastio_adviser.experiment import Experiment
from elastio_sim.kernel import KernelSettings
from elastio_sim.records import MemoryRecorder
from elastio_sim.run import Simulation
from elastio_sim.workload import Segment, Trace
from elastio_sim.world import SimWorld, WorldSettings
from tests.fixtures.least_configuration import least
from tests.values import present

KERNEL = KernelSettings(backing_mb_s=33, block_bytes=4 * MIB)
HOUR = (Segment(2, 12), Segment(58, 0)) * 60  # a blip at the beginning of each minute
BACKING_BYTES, STEP = round(12.5 * GB), 16 * MIB


def default_policy() -> Policy:
    return parse(least(uuid=KERNEL.backing_uuid)).policy()


def burst_after(hours: int) -> tuple[Simulation, int, float]:
    """The machine at a burst after so many hours of blips: the volumes bought before it, and when it asked for one."""
    world = SimWorld(WorldSettings(kernel=KERNEL, seed=2))
    simulation = Simulation(world, default_policy(), seed=2)
    simulation.on_step = simulation.timeline.clear
    simulation.run_for(5)
    for _ in range(hours):
        world.workload = Trace(HOUR, block_bytes=KERNEL.block_bytes)
        simulation.run_for(3600)
    world.workload = Trace((Segment(1e9, 60),), block_bytes=KERNEL.block_bytes)
    before, begun = len(world.provider.volumes), world.clock.now()
    simulation.run_until(lambda: len(world.provider.volumes) > before, 60)
    return simulation, before, present(simulation.state.cycle).started_at - begun


def test_eight_hours_of_blips_buy_few_volumes_and_the_burst_after_it_gets_its_cache_at_once() -> None:
    _, _, at_once_s = burst_after(0)
    simulation, bought, asked_s = burst_after(8)
    assert 0 < bought <= 10
    assert asked_s == pytest.approx(at_once_s, abs=1e-6)
    assert present(simulation.state.cycle).spec.size_bytes == 10 * GIB  # blips taught no size


# --- odd bursts ------------------------------------------------------------------------------------------------


@dataclass
class Slowed:
    """A cache at a third of its speed for ten seconds, from `begin_s` after the beginning of dump `number`; the backing
    volume too, or not."""

    world: SimWorld
    load: Checkpointing
    number: int
    begin_s: float
    is_backing_slow: bool
    begun: float | None = None
    full: dict[str, float] = field(default_factory=dict)

    def __call__(self) -> None:
        now, usual = self.world.clock.elapsed(), KernelSettings(backing_bytes=BACKING_BYTES)
        if self.begun is None and self.load.dumping and len(self.load.stats.dumps) == self.number:
            self.begun = now
        is_slow = self.begun is not None and 0 <= now - self.begun - self.begin_s < 10
        share = 1 / 3 if is_slow else 1.0
        backing_mb_s = usual.backing_mb_s * (share if self.is_backing_slow else 1.0)
        self.world.kernel.settings = replace(usual, backing_mb_s=backing_mb_s)
        for serial, disk in self.world.kernel.disks.items():
            disk.mb_s = self.full.setdefault(serial, disk.mb_s) * share


def quarter(number: int, begin_s: float, *, is_backing_slow: bool) -> list[Cycle]:
    """CM1 at a quarter, with fine steps of size and one dump disturbed; what was bought."""
    plan = Experiment(profile=CM1.scaled(0.25), size_bytes=BACKING_BYTES, initial_bytes=round(2.5 * GIB))
    kernel = KernelSettings(backing_bytes=BACKING_BYTES)
    load = Checkpointing(plan.profile, BACKING_BYTES)
    world = SimWorld(WorldSettings(kernel=kernel, size_step_bytes=STEP), load)
    policy = replace(plan.policy(kernel.backing_uuid), min_size_bytes=GIB // 4, size_step_bytes=STEP)
    recorder = MemoryRecorder()
    simulation = Simulation(world, policy, recorder=recorder)
    simulation.on_step = Slowed(world, load, number, begin_s, is_backing_slow)
    simulation.run_until(lambda: world.workload.done, 10_000)
    simulation.run_until_settled(10_000)
    return list(recorder.rows.values())


@pytest.mark.parametrize("is_backing_slow", [True, False])
@pytest.mark.parametrize("begin_s", [0.0, 3.0, 5.0])
@pytest.mark.parametrize("number", [0, 1, 2])
def test_the_bursts_after_a_slow_one_do_not_spill(number: int, begin_s: float, *, is_backing_slow: bool) -> None:
    bought = quarter(number, begin_s, is_backing_slow=is_backing_slow)
    assert [cycle.use.missing_bytes for cycle in bought[number + 1 :]] == [0] * (3 - number)
