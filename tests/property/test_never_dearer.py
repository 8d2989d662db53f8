"""Where no cache is worth its price, an agent by money costs no more than one that buys nothing, whatever the load is.

But for a hundredth of what is waited without caches, and the least bill of one purchase in vain. The allowance of
forecasts would hide every mistake: it is as much as such a load waits. Where caches nearly pay, no such bound is kept.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from elastio.strategy.learned import FREE_S
from elastio.units import GIB
from elastio_testbed.optimum.hostile import dump, pause
from elastio_testbed.optimum.market import Market, gp3_market
from elastio_testbed.optimum.model import slow
from elastio_testbed.optimum.online import run
from elastio_testbed.optimum.traces import Load

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
