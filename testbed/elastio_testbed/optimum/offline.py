"""The cheapest way through a load for somebody who knows it in advance: dynamic programming over all purchases. Pure.

Theory of operation. A *chain* is one volume, bought before some burst and released after the same or a later one. The
cheapest way from a burst to the end is to take this burst slowly, or any chain that begins with it, and then the
cheapest way from where that ends:

    best[i] = min( v slow(i) + best[i+1],   min over chains i..j of  v waits + bill + best[j+1] )

All chains are tried: every bandwidth that is sold, three drains, all or a part of the first burst (the rest is written
before the cache serves), and every last burst. The size is what the chain needs, in whole steps. Purchases are ahead:
the cache serves from the first byte on that is meant for it, and the volume is paid from ATTACH_S before. It is flushed
at once after the last burst and paid until RELEASE_S after the flush.

A chain is not extended over a pause that costs more than to buy an equal volume again, with its least billed time and
one billed step: what is left out is never cheaper.

Limits, all of which make this a little dearer than the true optimum, never cheaper than the model allows: no cache is
smaller than its chain needs; a volume is attached only after the last one is released and gone, and ahead, or not at
all; bandwidths are those of the offer, and drains the three of `speed.DRAINS`; bursts closer than five seconds are one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from elastio.core.model import VolumeSpec
from elastio.core.speed import DRAINS, LATE_SHARES
from elastio.units import MB
from elastio_adviser.replay import Demand
from elastio_testbed.optimum.market import ATTACH_S, RELEASE_S, USABLE, Market
from elastio_testbed.optimum.model import Cache, Stretch, passed, slow, stretches


class Chain(NamedTuple):
    """One volume, from burst `first` to burst `last`. `waits_s`: how long its bursts took."""

    first: int
    last: int
    spec: VolumeSpec
    drain_mb_s: float
    late_share: float
    burst_s: float
    held_s: float
    bill: float


@dataclass(frozen=True, slots=True)
class Optimum:
    """The cheapest way. `run_s` is the whole time of the load, `cost` the bill of all volumes and the value of time."""

    run_s: float
    bill: float
    cost: float
    chains: tuple[Chain, ...]


def optimum(wanted: Sequence[Demand], market: Market) -> Optimum:
    """The cheapest way through this load at these prices."""
    before, bursts = stretches(wanted, market.backing_mb_s)
    v, count = market.run_per_s, len(bursts)
    slow_s = [sum(slow(part, market.backing_mb_s) for part in b.burst) for b in bursts]
    best = [0.0] * (count + 1)
    taken: list[Chain | None] = [None] * count
    for first in reversed(range(count)):
        best[first] = v * slow_s[first] + best[first + 1]
        for chain in chains(first, bursts, market):
            cost = v * chain.burst_s + chain.bill + best[chain.last + 1]
            if cost < best[first]:
                best[first], taken[first] = cost, chain
    own_s = sum(part.seconds for part in before) + sum(p.seconds for b in bursts for p in b.pause)
    run_s, bill, used = _followed(taken, slow_s, own_s)
    return Optimum(run_s, bill, v * run_s + bill, used)


def _followed(
    taken: Sequence[Chain | None], slow_s: Sequence[float], own_s: float
) -> tuple[float, float, tuple[Chain, ...]]:
    run_s, bill, used, at = own_s, 0.0, [], 0
    while at < len(taken):
        chain = taken[at]
        if chain is None:
            run_s += slow_s[at]
            at += 1
            continue
        used.append(chain)
        run_s, bill, at = run_s + chain.burst_s, bill + chain.bill, chain.last + 1
    return run_s, bill, tuple(used)


def caches(market: Market) -> Iterator[Cache]:
    """Everything that is sold, within the instance's limit, and faster than the backing volume."""
    for mb_s in market.offer.bandwidths_mb_s:
        for share in DRAINS:
            cache = Cache(mb_s, share * market.backing_mb_s)
            within = mb_s * market.terms().efficiency + cache.drain_mb_s <= market.bounds.instance_mb_s
            if within and mb_s <= market.bounds.most_mb_s and cache.app_mb_s > market.backing_mb_s:
                yield cache


def chains(first: int, bursts: Sequence[Stretch], market: Market) -> Iterator[Chain]:
    """Every chain that begins with this burst."""
    for cache in caches(market):
        for late_share in (0.0, *LATE_SHARES):
            yield from _extended(first, bursts, market, cache, late_share)


def _extended(
    first: int, bursts: Sequence[Stretch], market: Market, cache: Cache, late_share: float
) -> Iterator[Chain]:
    b = market.backing_mb_s
    burst_s = held_s = dirty = peak = 0.0
    parts, late_s = _late(bursts[first].burst, late_share, b)
    for last in range(first, len(bursts)):
        took = 0.0
        for part in parts if last == first else bursts[last].burst:
            seconds, dirty, most = passed(part, b, cache, dirty)
            took, peak = took + seconds, max(peak, most)
        burst_s, held_s = burst_s + took + (late_s if last == first else 0.0), held_s + took
        spec = market.offer.spec(peak * MB / USABLE, cache.mb_s)
        if spec is None:
            return
        pause_s = sum(part.seconds for part in bursts[last].pause)
        flush_s, left = _flushed(bursts[last].pause, b, cache, dirty)
        billed_s = ATTACH_S + held_s + flush_s + RELEASE_S
        is_last = last + 1 == len(bursts)
        if is_last or pause_s >= flush_s + RELEASE_S + ATTACH_S:
            bill = market.cache.cost(spec, billed_s)
            yield Chain(first, last, spec, cache.drain_mb_s, late_share, burst_s, billed_s, bill)
        tariff = market.cache
        again_s = flush_s + ATTACH_S + RELEASE_S + tariff.minimum_s + tariff.step_s
        if pause_s > again_s:
            return
        held_s, dirty = held_s + pause_s, left


def _late(parts: Sequence[Demand], share: float, backing_mb_s: float) -> tuple[tuple[Demand, ...], float]:
    """What is left of a burst when this share of its bytes was written slowly, and how long that took."""
    if not share:
        return tuple(parts), 0.0
    left = share * sum(part.moved_bytes for part in parts)
    seconds, rest = 0.0, []
    for part in parts:
        done = min(1.0, left / part.moved_bytes) if part.moved_bytes and left > 0 else 0.0
        left -= done * part.moved_bytes
        seconds += slow(part, backing_mb_s) * done
        if done < 1:
            rest.append(Demand(part.seconds * (1 - done), part.write_bytes * (1 - done), part.read_bytes * (1 - done)))
    return tuple(rest), seconds


def _flushed(pause: Sequence[Demand], backing_mb_s: float, cache: Cache, dirty_mb: float) -> tuple[float, float]:
    """Seconds into the pause at which the cache is clean, counted on beyond its end; and what is dirty at its end."""
    at = 0.0
    for part in pause:
        seconds, after, _ = passed(part, backing_mb_s, cache, dirty_mb)
        if after <= 0:
            free = backing_mb_s - part.moved_bytes / MB / seconds if seconds > 0 else backing_mb_s
            return at + (dirty_mb / free if free > 0 else seconds), 0.0
        at, dirty_mb = at + seconds, after
    return (at + dirty_mb / backing_mb_s, dirty_mb) if not math.isclose(dirty_mb, 0.0) else (0.0, 0.0)
