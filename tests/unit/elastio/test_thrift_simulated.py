"""Blips and odd bursts under the real agent, with the settings that a configuration has by default."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from elastio.config import parse
from elastio.policy import Policy
from elastio.sim.experiment import Experiment
from elastio.sim.kernel import KernelSettings
from elastio.sim.records import MemoryBooks
from elastio.sim.run import Simulation
from elastio.sim.workload import CM1, Checkpointing, Workload
from elastio.sim.world import SimWorld, WorldSettings
from elastio.units import GB, GIB, MB, MIB

KERNEL = KernelSettings(backing_mb_s=33, block_bytes=4 * MIB)
PERIOD_S, BLIP_S, BLIP_MB_S, BURST_MB_S = 60.0, 2.0, 12.0, 60.0
START_S = 5.0


def default_policy() -> Policy:
    return parse(
        {
            "device": {"backing_uuid": KERNEL.backing_uuid, "bandwidth_mb_s": 33.0},
            "cache": {"bandwidth_mb_s": 128.0},
            "provider": {"name": "sim"},
        }
    ).policy()


class Blips(Workload):
    """A blip at the beginning of each minute until `burst_s`; then a burst without end."""

    def __init__(self, burst_s: float) -> None:
        super().__init__(block_bytes=KERNEL.block_bytes)
        self.burst_s = burst_s
        self._tokens = 0.0
        self._position = 0

    def begin(self, seconds: float) -> None:
        super().begin(seconds)
        rate = self._rate()
        self._tokens = min(self._tokens + rate * MB * seconds, max(rate * MB, 2.0 * self.block_bytes)) if rate else 0.0

    def _rate(self) -> float:
        if self.elapsed_s > self.burst_s:
            return BURST_MB_S
        into = (self.elapsed_s - START_S) % PERIOD_S if self.elapsed_s > START_S else math.inf
        return BLIP_MB_S if 0 < into <= BLIP_S else 0.0

    def idle_s(self) -> float:
        if self.elapsed_s >= self.burst_s:
            return 0.0
        into = (self.elapsed_s - START_S) % PERIOD_S
        next_s = PERIOD_S - into if self.elapsed_s >= START_S else START_S - self.elapsed_s
        is_busy = self.elapsed_s >= START_S and into < BLIP_S
        return 0.0 if is_busy else min(next_s, self.burst_s - self.elapsed_s)

    def next_write(self) -> int | None:
        if self._tokens < self.block_bytes:
            return None
        self._tokens -= self.block_bytes
        self._position += 1
        return (self._position - 1) % self.span_blocks


def burst_at(burst_s: float) -> tuple[Simulation, int, float]:
    """The machine at that burst, how many volumes were bought before it, and after how long it asked for one."""
    world = SimWorld(WorldSettings(kernel=KERNEL, seed=2), Blips(burst_s))
    simulation = Simulation(world, default_policy(), seed=2)
    simulation.on_step = simulation.timeline.clear
    simulation.run_for(burst_s - 1)
    before = len(world.provider.volumes)
    simulation.run_until(lambda: len(world.provider.volumes) > before, 60)
    cycle = simulation.state.cycle
    assert cycle is not None
    return simulation, before, cycle.started_at - (world.clock.now() - world.clock.elapsed()) - burst_s


def test_a_day_of_blips_buys_few_volumes_and_the_burst_after_it_gets_its_cache_at_once() -> None:
    _, _, at_once_s = burst_at(START_S - 2)
    simulation, bought, asked_s = burst_at(START_S + 24 * 3600 + PERIOD_S / 2)
    assert bought <= 20
    assert asked_s == pytest.approx(at_once_s, abs=1e-6)
    assert simulation.state.cycle is not None
    assert simulation.state.cycle.spec.size_bytes == 10 * GIB  # blips taught no size


# --- odd bursts ------------------------------------------------------------------------------------------------


class Slowed:
    """The disks of one machine at a third for some seconds, from a while after the beginning of dump `number`."""

    def __init__(self, world: SimWorld, load: Checkpointing, number: int, begin_s: float, seconds: float) -> None:
        self._world, self._load, self._number, self._begin_s, self._seconds = world, load, number, begin_s, seconds
        self._kernel, self._full = world.kernel.settings, dict[str, float]()
        self._begun: float | None = None

    def __call__(self) -> None:
        now = self._world.clock.elapsed()
        if self._begun is None and self._load.dumping and len(self._load.stats.dumps) == self._number:
            self._begun = now
        is_slow = self._begun is not None and 0 <= now - self._begun - self._begin_s < self._seconds
        share = 1 / 3 if is_slow else 1.0
        self._world.kernel.settings = replace(self._kernel, backing_mb_s=self._kernel.backing_mb_s * share)
        for serial, disk in self._world.kernel.disks.items():
            disk.mb_s = self._full.setdefault(serial, disk.mb_s) * share


def quarter(disturb: Callable[[SimWorld, Checkpointing], Slowed]) -> MemoryBooks:
    """CM1 at a quarter, with fine steps of size; what was bought."""
    plan = Experiment(profile=CM1.scaled(0.25), size_bytes=round(12.5 * GB), initial_bytes=round(2.5 * GIB))
    kernel = KernelSettings(backing_mb_s=plan.backing_mb_s, backing_bytes=plan.size_bytes)
    load = Checkpointing(plan.profile, plan.size_bytes)
    world = SimWorld(WorldSettings(kernel=kernel), load)
    policy = replace(plan.policy(kernel.backing_uuid), min_size_bytes=GIB // 4, size_step_bytes=16 * MIB)
    books = MemoryBooks()
    simulation = Simulation(world, policy, books=books)
    simulation.on_step = disturb(world, load)
    simulation.run_until(lambda: world.workload.done, 10_000)
    simulation.run_until_settled(10_000)
    return books


@pytest.mark.parametrize("seconds", [10.0, 600.0])
@pytest.mark.parametrize("number", [0, 1, 2])
def test_the_burst_after_a_slow_one_does_not_spill(number: int, seconds: float) -> None:
    books = quarter(lambda world, load: Slowed(world, load, number, 3.0, seconds if number else 10.0))
    after = [cycle.missing_bytes for cycle in books.rows.values()][number + 1 :]
    assert len(books.rows) == 4
    assert after == [0] * (3 - number)
