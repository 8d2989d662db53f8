"""Where no cache is worth its price, an agent by money costs no more than one that buys nothing, whatever the load is.

But for a hundredth of what is waited without caches, and the least bill of one purchase in vain. The allowance of
forecasts would hide every mistake: it is as much as such a load waits. Where caches nearly pay, no such bound is kept.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from elastio.agent.adviser import HindsightAdviser
from elastio.strategy.learned import FREE_S
from elastio.units import GIB
from elastio_adviser.replay import Replay
from elastio_sim.kernel import KernelSettings
from elastio_sim.run import Simulation
from elastio_sim.world import SimWorld, WorldSettings
from elastio_testbed.optimum.hostile import dump, pause
from elastio_testbed.optimum.market import Market, gp3_market
from elastio_testbed.optimum.model import slow
from elastio_testbed.optimum.online import money_policy, run
from elastio_testbed.optimum.traces import Load
from tests.values import present

SHARE = 0.01


def dear() -> Market:
    """gp3, with volumes so many times as dear; at half of that some caches pay for bursts of 1.5 GB."""
    market, times = gp3_market(), 32
    sold = market.cache
    tariff = replace(sold, per_gib_hour=times * sold.per_gib_hour, per_mb_s_hour=times * sold.per_mb_s_hour)
    return replace(market, cache=tariff)


def drawn(seed: int) -> Load:
    random, parts = Random(seed), []
    for _ in range(5):
        parts += [pause(random.expovariate(1 / 40)), dump(1.5 * random.lognormvariate(0.0, 0.5))]
    return Load("drawn", "random", (*parts, pause(30.0)))


@pytest.mark.parametrize("seed", range(3))
def test_to_buy_nothing_is_hardly_cheaper(seed: int) -> None:
    market, load = dear(), drawn(seed)
    waited = market.run_per_s * (sum(slow(part, market.backing_mb_s) for part in load.wanted) - load.own_s)
    in_vain = market.cache.cost(market.billed_spec(GIB, min(market.offer.bandwidths_mb_s)), FREE_S)
    found = run(load, market, by_money=True)
    paid = found.cost - market.run_per_s * load.own_s
    allowed = SHARE * waited + in_vain
    assert paid <= waited + allowed, f"{paid:.5f} USD instead of {waited:.5f} and {allowed:.5f} at the most"


@pytest.mark.parametrize("seed", range(2))
def test_hardly_anything_is_bought_for_a_load_that_waits_for_nothing(seed: int) -> None:
    """However near its rates come to what the volume gives: to see whether it waits costs a hundredth of its time."""
    random, market = Random(seed), gp3_market()
    rates = [market.backing_mb_s * random.uniform(0.4, 0.96) for _ in range(5)]
    parts = [part for rate in rates for part in (pause(random.expovariate(1 / 40)), pause(20.0, rate, 1.0))]
    found = run(Load("drawn", "near", (*parts, pause(30.0))), market, by_money=True)
    assert found.bill <= SHARE * market.run_per_s * 20.0 * len(rates)


def test_a_volume_that_gives_less_than_is_configured_is_found_out() -> None:
    """A burst that leaves a tenth of it unused for long gets a cache, and that shows where loads wait from then on."""
    market = replace(gp3_market(), value_per_s=8.0 / 3600)
    kernel = KernelSettings(backing_mb_s=0.9 * market.backing_mb_s, backing_bytes=market.backing_bytes)
    load = Replay((pause(10.0), dump(8.0), pause(30.0)), market.backing_bytes)
    world = SimWorld(WorldSettings(kernel=kernel, tariff=market.cache), load)
    simulation = Simulation(world, money_policy(market), adviser=HindsightAdviser())
    simulation.run_until(lambda: world.workload.done, 3600)
    (volume,) = world.provider.volumes.values()
    assert 30 < volume.created_at < 60
    assert simulation.agent is not None
    assert present(simulation.agent.advice).waits_at == pytest.approx(0.9, abs=0.01)
