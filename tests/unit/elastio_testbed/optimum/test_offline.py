"""The optimum that sees the future."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastio.core.model import VolumeSpec
from elastio.core.speed import LATE_SHARES, Offer
from elastio.units import GB, MB
from elastio_adviser.replay import Demand
from elastio_testbed.optimum.market import (
    ATTACH_S,
    RELEASE_S,
    USABLE,
    Market,
    agbs_market,
    gp3_market,
    markets,
    openstack_market,
)
from elastio_testbed.optimum.model import Stretch, passed, slow, stretches
from elastio_testbed.optimum.offline import _late, caches, optimum
from elastio_testbed.optimum.online import run
from elastio_testbed.optimum.traces import Load

SMALL = [
    replace(m, offer=replace(m.offer, bandwidths_mb_s=m.offer.bandwidths_mb_s[-3:-1] or (250.0,))) for m in markets()
]


def by_hand(bursts: Sequence[Stretch], market: Market) -> float:
    """The cheapest of everything that can be done, however long a volume is held."""
    best: dict[int, float] = {len(bursts): 0.0}
    for first in reversed(range(len(bursts))):
        best[first] = from_burst(first, bursts, market, best)
    return best[0]


def from_burst(first: int, bursts: Sequence[Stretch], market: Market, best: Mapping[int, float]) -> float:
    b, v = market.backing_mb_s, market.run_per_s
    found = [v * sum(slow(p, b) for p in bursts[first].burst) + best[first + 1]]
    for cache in caches(market):
        for share in (0.0, *LATE_SHARES):
            parts, waits = _late(bursts[first].burst, share, b)
            held = dirty = peak = 0.0
            for last in range(first, len(bursts)):
                for part in parts if last == first else bursts[last].burst:
                    seconds, dirty, most = passed(part, b, cache, dirty)
                    waits, held, peak = waits + seconds, held + seconds, max(peak, most)
                spec = market.billed_spec(int(peak * MB / USABLE), cache.mb_s)
                pause = sum(p.seconds for p in bursts[last].pause)
                bill = market.cache.cost(spec, ATTACH_S + held + dirty / b + RELEASE_S)
                if last + 1 == len(bursts) or pause >= dirty / b + RELEASE_S + ATTACH_S:
                    found.append(v * waits + bill + best[last + 1])
                held, dirty = held + pause, max(0.0, dirty - b * pause)
    return min(found)


def load_of(pairs: Sequence[tuple[float, float]]) -> tuple[Demand, ...]:
    return tuple(d for pause, gb in pairs for d in (Demand(pause, 0, 0), Demand(0, gb * GB, 0)))


@settings(deadline=None, derandomize=True, database=None, max_examples=25)
@given(
    st.lists(st.tuples(st.floats(6, 2000), st.floats(0.2, 12)), min_size=1, max_size=4),
    st.sampled_from(SMALL),
)
def test_it_is_the_cheapest_of_everything_that_can_be_done(pairs: list[tuple[float, float]], market: Market) -> None:
    wanted = load_of(pairs)
    own = market.run_per_s * sum(d.seconds for d in wanted)
    expected = by_hand(stretches(wanted, market.backing_mb_s)[1], market) + own
    assert optimum(wanted, market).cost == pytest.approx(expected, rel=1e-6)


def test_one_burst_by_hand() -> None:
    """8 GB at 500 x 0.94 MB/s take 17 s, and 61 s to flush; 12 GiB for 90 s cost a thousandth of a dollar."""
    market = replace(gp3_market(), offer=Offer((500.0,)))
    found = optimum((Demand(100, 0, 0), Demand(0, 8 * GB, 0)), market)
    (chain,) = found.chains
    burst_s, flush_s = 8000 / 470, 8000 / market.backing_mb_s
    assert chain.spec == VolumeSpec(12 * 2**30, 500.0)
    assert found.run_s == pytest.approx(100 + burst_s)
    assert chain.held_s == pytest.approx(ATTACH_S + burst_s + flush_s + RELEASE_S)
    assert found.bill == pytest.approx(market.cache.per_hour(chain.spec) * chain.held_s / 3600)
    assert found.cost == pytest.approx(found.bill + market.run_per_s * found.run_s)


def test_a_paid_hour_is_used_for_every_burst_in_it() -> None:
    wanted = load_of([(300, 2)] * 4)
    assert len(optimum(wanted, openstack_market()).chains) == 1
    assert len(optimum(wanted, agbs_market()).chains) == 4


@pytest.mark.parametrize("market", markets(), ids=lambda m: m.name)
def test_no_run_of_the_agent_is_cheaper(market: Market) -> None:
    load = Load("four", "test", load_of([(200, 3)] * 4))
    least = optimum(load.wanted, market).cost
    for by_money in (False, True):
        assert run(load, market, by_money=by_money).cost >= least * 0.995
