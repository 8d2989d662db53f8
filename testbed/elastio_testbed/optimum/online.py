"""The agent on the simulator, billed by a market's tariff: with today's settings, or with those that money advises."""

from __future__ import annotations

import math
from dataclasses import dataclass

from elastio.sim.kernel import KernelSettings
from elastio.sim.replay import Replay
from elastio.sim.run import Simulation
from elastio.sim.world import SimWorld, WorldSettings
from elastio.units import MB
from elastio_testbed.optimum.advised import MOST_HELD_S, Advised
from elastio_testbed.optimum.market import Market
from elastio_testbed.optimum.traces import Load


@dataclass(frozen=True, slots=True)
class Bill:
    """One run. `run_s` is the time of the load, `bill` that of all cache volumes, `cost` with the value of time."""

    run_s: float
    bill: float
    cost: float
    boosts: int
    held_s: float


def run(load: Load, market: Market, *, advised: bool, seed: int = 0) -> Bill:
    """Replay the load until it is done and every volume is gone. Raises TimeoutError if that does not end."""
    kernel = KernelSettings(backing_mb_s=market.backing_mb_s, backing_bytes=market.backing_bytes)
    settings = WorldSettings(kernel=kernel, seed=seed, size_step_bytes=market.offer.size_step_bytes)
    world = SimWorld(settings, Replay(load.wanted, market.backing_bytes))
    adviser = Advised(market, world)
    simulation = Simulation(world, market.policy(), seed=seed, forecaster=adviser if advised else None)
    simulation.on_step = (lambda: adviser.advise(simulation)) if advised else simulation.timeline.clear
    slow_s = sum(max(d.seconds, d.moved_bytes / MB / market.backing_mb_s) for d in load.wanted)
    simulation.run_until(lambda: world.workload.done, 3600 + 4 * slow_s)
    simulation.run_until_settled(3600 + 4 * slow_s + MOST_HELD_S)
    return billed(world, market)


def billed(world: SimWorld, market: Market) -> Bill:
    """What a world's volumes and time cost."""
    now, bill, held = world.clock.elapsed(), 0.0, 0.0
    for volume in world.provider.volumes.values():
        seconds = (now if volume.deleted_at is None else volume.deleted_at) - volume.created_at
        bill += market.cache.cost(market.billed_spec(volume.size_bytes, volume.spec.bandwidth_mb_s), seconds)
        held += seconds
    run_s = world.workload.stats.finished_s or math.nan
    return Bill(run_s, bill, market.run_per_s * run_s + bill, len(world.provider.volumes), held)
