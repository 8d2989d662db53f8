"""What a second is worth, what is sold, and what the past teaches: the values that decisions in money start from. Pure.

Theory of operation. While a machine waits for its volume, it costs what it costs at work. A cache shortens the wait and
costs money for as long as it exists. Every decision about a cache compares the two, in the currency of one tariff:

    v    price of a second of waiting                      `Terms.waiting_per_s`
    b    bandwidth of the backing volume, MB/s             `Terms.backing_mb_s`
    B    bandwidth that applications get from the cache    an argument, MB/s
    c_l  price of a second without the cache in a burst:   c_l = v (1 - b/B)
    c_h  price of a second of owning the cache             c_h = price per hour / 3600
    c_b  price of releasing a cache and buying another     `rebuy_price`

In a second at b instead of B, an application does what it could have done in b/B seconds; the rest of the second is
lost. In the published cost model a second of the run costs what the backing volume costs, v = b x size in AGBs. In
money v is what an hour of the machine is worth to its owner, which no program can know: it is configured.

`speed` decides how large and how fast a cache is, and whether to buy one; `hold` when to release it; `learned` how long
before a burst to buy it. The prices are those of `tariff`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from elastio.billing import RELEASE_S
from elastio.core.model import VolumeSpec
from elastio.strategy.tariff import Tariff
from elastio.units import GIB, KIB

# The longest time for which an unused cache is held, whatever it costs.
MOST_HELD_S = 6 * 3600.0
# A byte that a cache absorbs is written to it and read from it once more than without a cache. The write to the backing
# volume is made either way.
EXTRA_PASSES = 2
# Before any burst is known: sizes that count as equally likely, every doubling.
SIZES_MB = tuple(1000.0 * 2**power for power in range(1, 7))


@dataclass(frozen=True, slots=True)
class Terms:
    """The prices, and the device that a cache is bought for.

    `tariff` is that of the cache volume, and `waiting_per_s` is in its currency. `cutoff` is the share of a cache that
    can be dirty, `efficiency` the share of its bandwidth that is left for data. `late_s` is the time from the beginning
    of a burst to the moment at which a cache that is bought then takes writes. `overhead_s` is for how long a cache is
    billed beyond the burst and its flush, to be attached and released. `per_boost` is what a boost costs beside its
    volume, for calls. `request_bytes` is the mean size of requests.
    """

    tariff: Tariff
    waiting_per_s: float
    backing_mb_s: float
    cutoff: float = 0.70
    efficiency: float = 1.0
    late_s: float = 0.0
    overhead_s: float = 0.0
    per_boost: float = 0.0
    request_bytes: int = 128 * KIB


@dataclass(frozen=True, slots=True)
class Offer:
    """What is sold: bandwidths in MB/s, ascending, and sizes in whole steps.

    `mb_s_per_iops`: a volume needs an IOPS for each so many MB/s; 0: IOPS are not sold. `least_iops` come with it.
    """

    bandwidths_mb_s: tuple[float, ...]
    size_step_bytes: int = GIB
    least_bytes: int = GIB
    most_bytes: int = 16384 * GIB
    mb_s_per_iops: float = 0.0
    least_iops: int = 0

    def spec(self, room_bytes: float, bandwidth_mb_s: float) -> VolumeSpec | None:
        """The smallest volume with that room; None if none is so large."""
        size = max(self.least_bytes, math.ceil(room_bytes / self.size_step_bytes) * self.size_step_bytes)
        if size > self.most_bytes:
            return None
        if not self.mb_s_per_iops:
            return VolumeSpec(size, bandwidth_mb_s)
        return VolumeSpec(size, bandwidth_mb_s, max(self.least_iops, math.ceil(bandwidth_mb_s / self.mb_s_per_iops)))


@dataclass(frozen=True, slots=True)
class Bounds:
    """What limits a choice beside the offer: the instance's storage limit and the configured most, in MB/s."""

    instance_mb_s: float = math.inf
    most_mb_s: float = math.inf


UNBOUNDED = Bounds()


@dataclass(frozen=True, slots=True)
class Plan:
    """A volume to buy `delay_s` into a burst, and what applications and the drain get of it."""

    spec: VolumeSpec
    app_mb_s: float
    drain_mb_s: float
    delay_s: float
    holding_s: float
    cost: float = math.inf


@dataclass(frozen=True, slots=True)
class Market:
    """The tariff and the offer of the cache's volume type, and what a second of waiting costs, in its currency.

    `waiting_per_s` is the value of the machine's time and the price of its backing volume.
    """

    tariff: Tariff
    waiting_per_s: float
    offer: Offer
    bounds: Bounds = UNBOUNDED

    def terms(self, backing_mb_s: float, cutoff: float, late_s: float) -> Terms:
        """The terms of a cache that serves `late_s` after the load is seen."""
        overhead_s = late_s + RELEASE_S
        return Terms(self.tariff, self.waiting_per_s, backing_mb_s, cutoff, late_s=late_s, overhead_s=overhead_s)


@dataclass(frozen=True, slots=True)
class OwnedCache:
    """What the last bursts teach about the cache that is owned, that of the cycle with this `token`.

    Clean and unused, it is worth holding for `holding_s` beyond its paid time; not at all if it `is_outdated`: another
    cache, or none, would have been cheaper. `is_hindrance`: even for nothing it is dearer than another one. Of its
    bandwidth, `drain_mb_s` for the drain would have been the best.
    """

    token: str
    holding_s: float
    drain_mb_s: float
    is_outdated: bool = False
    is_hindrance: bool = False


@dataclass(frozen=True, slots=True)
class Advice:
    """What the last bursts of this device teach.

    `bursts` of them are known, the largest wrote `largest_mb`. `plan` would have been the cheapest for them; None: to
    buy nothing would have been cheaper. `pays`: also for the known bursts alone, without the larger and faster one that
    is supposed beside them. `pays_late`: also if it is bought when the burst is there, each time. `gaps` pauses between
    bursts are known. `owned` None: no cache is owned that was chosen by money, or no burst is known. `all_waited`: each
    known burst would have waited for the backing volume without a cache. Loads wait at the utilization `waits_at`. For
    `unwaited_s` the last bursts did not, since one that had a cache or did.
    """

    bursts: int
    largest_mb: float
    plan: Plan | None = None
    gaps: int = 0
    owned: OwnedCache | None = None
    pays: bool = False
    pays_late: bool = True
    all_waited: bool = True
    waits_at: float = 1.0
    unwaited_s: float = 0.0


def late_per_s(terms: Terms, app_mb_s: float) -> float:
    """c_l: what a second of a burst costs in which a cache of `app_mb_s` is missing; 0 if it would not be faster."""
    return terms.waiting_per_s * max(0.0, 1 - terms.backing_mb_s / app_mb_s) if app_mb_s > 0 else 0.0


def hold_per_s(terms: Terms, spec: VolumeSpec) -> float:
    """c_h: what a second of owning this cache costs."""
    return terms.tariff.per_hour(spec) / 3600


def rebuy_price(terms: Terms, spec: VolumeSpec, app_mb_s: float, held_s: float) -> float:
    """c_b: what it costs to release this cache and to buy an equal one for the next burst, instead of holding it.

    The next burst waits for `late_s`, hardly where caches are bought ahead of most. Calls are made, and a volume is
    billed for `overhead_s` and up to its least billed time: `held_s` is how long the next boost lasts by itself,
    overhead included. Where whole steps are billed, the next one is paid either way, and serves later bursts too.
    """
    needed_s = max(0.0, held_s - terms.overhead_s)
    billed_s = held_s if terms.tariff.step_s else max(held_s, terms.tariff.minimum_s)
    again = hold_per_s(terms, spec) * (billed_s - needed_s)
    return late_per_s(terms, app_mb_s) * terms.late_s + again + terms.per_boost


def extra_requests(terms: Terms, absorbed_bytes: float) -> float:
    """How many requests a cache serves to absorb and flush so much; without it there were none of them."""
    return EXTRA_PASSES * absorbed_bytes / terms.request_bytes
