"""Blips and odd bursts under the real agent, with the settings that a configuration has by default."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import pytest

from elastio.config.schema import parse
from elastio.core.cycle import Cycle
from elastio.core.policy import Policy
from elastio.sim.experiment import Experiment
from elastio.sim.kernel import KernelSettings
from elastio.sim.records import MemoryRecorder
from elastio.sim.run import Simulation
from elastio.sim.workload import CM1, Checkpointing, Workload
from elastio.sim.world import SimWorld, WorldSettings
from elastio.units import GB, GIB, MB, MIB

KERNEL = KernelSettings(backing_mb_s=33, block_bytes=4 * MIB)
PERIOD_S, BLIP_S, BLIP_MB_S, BURST_MB_S = 60.0, 2.0, 12.0, 60.0
START_S = 5.0
BACKING_BYTES, STEP = round(12.5 * GB), 16 * MIB


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
    assert [cycle.missing_bytes for cycle in bought[number + 1 :]] == [0] * (3 - number)
