"""What the strategy remembers between two decisions: one value in the agent's state, one key in its journal."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from elastio.billing import Billing
from elastio.codec import Kept
from elastio.core.model import Forecast
from elastio.strategy.credits import CreditBalance
from elastio.strategy.spending import Period

# What is added to the longest of the last times to attach: another one may take longer.
LEAD_MARGIN, LEAD_MARGIN_S = 1.1, 1.0


@dataclass(frozen=True, slots=True)
class LoadWatch:
    """Since when (CLOCK_BOOTTIME) utilization is at or above UT, and below the release threshold; None: it is not.

    `crossed_at` is the end of the first sample of the stretch of high load.
    """

    above_since: float | None = None
    below_since: float | None = None
    utilization: float = 0.0
    crossed_at: float | None = None
    peak: float = 0.0  # the highest utilization of the stretch


@dataclass(frozen=True, slots=True)
class UselessBoost:
    """A load for which a cache gained nothing.

    `peak` is its highest utilization without the cache, `seconds` how long it lasted without a pause, `at_wall` when
    the volume was gone.
    """

    peak: float
    seconds: float
    at_wall: float


@dataclass(frozen=True, slots=True)
class Waste:
    """What is remembered of purchases that gained nothing.

    `useless`: boosts that succeeded and gained nothing, the newest last. `wasted`: volumes in a row that never became a
    cache. `stopped` says why no volume is bought until an operator resumes; empty: volumes are bought.
    """

    useless: tuple[UselessBoost, ...] = ()
    wasted: int = 0
    stopped: str = ""


@dataclass(frozen=True, slots=True)
class Capped:
    """A cap that has ended a boost: its key and value, and the day or month in which no other boost begins.

    `has_price` False: the cap could not be kept, because the price of the cache was not known.
    """

    key: str
    most: float
    period: Period
    has_price: bool = True


@dataclass(frozen=True, slots=True)
class Choice:
    """What was decided by money for one purchase; a part of the cycle, so that after a restart it is held as before.

    `cache_mb_s` is for applications, `drain_mb_s` on top of it. A cache that is clean and unused is held to the end of
    its paid time (`minimum_s`, `step_s`: see `billing`) and for `holding_s` more, and for `quiet_s` after the load in
    any case. `reason`: a sentence for people.
    """

    cache_mb_s: float
    drain_mb_s: float
    holding_s: float
    quiet_s: float
    minimum_s: float = 0.0
    step_s: float = 0.0
    reason: str = ""

    @property
    def billing(self) -> Billing:
        return Billing(self.minimum_s, self.step_s)


@dataclass(frozen=True, slots=True)
class Lesson:
    """What one boost showed: the size that it would have needed, and the bytes that applications read and wrote."""

    needed_bytes: int
    moved_bytes: int


@dataclass(frozen=True, slots=True)
class QuotaReached:
    """A purchase that a quota has refused at `at_wall`, and the most that is asked for after it.

    `sold_bytes`: the largest that was sold since (0: none).
    """

    most_bytes: int
    at_wall: float
    sold_bytes: int = 0


@dataclass(frozen=True, slots=True)
class BurstLesson:
    """What one boosted burst showed, of the cgroup that waited longest for bandwidth.

    `at`: its begin in seconds since the epoch. `mb_s`: what its cache offered to applications. For `waited_s` of the
    `seconds` it waited for bandwidth, while the device moved `waited_mb` of the `moved_mb`; for `latency_s` it waited
    for the device below its limit, which moved `latency_mb` then.
    """

    at: float
    mb_s: float
    seconds: float
    waited_s: float
    waited_mb: float
    moved_mb: float
    latency_s: float = 0.0
    latency_mb: float = 0.0


@dataclass(frozen=True, slots=True)
class Raise:
    """Raises in a row that may be taken back: from what to what, and the share of the time that they are to save."""

    before_mb_s: float
    mb_s: float
    promised: float


# What a doubling of the bandwidth has to save at least, as a share of the time.
STOP_GAIN = 0.05


@dataclass(frozen=True, slots=True)
class SpeedBounds:
    """Between which bandwidths the next one is learned, in MB/s for applications; the first has no lesson yet."""

    first_mb_s: float
    least_mb_s: float
    most_mb_s: float
    stop_gain: float = STOP_GAIN


@dataclass(frozen=True, slots=True)
class LearnedBandwidth:
    """What is known. `is_fresh`: nothing was learned yet from the newest lesson.

    No raise above `refused_mb_s` for the next `refused_for` bursts: one from there was taken back. None: none was.
    `instance_mb_s`: what the instance carries, as the cloud said last (infinite: it knows no limit); None: it has
    not yet.
    """

    mb_s: float
    lessons: tuple[BurstLesson, ...] = ()
    is_fresh: bool = False
    trial: Raise | None = None
    refused_mb_s: float | None = None
    refused_for: int = 0
    instance_mb_s: float | None = None


@dataclass(frozen=True, slots=True)
class Boost:
    """What is known of the boost that runs. Times are of CLOCK_BOOTTIME.

    Low load does not end it before `chance_until`: it was bought ahead of a burst (None: it was not). `clean_since`:
    since then its cache is clean, unused and held; None: it is not held. While the cache was there, applications read
    and wrote `moved_bytes`, of these `gained_bytes` beyond the device's rate without it. `bare` is the highest
    utilization of its load before the cache was there, `longest_s` the longest stretch of load without a pause.
    `updates_learned_size` False: an operator has set the learned size meanwhile.
    """

    chance_until: float | None = None
    clean_since: float | None = None
    moved_bytes: int = 0
    gained_bytes: int = 0
    bare: float = 0.0
    longest_s: float = 0.0
    updates_learned_size: bool = True

    def is_awaiting(self, now: float) -> bool:
        """The burst that it was bought ahead of may still come."""
        return self.chance_until is not None and now < self.chance_until


NO_BOOST = Boost()


@dataclass(frozen=True, slots=True)
class Unended:
    """A load that has filled its cache and goes on.

    `written_mb`: the least that it will have written when that is flushed. `rate_mb_s`: at which it has filled it.
    """

    written_mb: float
    rate_mb_s: float


@dataclass(frozen=True, slots=True)
class Filling:
    """A load that writes into an attached cache, from the first scan that shows both on, at CLOCK_BOOTTIME `begun_at`.

    `dirty_bytes` were dirty then. `rate_mb_s`: at which it has filled the cache; None: it has not, or hardly anything
    of it.
    """

    begun_at: float
    dirty_bytes: int
    rate_mb_s: float | None = None


@dataclass(frozen=True, slots=True)
class Memory:
    """Everything that only the strategy keeps from one decision to the next; what is `Kept` is in the journal.

    `learned_size_bytes` is that of the next cache, from the ledger at the start; None: nothing was learned yet.
    `lessons` are of the last boosts, the newest last. `quota`: the last purchase that one has refused; None: none was
    since an operator has resumed. `cutoff_percent` is the kernel's own, as it was last seen, or as its module is
    configured; None: neither is known.

    `declined_for` is the load, by its beginning, for which a boost was declined as not worth its price. Since the agent
    started, `declined_boosts` were, and a cap forbade one `capped_boosts` times, asked again each minute. `capped` is
    the cap that ended the last boost that one has ended; None: none has, or an operator has resumed.

    `filling` is the load of the attached cache (None: there is none), and `full_since` since when it finds that full of
    dirty data; None: it does not. `has_filled`: the load
    went on for so long that its full cache was released, and it is not over yet. `unended`: another one is
    bought for it; None: none is. `is_needless`: the load that goes on left bandwidth unused with a cache as well.

    `expected` are announced bursts, the next one first, and `awaited` is the one that is due, see `ahead`. `missed`
    announced bursts in a row did not come, and `missed_forecasts` bursts that a forecaster expected. `attach_s` are the
    last times, in seconds, from a decision to the attached cache, `release_s` those from a clean cache to the deletion
    of its volume.

    `credits` is the balance of a backing volume that has credits (None: it has none, or no sample was taken yet), and
    `credit_limit_mb_s` the most that they allow a flush (None: no limit).
    """

    load: LoadWatch = field(default_factory=LoadWatch)
    boost: Kept[Boost] = NO_BOOST
    learned_size_bytes: int | None = None
    lessons: Kept[tuple[Lesson, ...]] = ()
    quota: Kept[QuotaReached | None] = None
    bandwidth: Kept[LearnedBandwidth | None] = None
    cutoff_percent: Kept[int | None] = None
    waste: Kept[Waste] = field(default_factory=Waste)
    capped: Kept[Capped | None] = None
    capped_boosts: int = 0
    declined_for: float | None = None
    declined_boosts: int = 0
    has_filled: Kept[bool] = False
    is_needless: Kept[bool] = False
    unended: Kept[Unended | None] = None
    filling: Kept[Filling | None] = None
    full_since: float | None = None
    expected: Kept[tuple[Forecast, ...]] = ()
    awaited: Forecast | None = None
    missed: Kept[int] = 0
    missed_forecasts: Kept[int] = 0
    attach_s: Kept[tuple[float, ...]] = ()
    release_s: Kept[tuple[float, ...]] = ()
    credits: Kept[CreditBalance | None] = None
    credit_limit_mb_s: float | None = None

    def lead_s(self, unmeasured_s: float) -> float:
        """How long before a burst its cache is bought, in seconds; `unmeasured_s` while no boost was measured."""
        return LEAD_MARGIN * max(self.attach_s) + LEAD_MARGIN_S if self.attach_s else unmeasured_s

    def resumed(self) -> Memory:
        """The memory once an operator has resumed: nothing that it knows of the past forbids to buy."""
        return replace(self, waste=Waste(), capped=None, quota=None)
