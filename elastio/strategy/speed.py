"""How large and how fast a cache is worth buying, and whether to buy one. Pure.

Theory of operation. A burst of S MB is written at B MB/s into a cache, while d MB/s of it are already written back
(the drain, at most the backing volume's bandwidth b). What stays needs room, and is flushed at b afterwards:

    stays = S (1 - d/B)     size = stays / cutoff     held = S/B + stays/b + overhead       (d = b: S/b + overhead)
    J(B, d) = v S/B + tariff(size, B + d, held)

J is minimized over the bandwidths that are sold, three drains, and the moment of the purchase: where a cache is charged
by MB/s x GB, its price grows with the square of what it absorbs, and of a large burst the first part is better written
slowly. A cache is bought only if J is below v S/b, the price of writing everything slowly. Requests, where they are
charged, are part of the tariff's bill.

Two tariffs have closed forms for d = b, which the tests compare with:

    k MB/s GB:           B* = sqrt(v 1000 cutoff / (k (S/b + overhead)) - b^2)
    p MB/s + a GB:       B* = sqrt(v S / (p max(S/b + overhead, least billed time)))    (room is free in this one)

They follow from dJ/dB = 0. With EBS's prices and a machine of 0.8 USD an hour the second is about 1,000 MB/s for a
burst of 4 GB, so what binds is the instance. Everything passes through the instance's storage limit: what applications
write, what is read back from the cache, and what is written to the backing volume: B + 2d.

A drain costs bandwidth and saves room. Room is dear in AGBs and nearly free in dollars; `best_choice` tries both.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from elastio.core.model import VolumeSpec
from elastio.strategy.worth import UNBOUNDED, Bounds, Offer, Terms, extra_requests
from elastio.units import MB

# Shares of the backing volume's bandwidth that are tried as drain, and of a burst that are written before a purchase.
DRAINS = (0.0, 0.5, 1.0)
LATE_SHARES = (0.25, 0.5, 0.75)
# Cache bandwidth is sold in any amount, but a choice among steps of this ratio is within 1 % of the best (J is flat).
STEP_RATIO = 2**0.25


class BurstCache(NamedTuple):
    """A cache for one burst. `app_mb_s`: what applications get; `late_s`: how long after the burst's begin it serves.

    `burst_s` is the time of the burst, `bill` the volume's, `cost` that of the wait and of the bill together.
    """

    spec: VolumeSpec
    app_mb_s: float
    drain_mb_s: float
    late_s: float
    burst_s: float
    held_s: float
    bill: float
    cost: float


def slow_cost(terms: Terms, written_bytes: float) -> float:
    """What the burst costs without a cache: v S/b."""
    return terms.waiting_per_s * written_bytes / MB / terms.backing_mb_s


def choice(
    terms: Terms, offer: Offer, written_bytes: float, mb_s: float, drain_mb_s: float, late_s: float = 0.0
) -> BurstCache | None:
    """J of one cache of `mb_s`, of which `drain_mb_s` is for the drain. None: it is no faster, or not sold so large."""
    b = terms.backing_mb_s
    drain = min(drain_mb_s, b)
    app = mb_s * terms.efficiency - drain
    absorbed = written_bytes / MB - b * late_s
    if app <= b or absorbed <= 0:
        return None
    stays = absorbed * (1 - drain / app)
    spec = offer.spec(stays * MB / terms.cutoff, mb_s)
    if spec is None:
        return None
    held_s = absorbed / app + stays / b + terms.overhead_s
    bill = terms.tariff.cost(spec, held_s, extra_requests(terms, absorbed * MB)) + terms.per_boost
    burst_s = late_s + absorbed / app
    return BurstCache(spec, app, drain, late_s, burst_s, held_s, bill, terms.waiting_per_s * burst_s + bill)


def choices(terms: Terms, offer: Offer, written_bytes: float, bounds: Bounds = UNBOUNDED) -> Iterator[BurstCache]:
    """Every cache that is sold and within the bounds. Each comes `terms.late_s` into the burst, or later."""
    slow_s = written_bytes / MB / terms.backing_mb_s
    waits = (terms.late_s, *(s * slow_s for s in LATE_SHARES if s * slow_s > terms.late_s))
    for mb_s in offer.bandwidths_mb_s:
        for drain in (share * terms.backing_mb_s for share in DRAINS):
            if mb_s > bounds.most_mb_s or mb_s * terms.efficiency + drain > bounds.instance_mb_s:
                continue
            for late_s in waits:
                found = choice(terms, offer, written_bytes, mb_s, drain, late_s)
                if found is not None:
                    yield found


def best_choice(terms: Terms, offer: Offer, written_bytes: float, bounds: Bounds = UNBOUNDED) -> BurstCache | None:
    """The cache of least cost for a burst of `written_bytes`; None if none is cheaper than to write slowly."""
    best = min(
        choices(terms, offer, written_bytes, bounds), key=lambda c: (c.cost, c.spec.bandwidth_mb_s), default=None
    )
    return best if best is not None and best.cost < slow_cost(terms, written_bytes) else None


def boost_refusal(terms: Terms, found: BurstCache, written_bytes: float) -> str:
    """Why a boost with this cache is not worth its price, in a sentence; empty if it is.

    Refused when its bill, requests included, is above the value of the time that it saves.
    """
    slow_s = written_bytes / MB / terms.backing_mb_s
    saved_s, currency = slow_s - found.burst_s, terms.tariff.currency
    if found.bill <= terms.waiting_per_s * saved_s:
        return ""
    return (
        f"a boost would cost {found.bill:.4g} {currency} and save {saved_s:.0f} s, which are worth "
        f"{terms.waiting_per_s * saved_s:.4g} {currency}"
    )


def in_ratio(least_mb_s: float, most_mb_s: float) -> tuple[float, ...]:
    """Bandwidths between two bounds, both included, in steps of STEP_RATIO: for a cloud that sells any amount."""
    steps = math.floor(math.log(most_mb_s / least_mb_s) / math.log(STEP_RATIO) + 1e-9)
    found = [least_mb_s * STEP_RATIO**step for step in range(steps + 1)]
    return (*found, most_mb_s) if found[-1] < most_mb_s * (1 - 1e-9) else tuple(found)
