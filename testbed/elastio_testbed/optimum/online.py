"""The agent on the simulator, billed by a market's tariff: with today's settings, or deciding by money.

By money it is the agent as it is installed with `policy.model = "money"` and `policy.ahead = "learned"`: its own
decisions, adviser and forecaster, on a ledger that exists for the run only.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from elastio.accounting.ledger import Ledger
from elastio.accounting.recorder import CostRecorder
from elastio.agent.adviser import HindsightAdviser, LearnedForecaster, forecast_terms
from elastio.core.policy import Ahead, Model, Policy
from elastio.strategy import worth
from elastio.strategy.learned import ForecastTerms
from elastio.units import MB
from elastio_adviser.replay import Replay
from elastio_sim.kernel import KernelSettings
from elastio_sim.run import Simulation
from elastio_sim.world import SimWorld, WorldSettings
from elastio_testbed.optimum.market import Market
from elastio_testbed.optimum.traces import Load


@dataclass(frozen=True, slots=True)
class RunCost:
    """One run. `run_s` is the time of the load, `bill` that of all cache volumes, `cost` with the value of time."""

    run_s: float
    bill: float
    cost: float
    boosts: int
    held_s: float


def run(load: Load, market: Market, *, by_money: bool, seed: int = 0) -> RunCost:
    """Replay the load until it is done and every volume is gone. Raises TimeoutError if that does not end."""
    kernel = KernelSettings(backing_mb_s=market.backing_mb_s, backing_bytes=market.backing_bytes)
    settings = WorldSettings(
        kernel=kernel, seed=seed, size_step_bytes=market.offer.size_step_bytes, tariff=market.cache
    )
    world = SimWorld(settings, Replay(load.wanted, market.backing_bytes))
    if not by_money:
        return _finished(Simulation(world, market.policy(), seed=seed), load, market)
    with _deciding_by_money(world, market, seed) as simulation:
        return _finished(simulation, load, market)


def money_policy(market: Market) -> Policy:
    """Today's settings, but decisions by this market, and caches that are bought ahead of expected bursts."""
    policy = market.policy()
    decides_by = worth.Market(market.cache, market.run_per_s, market.offer, market.bounds)
    # As the module is configured with the package.
    cutoff = KernelSettings().cutoff
    return replace(policy, model=Model.MONEY, market=decides_by, ahead=Ahead.LEARNED, cutoff=cutoff)


@contextmanager
def _deciding_by_money(world: SimWorld, market: Market, seed: int) -> Iterator[Simulation]:
    """The simulation of an agent by money, with a ledger until the end of the context."""
    with TemporaryDirectory(prefix="elastio-optimum-") as folder, Ledger(Path(folder) / "ledger") as ledger:
        recorder = CostRecorder(ledger, market.policy().backing_uuid)

        def terms() -> ForecastTerms | None:
            return None if simulation.agent is None else forecast_terms(simulation.agent, market.run_per_s * 3600)

        forecaster = LearnedForecaster(recorder.past, terms)
        simulation = Simulation(
            world,
            money_policy(market),
            seed=seed,
            recorder=recorder,
            forecaster=forecaster,
            adviser=HindsightAdviser(past=recorder.past),
        )
        yield simulation


def _finished(simulation: Simulation, load: Load, market: Market) -> RunCost:
    world = simulation.world
    simulation.on_step = simulation.timeline.clear
    slow_s = sum(max(d.seconds, d.moved_bytes / MB / market.backing_mb_s) for d in load.wanted)
    simulation.run_until(lambda: world.workload.done, 3600 + 4 * slow_s)
    simulation.run_until_settled(3600 + 4 * slow_s + worth.MOST_HELD_S)
    return billed(world, market)


def billed(world: SimWorld, market: Market) -> RunCost:
    """What a world's volumes and time cost."""
    now, bill, held = world.clock.elapsed(), 0.0, 0.0
    for volume in world.provider.volumes.values():
        seconds = (now if volume.deleted_at is None else volume.deleted_at) - volume.created_at
        bill += market.cache.cost(market.billed_spec(volume.size_bytes, volume.spec.bandwidth_mb_s), seconds)
        held += seconds
    run_s = world.workload.stats.finished_s or math.nan
    return RunCost(run_s, bill, market.run_per_s * run_s + bill, len(world.provider.volumes), held)
