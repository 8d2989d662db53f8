"""The settings that would have been cheapest for the last bursts, bought one by one as they are sold. Pure.

Theory of operation. `speed.best_choice` answers for one burst of a known size. Real bursts differ, follow each other
before the cache is clean, or are limited by the application instead of the disk. So a *plan* (a volume, a drain, how
long a burst must last before it is bought, how long it is held) is replayed over the last bursts and the pauses after
them, in a model in which everything flows evenly:

- A burst that ends before the purchase costs v S/b. One that ends before the cache serves leaves it to the next.
- Then S is written at B, or at the application's own rate, until the room is full; the rest at b.
- In the pause dirty data is flushed at b. The volume is held for `hold.holding_s` after that, and to the end of the
  paid time; a burst that comes earlier finds it, with what is still dirty.

The cheapest plan over the bandwidths that are sold, three drains, four delays and a few sizes is the answer, or none,
where no cache at all would have been cheaper. What is cheapest for the past is cheapest for a future like it; a load
that changes is followed as its last bursts replace the others.

Of the first burst nobody knows how much it writes, not even the order of magnitude. So every doubling from 2 to 64 GB
counts as equally likely (the prior of ignorance of a scale, H. Jeffreys, *Theory of Probability*, 1939). The largest
bursts would dominate a mean of costs, and the smallest a mean of what caches gain. So each size s is judged by the
waiting and the caches that an owner would pay for it, in proportion to the best cache:

    r(plan, s) = cost(plan, s) / least cost(s)        the plan of the least mean r is the first guess

Its bursts are replayed as those of the past are: BURSTS of one size, PAUSE_S apart. After the first of them its size is
known, and the others get the best cache for it, where that is cheaper with its own bill. So room that is cheap is
bought for bursts that may come, and where room is dear, as by the hour, what may be wrong is small. To buy nothing is
judged in the same way.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from elastio.core.model import VolumeSpec
from elastio.strategy import worth
from elastio.strategy.hold import holding_s, release_in_s
from elastio.strategy.speed import DRAINS, LATE_SHARES
from elastio.strategy.worth import UNBOUNDED, Bounds, Offer, Plan, Terms, extra_requests, hold_per_s, rebuy_price
from elastio.units import MB

# Sizes that are tried for each speed, as quantiles of what the bursts needed.
SIZE_QUANTILES = (0.5, 0.75, 1.0)
# Share of a cache's bandwidth that applications and the flush use together: what they leave flows back (`governor`).
SPARE_UP_TO = 0.8
# How much more than the largest known burst one that nobody knows writes, and how much faster.
LARGER, FASTER = 2.0, 1.25


class PastLoad(NamedTuple):
    """A burst and the pause after it. `rate_mb_s`: the application's own rate, infinite where the disk was the limit.

    `pause_s` of the last one may be infinite: nobody knows yet.
    """

    written_mb: float
    rate_mb_s: float
    pause_s: float


class Pause(NamedTuple):
    """The time from a burst to the next one, what was written in the seconds that it lasted, and the own rate."""

    pause_s: float
    written_mb: float
    lasted_s: float
    rate_mb_s: float = math.inf


class _Volume(NamedTuple):
    """A volume that is owned: dirty MB, seconds since its purchase, and MB that it has absorbed."""

    dirty_mb: float
    age_s: float
    absorbed_mb: float


def supposed(past: Sequence[PastLoad]) -> tuple[PastLoad, ...]:
    """These bursts and one that is larger and faster than all of them: of n + 1 the last one is with 1/(n + 1)."""
    largest, rates = max(load.written_mb for load in past), [load.rate_mb_s for load in past]
    return (*past, PastLoad(LARGER * largest, _beyond(rates, FASTER) * max(rates), math.inf))


def _beyond(known: Sequence[float], most: float) -> float:
    """By which factor a value that exceeds all known ones exceeds them: at most `most`, as of a single one.

    The estimate of B. Hill (*Annals of Statistics* 1975) from the larger half, beside one value that nobody knows.
    """
    ordered = sorted(known, reverse=True)
    upper, rest = ordered[: len(ordered) // 2], ordered[len(ordered) // 2]
    if rest <= 0 or math.isinf(ordered[0]):
        return most
    total = math.log(most) + sum(math.log(value / rest) for value in upper)
    return min(most, math.exp(total / (len(upper) + 1)))


def gaps_s(terms: Terms, pauses: Sequence[Pause], app_mb_s: float, drain_mb_s: float) -> tuple[float, ...]:
    """From clean to the next burst after each of these bursts, in seconds, with a cache of this speed and drain."""
    return tuple(
        max(0.0, pause.pause_s - _left_mb(terms, pause, app_mb_s, drain_mb_s) / terms.backing_mb_s) for pause in pauses
    )


def _left_mb(terms: Terms, burst: Pause, app_mb_s: float, drain_mb_s: float) -> float:
    """What is still to be flushed at the end of the burst.

    The backing volume takes b of it until the cache is there. Afterwards data flows back for as long as the rest takes
    at the cache's speed or at the application's own, but no longer than the burst lasted.
    """
    early_mb = min(burst.written_mb, terms.backing_mb_s * min(burst.lasted_s, terms.late_s))
    rate = min(burst.rate_mb_s, app_mb_s)
    cached_s = min(max(0.0, burst.lasted_s - terms.late_s), (burst.written_mb - early_mb) / rate)
    flushed = _flush_mb_s(terms, app_mb_s, drain_mb_s, rate) * cached_s
    return max(0.0, burst.written_mb - early_mb - flushed)


def slow_cost(terms: Terms, past: Sequence[PastLoad]) -> float:
    """What these bursts would have cost without any cache."""
    return sum(terms.waiting_per_s * _slow_s(terms, load) for load in past)


def plan_cost(terms: Terms, plan: Plan, past: Sequence[PastLoad]) -> float:
    """What these bursts would have cost with this plan: waiting and bills."""
    volume, cost = None, 0.0
    for load in past:
        burst_s, volume = _burst(terms, plan, load, volume)
        cost += terms.waiting_per_s * burst_s
        if volume is not None:
            bill, volume = _pause(terms, plan, load, volume)
            cost += bill
    if volume is not None:
        cost += _bill(terms, plan, volume._replace(age_s=volume.age_s + volume.dirty_mb / terms.backing_mb_s))
    return cost


def plans(
    terms: Terms, offer: Offer, past: Sequence[PastLoad], bounds: Bounds = UNBOUNDED, pauses: Sequence[Pause] = ()
) -> Iterator[Plan]:
    """Every plan that is tried, with its cost for these bursts, one at a time: a caller may pause in between.

    There are hundreds of them, and each takes some microseconds for each burst.
    """
    for plan in candidates(terms, offer, past, bounds, pauses):
        yield replace(plan, cost=plan_cost(terms, plan, past))


def candidates(
    terms: Terms,
    offer: Offer,
    past: Sequence[PastLoad],
    bounds: Bounds = UNBOUNDED,
    pauses: Sequence[Pause] = (),
    late_shares: Sequence[float] = LATE_SHARES,
) -> Iterator[Plan]:
    """Every plan that is tried, without its cost. `late_shares` of the longest burst are tried as delays, beside 0."""
    longest_s = max(_slow_s(terms, load) for load in past)
    for mb_s in offer.bandwidths_mb_s:
        for drain in (share * terms.backing_mb_s for share in DRAINS):
            app = mb_s * terms.efficiency - drain
            within = mb_s <= bounds.most_mb_s and mb_s * terms.efficiency + drain <= bounds.instance_mb_s
            if not within or app <= terms.backing_mb_s:
                continue
            gaps = gaps_s(terms, pauses, app, drain)
            for delay_s in (0.0, *(share * longest_s for share in late_shares)):
                for spec in _specs(terms, offer, past, mb_s, drain, delay_s):
                    held_s = terms.overhead_s + _median([load.written_mb for load in past]) / terms.backing_mb_s
                    price = rebuy_price(terms, spec, app, held_s)
                    keep_s = holding_s(gaps, hold_per_s(terms, spec), price)
                    yield Plan(spec, app, drain, delay_s, keep_s)


def _specs(
    terms: Terms, offer: Offer, past: Sequence[PastLoad], mb_s: float, drain: float, delay_s: float
) -> set[VolumeSpec]:
    """Volumes with room for some or all of these bursts."""
    app = mb_s * terms.efficiency - drain
    needs = sorted(
        max(0.0, load.written_mb - terms.backing_mb_s * (delay_s + terms.late_s)) * (1 - drain / app) for load in past
    )
    wanted = {needs[math.ceil(share * len(needs)) - 1] for share in SIZE_QUANTILES}
    # Where none is so large, the largest absorbs a part.
    found = (offer.spec(min(need * MB / terms.cutoff, offer.most_bytes), mb_s) for need in wanted)
    return {spec for spec in found if spec is not None}


def _median(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 2]


def _slow_s(terms: Terms, load: PastLoad) -> float:
    return load.written_mb / min(load.rate_mb_s, terms.backing_mb_s)


def _burst(terms: Terms, plan: Plan, load: PastLoad, volume: _Volume | None) -> tuple[float, _Volume | None]:
    """Seconds of the burst, and the volume that is owned after it, also if it came too late."""
    waited_s, written = 0.0, load.written_mb
    if volume is None:
        slow_s = _slow_s(terms, load)
        if slow_s <= plan.delay_s:
            return slow_s, None
        waited_s = plan.delay_s + terms.late_s
        if slow_s <= waited_s:
            return slow_s, _Volume(0.0, 0.0, 0.0)
        written -= waited_s * min(load.rate_mb_s, terms.backing_mb_s)
        volume = _Volume(0.0, 0.0, 0.0)
    rate = min(load.rate_mb_s, plan.app_mb_s)
    growth = rate - _flush_mb_s(terms, plan.app_mb_s, plan.drain_mb_s, rate)
    room = max(0.0, terms.cutoff * plan.spec.size_bytes / MB - volume.dirty_mb)
    absorbed = written if growth <= 0 else min(written, room / growth * rate)
    fast_s = absorbed / rate
    seconds = fast_s + (written - absorbed) / min(load.rate_mb_s, terms.backing_mb_s)
    dirty = max(0.0, volume.dirty_mb + growth * fast_s)
    return waited_s + seconds, _Volume(dirty, volume.age_s + seconds, volume.absorbed_mb + absorbed)


def _flush_mb_s(terms: Terms, app_mb_s: float, drain_mb_s: float, rate_mb_s: float) -> float:
    """MB/s that flow back while the application writes: the drain, or what it leaves of the cache's bandwidth."""
    return min(terms.backing_mb_s, max(drain_mb_s, SPARE_UP_TO * (app_mb_s + drain_mb_s) - rate_mb_s))


def _pause(terms: Terms, plan: Plan, load: PastLoad, volume: _Volume) -> tuple[float, _Volume | None]:
    """The bill if the volume is released in the pause, and the volume if it is not."""
    clean_s = volume.dirty_mb / terms.backing_mb_s
    age_s = volume.age_s + clean_s
    hold = 0.0 if math.isinf(load.pause_s) else plan.holding_s
    until_s = clean_s + release_in_s(terms.tariff.billing, age_s, terms.overhead_s, hold)
    if load.pause_s <= until_s and not math.isinf(load.pause_s):
        dirty = max(0.0, volume.dirty_mb - load.pause_s * terms.backing_mb_s)
        return 0.0, volume._replace(dirty_mb=dirty, age_s=volume.age_s + load.pause_s)
    at_s = until_s if not math.isinf(until_s) else clean_s
    return _bill(terms, plan, volume._replace(age_s=volume.age_s + at_s)), None


def _bill(terms: Terms, plan: Plan, volume: _Volume) -> float:
    requests = extra_requests(terms, volume.absorbed_mb * MB)
    return terms.tariff.cost(plan.spec, volume.age_s + terms.overhead_s, requests) + terms.per_boost


# --- before any burst is known ----------------------------------------------------------------------------

# How often a burst comes, and how long the pauses are. A guess as well; twice or half as much changes little.
BURSTS, PAUSE_S = 4, 300.0


def first_plan(terms: Terms, offer: Offer, bounds: Bounds = UNBOUNDED) -> Plan | None:
    """The plan that is bought before any burst is known; its cost is its mean ratio.

    Takes some tens of milliseconds.
    """
    return plan_for(terms, offer, [_loads(size_mb) for size_mb in worth.SIZES_MB], bounds)


def plan_for(
    terms: Terms, offer: Offer, supposed: Sequence[Sequence[PastLoad]], bounds: Bounds = UNBOUNDED
) -> Plan | None:
    """The plan of the least mean ratio over these loads, for their first bursts at the least. None: to buy nothing."""
    tried = [plan for past in supposed for plan in candidates(terms, offer, past[:1], bounds, late_shares=())]

    def costs_of(loads: Sequence[Sequence[PastLoad]]) -> list[list[float]]:
        nothing = [slow_cost(terms, past) for past in loads]
        return [nothing, *([plan_cost(terms, plan, past) for past in loads] for plan in tried)]

    costs = costs_of(supposed)
    if any(len(past) > 1 for past in supposed):
        once = costs_of([(past[0]._replace(pause_s=math.inf),) for past in supposed])
        rest = [min(of_size) for of_size in zip(*costs_of([past[1:] for past in supposed]), strict=True)]
        costs = [
            [min(whole, first + later) for whole, first, later in zip(of_plan, of_first, rest, strict=True)]
            for of_plan, of_first in zip(costs, once, strict=True)
        ]
    least = [min(of_size) for of_size in zip(*costs, strict=True)]
    nothing, *ratios = (
        sum(cost / best if best > 0 else 1.0 for cost, best in zip(of, least, strict=True)) / len(least) for of in costs
    )
    best = min(range(len(tried)), key=lambda index: ratios[index], default=None)
    return None if best is None or ratios[best] >= nothing else replace(tried[best], cost=ratios[best])


def _loads(size_mb: float) -> tuple[PastLoad, ...]:
    return (*((PastLoad(size_mb, math.inf, PAUSE_S),) * (BURSTS - 1)), PastLoad(size_mb, math.inf, math.inf))
