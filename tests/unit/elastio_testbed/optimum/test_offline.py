"""The optimum that sees the future."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastio.strategy.speed import LATE_SHARES
from elastio.strategy.worth import Offer
from elastio.units import GB, GIB, MB
from elastio_adviser.replay import Demand
from elastio_testbed.optimum.market import (
    ATTACH_S,
    LATE_S,
    RELEASE_S,
    USABLE,
    Market,
    agbs_market,
    gp3_market,
    markets,
    openstack_market,
)
from elastio_testbed.optimum.model import Cache, Stretch, passed, slow, stretches
from elastio_testbed.optimum.offline import _late, caches, floor, optimum
from elastio_testbed.optimum.online import run
from elastio_testbed.optimum.traces import Load

SMALL = [
    replace(m, offer=replace(m.offer, bandwidths_mb_s=m.offer.bandwidths_mb_s[-3:-2] or (250.0,), most_bytes=7 * GIB))
    for m in markets()
]
SHARES = st.lists(st.floats(0, 0.99), min_size=1, max_size=1)


def brute_force(
    bursts: Sequence[Stretch],
    market: Market,
    shares: Sequence[float],
    unsure_s: Sequence[float] | None = None,
    mean_s: Sequence[float | None] = (),
) -> float:
    """The cheapest of everything that can be done; `shares`: of a burst, before a purchase or a release within it.

    `unsure_s`: for how long a cache has been there that is ahead of each burst; any other comes LATE_S into it.
    `mean_s`: what the pause before each burst counts for where a cache is kept; None: its length.
    """
    best: dict[int, float] = {len(bursts): 0.0}
    for first in reversed(range(len(bursts))):
        slow_s = sum(slow(p, market.backing_mb_s) for p in bursts[first].burst)
        best[first] = market.run_per_s * slow_s + best[first + 1]
        for cache in caches(market):
            for size in range(GIB, market.offer.most_bytes + 1, GIB):
                volume = replace(cache, room_mb=size * USABLE / MB)
                least = 0.0 if unsure_s is None else min(1.0, LATE_S / slow_s)
                bought = [(share, 0.0) for share in {least, *LATE_SHARES, *shares} if share >= least]
                ahead_s = 0.0 if unsure_s is None else unsure_s[first]
                for share, early_s in (*bought, *([(0.0, ahead_s)] if ahead_s < math.inf else [])):
                    found = owned(first, bursts, market, volume, size, share, shares, early_s, mean_s)
                    best[first] = min(best[first], *(cost + best[after] for cost, after in found))
    return best[0]


def owned(
    first: int,
    bursts: Sequence[Stretch],
    market: Market,
    cache: Cache,
    size: int,
    share: float,
    shares: Sequence[float],
    early_s: float,
    mean_s: Sequence[float | None],
) -> Iterator[tuple[float, int]]:
    """What a volume costs with the bursts it is there for, and the burst after it, for each way to release it."""
    b, dirty, held = market.backing_mb_s, 0.0, ATTACH_S + early_s
    parts, waits = _late(bursts[first].burst, share, b)
    spec = market.billed_spec(size, cache.mb_s)

    def cost(waited_s: float, held_s: float) -> float:
        return market.run_per_s * waited_s + market.cache.cost(spec, held_s + RELEASE_S)

    for last in range(first, len(bursts)):
        whole = parts if last == first else bursts[last].burst
        for share_of_last in shares:  # released under the load, which waits for the flush
            rest, _ = _late(whole, share_of_last, b)
            done = [Demand(p.seconds * share_of_last, p.write_bytes * share_of_last, 0.0) for p in whole]
            absorbing, left = served(done, b, cache, dirty)
            flush = left / b
            slowly = sum(slow(p, b) for p in rest)
            yield cost(waits + absorbing + flush + slowly, held + absorbing + flush), last + 1
        seconds, dirty = served(whole, b, cache, dirty)
        waits, held = waits + seconds, held + seconds
        pause = sum(p.seconds for p in bursts[last].pause)
        if last + 1 == len(bursts) or pause >= dirty / b + RELEASE_S + ATTACH_S:
            yield cost(waits, held + dirty / b), last + 1
        kept = mean_s[last + 1] if last + 1 < len(mean_s) else None
        held, dirty = held + (pause if kept is None else kept), max(0.0, dirty - b * pause)


def served(parts: Sequence[Demand], backing_mb_s: float, cache: Cache, dirty: float) -> tuple[float, float]:
    total = 0.0
    for part in parts:
        seconds, dirty, _ = passed(part, backing_mb_s, cache, dirty)
        total += seconds
    return total, dirty


def load_of(pairs: Sequence[tuple[float, float]]) -> tuple[Demand, ...]:
    return tuple(d for pause, gb in pairs for d in (Demand(pause, 0, 0), Demand(0, gb * GB, 0)))


@settings(deadline=None, derandomize=True, database=None, max_examples=20)
@given(
    st.lists(st.tuples(st.floats(6, 2000), st.floats(0.2, 12)), min_size=1, max_size=3), SHARES, st.sampled_from(SMALL)
)
def test_nothing_that_can_be_done_is_cheaper_and_the_bound_is_near(
    pairs: list[tuple[float, float]], shares: list[float], market: Market
) -> None:
    wanted = load_of(pairs)
    own = market.run_per_s * sum(d.seconds for d in wanted)
    least = brute_force(stretches(wanted, market.backing_mb_s)[1], market, shares)
    bound = optimum(wanted, market).cost - own
    assert 0.8 * least <= bound <= least * (1 + 1e-9)


@settings(deadline=None, derandomize=True, database=None, max_examples=12)
@given(
    st.lists(st.tuples(st.floats(6, 900), st.floats(0.2, 12), st.floats(0, 1)), min_size=1, max_size=3),
    SHARES,
    st.sampled_from(SMALL),
)
def test_nobody_who_does_not_know_when_the_next_burst_begins_is_below_the_floor(
    drawn: list[tuple[float, float, float]], shares: list[float], market: Market
) -> None:
    """The first burst is met when it is there, and the second one too, or by a cache held since the first."""
    wanted = load_of([(pause, gb) for pause, gb, _ in drawn])
    unsure = [pause * share for pause, _, share in drawn]
    load = Load("drawn", "test", wanted, {2 * number + 1: of for number, of in enumerate(unsure)})
    own = market.run_per_s * load.own_s
    waits = [math.inf, *(pause for pause, _, _ in drawn[1:2]), *unsure[2:]]
    least = brute_force(stretches(wanted, market.backing_mb_s)[1], market, shares, waits)
    bound = floor(load, market).cost - own
    assert 0.8 * least <= bound <= least * (1 + 1e-9)


@settings(deadline=None, derandomize=True, database=None, max_examples=12)
@given(
    st.lists(st.tuples(st.floats(6, 900), st.floats(0.2, 12)), min_size=3, max_size=4),
    st.floats(5, 900),
    SHARES,
    st.sampled_from(SMALL),
)
def test_a_pause_of_an_exponential_law_counts_for_its_mean_whatever_is_done_in_it(
    pairs: list[tuple[float, float]], mean_s: float, shares: list[float], market: Market
) -> None:
    wanted = load_of(pairs)
    load = Load("drawn", "test", wanted, mean_s={2 * number + 1: mean_s for number in range(len(pairs))})
    means = [None, None, *(mean_s for _ in pairs[2:])]
    waits = [math.inf, pairs[1][0], *(mean_s for _ in pairs[2:])]
    least = brute_force(stretches(wanted, market.backing_mb_s)[1], market, shares, waits, means)
    own = market.run_per_s * load.own_s
    bound = floor(load, market).cost - own
    assert 0.8 * least <= bound <= least * (1 + 1e-9)


def test_a_load_that_was_there_before_its_burst_has_been_seen() -> None:
    """Half of what the backing volume gives, for longer than an attach takes: the burst finds its cache.

    Else it writes for LATE_S at 131 MB/s instead of 594 x 0.94.
    """
    market = gp3_market()
    busy, calm = (Demand(20.0, 20 * rate * MB, 0) for rate in (0.5 * market.backing_mb_s, 1.0))
    seen, sudden = (Load("one", "test", (Demand(300, 0, 0), before, Demand(0, 8 * GB, 0))) for before in (busy, calm))
    assert floor(seen, market).cost == pytest.approx(optimum(seen.wanted, market).cost)
    late_s = floor(sudden, market).run_s - optimum(sudden.wanted, market).run_s
    assert late_s == pytest.approx(LATE_S * (1 - 131.072 / (593.75 * 0.94)))


def test_to_be_ahead_of_a_third_burst_is_paid_from_the_moment_at_which_it_might_have_begun() -> None:
    """Twenty seconds of a cache are cheaper than the wait, the 600 of the whole pause are not."""
    market, wanted = gp3_market(), load_of([(600, 8)] * 3)
    late_s = LATE_S * (1 - 131.072 / (593.75 * 0.94))
    known, nearly, never = (
        floor(Load("three", "test", wanted, {5: unsure_s}), market) for unsure_s in (0.0, 20.0, 600.0)
    )
    assert known.run_s - optimum(wanted, market).run_s == pytest.approx(2 * late_s)
    assert nearly.run_s == known.run_s
    assert nearly.bill - known.bill == pytest.approx(market.cache.per_hour(nearly.chains[2].spec) * 20 / 3600)
    assert never.run_s - known.run_s == pytest.approx(late_s)


def test_what_was_written_slowly_is_made_up_for_at_a_rate_of_its_own() -> None:
    """Of 15,000 MB in 100 s half take 60 s at 125 MB/s; on a cache of 300 MB/s the other half fits into 40 s."""
    (rest,), slow_s = _late((Demand(100.0, 15000 * MB, 0),), 0.5, 125.0)
    assert (slow_s, rest.seconds, rest.write_bytes) == (60.0, 40.0, 7500 * MB)
    assert passed(rest, 125.0, Cache(320.0, 0.0), 0.0).seconds == 40.0


def test_no_volume_is_larger_than_the_largest_that_may_be_bought() -> None:
    """70 GB in one burst: with 100 GiB at most, and with all that is sold."""
    market = gp3_market()
    wanted = (Demand(100, 0, 0), Demand(0, 150 * GB, 0))
    limited = optimum(wanted, market)
    assert all(chain.spec.size_bytes <= market.policy().caps.max_size_bytes for chain in limited.chains)
    unlimited = optimum(wanted, replace(market, offer=replace(market.offer, most_bytes=16384 * GIB)))
    assert limited.cost > unlimited.cost


def test_one_burst_by_hand() -> None:
    """8 GB at 500 x 0.94 MB/s take 17 s, and 61 s to flush. The bill may be that of a purchase an eighth later."""
    market = replace(gp3_market(), offer=Offer((500.0,)))
    found = optimum((Demand(100, 0, 0), Demand(0, 8 * GB, 0)), market)
    (chain,) = found.chains
    burst_s, flush_s = 8000 / 470, 8000 / market.backing_mb_s
    assert found.run_s == pytest.approx(100 + burst_s)
    assert chain.held_s == pytest.approx(ATTACH_S + (burst_s + flush_s) * 7 / 8 + RELEASE_S)
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
