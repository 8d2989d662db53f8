"""The cheapest way through a load for somebody who knows it in advance: dynamic programming over all purchases. Pure.

Theory of operation. A *chain* is one volume, bought before some burst and released after the same or a later one. The
cheapest way from a burst to the end is to take this burst slowly, or any chain that begins with it, and then the
cheapest way from where that ends:

    best[i] = min( v slow(i) + best[i+1],   min over chains i..j of  v waits + bill + best[j+1] )

Everything that is sold is tried, and every last burst. Two things can be chosen in any amount, so they are tried in
cells: the size, in whole steps, and the moment of the purchase, ahead of the burst or within it. With more room, or
with an earlier purchase, waits are never longer, and the volume is billed for longer or for as long. So in a cell

    waits >= those at one of its corners        bill >= (least size, shortest time of a corner)

and with both the result is a *lower bound*: no way through the load is cheaper in this model. A test compares it with
everything that can be done on small loads. Purchases ahead serve from the first byte on, and the volume is paid from
ATTACH_S before. It is flushed after the last burst and paid until RELEASE_S after the flush. Where the pause is too
short for that, the next burst waits for the rest of the flush: to release a cache under a load is not cheaper, because
what it absorbs meanwhile has to be written back before it goes, while the load waits.

A chain is not extended over a pause that costs more than to buy an equal volume again ahead of the next burst, with its
least billed time and one billed step: what is left out is never cheaper.

What is sold, the largest size and the instance's limit are those of the market, and the configured bandwidth of today
is among them. Drains are the three of `speed.DRAINS`, and bursts closer than five seconds are one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise, repeat, takewhile
from typing import NamedTuple

from elastio.core.model import VolumeSpec
from elastio.strategy.speed import DRAINS
from elastio.units import MB
from elastio_adviser.replay import Demand
from elastio_testbed.optimum.market import ATTACH_S, LATE_S, RELEASE_S, USABLE, Market
from elastio_testbed.optimum.model import WORKING, Cache, Stretch, passed, slow, stretches
from elastio_testbed.optimum.traces import Load

# Cells of the moment of a purchase within a burst, and by how much the largest size of a cell exceeds its smallest.
LATE_CELLS, SIZE_RATIO = 8, 1.25
# Before so many bursts were seen nobody can know a pause between two.
LEARNT = 2


class Chain(NamedTuple):
    """One volume, from burst `first` to burst `last`, which take `burst_s`: the least of its cell, each by itself."""

    first: int
    last: int
    spec: VolumeSpec
    burst_s: float
    held_s: float
    bill: float


class End(NamedTuple):
    """A chain that ends with some burst: how long its bursts took, and how long its volume was billed."""

    burst_s: float
    held_s: float


class Sight(NamedTuple):
    """How a burst is met: by a cache that was there for `unsure_s` before it, or when this share of it is written.

    `pause_s`: what the pause before it counts for where a cache is kept through it; None: its length.
    """

    unsure_s: float = 0.0
    late: float = 0.0
    pause_s: float | None = None


class Leg(NamedTuple):
    """A burst and the pause after it, which counts for `kept_s` where a cache is kept through it.

    That is `spared_s` longer than a cache is there that was released and is bought again ahead of the next burst.
    """

    burst: tuple[Demand, ...]
    pause: tuple[Demand, ...]
    kept_s: float
    spared_s: float


@dataclass(frozen=True, slots=True)
class Optimum:
    """The least that a way can cost. `cost` is the bill of all volumes and the value of `run_s`, the load's time."""

    run_s: float
    bill: float
    cost: float
    chains: tuple[Chain, ...]


def optimum(wanted: Sequence[Demand], market: Market) -> Optimum:
    """A lower bound of what a way through this load costs at these prices."""
    return _cheapest(wanted, market, repeat(Sight()))


def _cheapest(wanted: Sequence[Demand], market: Market, sights: Iterable[Sight]) -> Optimum:
    before, found = stretches(wanted, market.backing_mb_s)
    v, count = market.run_per_s, len(found)
    known = list(islice(sights, count))
    bursts = list(_legs(found, known))
    slow_s = [sum(slow(part, market.backing_mb_s) for part in b.burst) for b in bursts]
    best = [0.0] * (count + 1)
    taken: list[Chain | None] = [None] * count
    for first in reversed(range(count)):
        best[first] = v * slow_s[first] + best[first + 1]
        for chain in chains(first, bursts, market, known[first]):
            cost = v * chain.burst_s + chain.bill + best[chain.last + 1]
            if cost < best[first]:
                best[first], taken[first] = cost, chain
    own_s = sum(part.seconds for part in before) + sum(p.seconds for b in bursts for p in b.pause)
    run_s, bill, used = _followed(taken, slow_s, own_s)
    return Optimum(run_s, bill, v * run_s + bill, used)


def _legs(bursts: Sequence[Stretch], sights: Sequence[Sight]) -> Iterator[Leg]:
    for stretch, following in zip(bursts, (*sights[1:], Sight()), strict=False):
        pause_s = sum(part.seconds for part in stretch.pause)
        kept_s = pause_s if following.pause_s is None else following.pause_s
        yield Leg(*stretch, kept_s, kept_s - following.unsure_s)


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


def floor(load: Load, market: Market, late_s: float = LATE_S) -> Optimum:
    """What is paid at the least, on average, by everybody who does not know when the next burst begins.

    Whatever else is known. Nothing is bought before a load was seen. So for the first burst a cache serves `late_s`
    after it has begun, for the second too, or the pause between them is paid for: nobody can know it. From then on the
    law of the pauses is known. Of a rhythm that is the pause. Of one that is drawn with equal likelihood between two
    lengths, a cache that is ahead of the burst was there at the shortest one, so x seconds beyond it cost the lesser of
    c_h x and c_l late_s, which is what the best moment to buy it costs on average. A pause of an exponential law is as
    likely to end at one moment as at any other. So what paid at its begin pays to its end: a cache is kept or bought at
    once, for the mean m of the law, or the burst is met late, whichever is less of c_h m and c_l late_s.

    That is an average over such pauses: for one load it may be less, by luck.
    """
    before, bursts = stretches(load.wanted, market.backing_mb_s)
    return _cheapest(load.wanted, market, _sights(before, bursts, market.backing_mb_s, load, late_s))


def _sights(
    before: Sequence[Demand], bursts: Sequence[Stretch], backing_mb_s: float, load: Load, late_s: float
) -> Iterator[Sight]:
    at, pause = len(before), before
    for number, stretch in enumerate(bursts):
        seen_s = _seen_s(pause, backing_mb_s)
        late = _share_after(stretch.burst, late_s - seen_s, backing_mb_s)
        mean_s = load.mean_s.get(at)
        unknown_s = load.unsure_s.get(at, 0.0) if mean_s is None else mean_s
        if number < LEARNT:
            unknown_s = sum(part.seconds for part in pause) if number else math.inf
        kept_s = mean_s if number >= LEARNT else None
        yield Sight(max(0.0, unknown_s - seen_s) if late else 0.0, late, kept_s)
        at, pause = at + len(stretch.burst) + len(stretch.pause), stretch.pause


def _seen_s(pause: Sequence[Demand], backing_mb_s: float) -> float:
    """For how long a load has been there when the burst begins that follows this pause."""
    busy = takewhile(lambda part: part.moved_bytes / MB >= WORKING * backing_mb_s * part.seconds > 0, reversed(pause))
    return sum(part.seconds for part in busy)


def _share_after(parts: Sequence[Demand], seconds: float, backing_mb_s: float) -> float:
    """Which share of a burst's bytes is moved after so many seconds without a cache."""
    moved = 0.0
    for part in parts:
        took = slow(part, backing_mb_s)
        moved += part.moved_bytes * min(1.0, max(0.0, seconds) / took) if took > 0 else 0.0
        seconds -= took
    return moved / sum(part.moved_bytes for part in parts)


def caches(market: Market) -> Iterator[Cache]:
    """Everything that is sold, within the instance's limit, and faster than the backing volume; and today's."""
    for mb_s in market.offer.bandwidths_mb_s:
        for share in DRAINS:
            cache = Cache(mb_s, share * market.backing_mb_s)
            within = mb_s * market.terms().efficiency + cache.drain_mb_s <= market.bounds.instance_mb_s
            if within and mb_s <= market.bounds.most_mb_s and cache.app_mb_s > market.backing_mb_s:
                yield cache
    yield Cache(market.today_mb_s + market.today_drain_mb_s, market.today_drain_mb_s)


def chains(first: int, bursts: Sequence[Leg], market: Market, sight: Sight) -> Iterator[Chain]:
    """Every chain that begins with this burst and may save more than its bill, by cells."""
    for cache in caches(market):
        most_mb, longest = _extent(first, bursts, market, cache)
        for smallest, largest in _size_cells(market, most_mb):
            spec = market.billed_spec(smallest, cache.mb_s)
            count = _worth_trying(bursts[first : first + longest], market, cache, spec)
            if count:
                rooms = {size * USABLE / MB for size in (smallest, largest)}
                of_rooms = [replace(cache, room_mb=room) for room in rooms]
                yield from _cells(first, bursts, market, spec, of_rooms, count, sight)


def _worth_trying(bursts: Sequence[Leg], market: Market, cache: Cache, spec: VolumeSpec) -> int:
    """Bursts of the longest chain whose bill may be below what it saves, were its room without end."""
    count, saved_s, held_s = 0, 0.0, ATTACH_S + RELEASE_S
    for number, stretch in enumerate(bursts, 1):
        for part in stretch.burst:
            fast_s = passed(part, market.backing_mb_s, cache, 0.0).seconds
            saved_s, held_s = saved_s + slow(part, market.backing_mb_s) - fast_s, held_s + fast_s
        if number == 1:
            held_s = ATTACH_S + RELEASE_S  # all of the first burst may be written before the purchase
        if market.cache.cost(spec, held_s) < market.run_per_s * saved_s:
            count = number
        held_s += stretch.kept_s
    return count


def _cells(
    first: int,
    bursts: Sequence[Leg],
    market: Market,
    spec: VolumeSpec,
    of_rooms: Sequence[Cache],
    count: int,
    sight: Sight,
) -> Iterator[Chain]:
    """The chains of the cells of these sizes: of each the least of its corners."""
    shares = (0.0, *(sight.late + (1 - sight.late) * cell / LATE_CELLS for cell in range(LATE_CELLS + 1)))
    ends = [[list(islice(_ends(first, bursts, market, cache, share), count)) for cache in of_rooms] for share in shares]
    ahead = ((0, 0),) if sight.unsure_s < math.inf else ()
    for early, late in (*ahead, *pairwise(range(1, len(shares)))):
        unsure_s = 0.0 if early else sight.unsure_s
        for number, corners in enumerate(zip(*ends[early], *ends[late], strict=True)):
            held_s = unsure_s + min(end.held_s for end in corners)
            bill = market.cache.cost(spec, held_s)
            yield Chain(first, first + number, spec, min(end.burst_s for end in corners), held_s, bill)


def _size_cells(market: Market, most_mb: float) -> Iterator[tuple[int, int]]:
    """The smallest and the largest size of each cell in bytes, up to one with room for so much or the largest sold."""
    step, smallest = market.offer.size_step_bytes, market.offer.least_bytes
    needed = math.ceil(most_mb * MB / USABLE / step) * step
    most = max(smallest, min(market.offer.most_bytes, needed))
    while smallest <= most:
        largest = min(most, math.floor(SIZE_RATIO * smallest / step) * step)
        yield smallest, largest
        smallest = largest + step


def _extent(first: int, bursts: Sequence[Leg], market: Market, cache: Cache) -> tuple[float, int]:
    """The most that is dirty in the longest chain that is worth trying, in MB, and of how many bursts it is."""
    tariff, b = market.cache, market.backing_mb_s
    dirty = peak = 0.0
    for count, stretch in enumerate(bursts[first:], 1):
        for part in stretch.burst:
            _, dirty, most = passed(part, b, cache, dirty)
            peak = max(peak, most)
        flush_s, dirty = _flushed(stretch.pause, b, cache, dirty)
        again_s = flush_s + ATTACH_S + RELEASE_S + tariff.minimum_s + tariff.step_s
        if stretch.spared_s > again_s:
            return peak, count
    return peak, len(bursts) - first


def _ends(first: int, bursts: Sequence[Leg], market: Market, cache: Cache, late_share: float) -> Iterator[End]:
    """The chain with this cache, bought when so much of its first burst is written, with each of its last bursts."""
    b = market.backing_mb_s
    parts, burst_s = _late(bursts[first].burst, late_share, b)
    held_s, dirty = ATTACH_S, 0.0
    for last, stretch in enumerate(bursts[first:]):
        for part in stretch.burst if last else parts:
            seconds, dirty, _ = passed(part, b, cache, dirty)
            burst_s, held_s = burst_s + seconds, held_s + seconds
        pause_s = sum(part.seconds for part in stretch.pause)
        flush_s, dirty = _flushed(stretch.pause, b, cache, dirty)
        is_last = first + last + 1 == len(bursts)
        waits_s = max(0.0, flush_s - pause_s) if not is_last else 0.0
        yield End(burst_s + waits_s, held_s + flush_s + RELEASE_S)
        held_s += stretch.kept_s


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
            # What was late is made up for within the part, as an application does that is limited by its own rate.
            rest_s = max(0.0, part.seconds - slow(part, backing_mb_s) * done)
            rest.append(Demand(rest_s, part.write_bytes * (1 - done), part.read_bytes * (1 - done)))
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
