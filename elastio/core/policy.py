"""When to boost, how big, and when to flush. Pure.

Each question is a function of its own, so that another answer needs no change in the loop.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from elastio.core.boost_rights import ALL_MAY, BoostRights
from elastio.core.cycle import Cycle
from elastio.core.lending import LatencyTarget
from elastio.core.model import Forecast, Quote, Sample, Spend, Spent
from elastio.core.shares import Reserved
from elastio.core.state import LoadWatch
from elastio.strategy.bandwidth import SpeedBounds
from elastio.strategy.credits import CreditBucket
from elastio.strategy.market import Market
from elastio.strategy.spending import Limits, SharedLimits
from elastio.units import GIB, MB, agbs, format_size

# An expected burst may begin so much later than was said: an idle cache is paid for, whatever the burst would write.
BEGIN_S = 300.0


class Model(StrEnum):
    """How size, speed, hold and worth of a cache are decided."""

    AGBS = "agbs"  # by the settings and by AGBs, as published
    MONEY = "money"  # by tariff and value of time


@dataclass(frozen=True, slots=True)
class Caps:
    """Upper limits per volume, per day and per month; None: no limit. Costs are in the currency of the prices.

    `ends_boosts`: a limit of AGBs or cost also ends a boost that runs, see `strategy.caps`. `shared`: they limit
    what all agents of the VM that share them spend together, see `strategy.statements`.
    """

    max_size_bytes: int = 100 * GIB
    max_boosts_per_day: int | None = None
    max_agbs_per_day: float | None = None
    max_cost_per_day: float | None = None
    max_boosts_per_month: int | None = None
    max_agbs_per_month: float | None = None
    max_cost_per_month: float | None = None
    ends_boosts: bool = True
    shared: bool = False

    @property
    def per_day(self) -> Limits:
        """Boosts, AGBs and cost."""
        return self.max_boosts_per_day, self.max_agbs_per_day, self.max_cost_per_day

    @property
    def per_month(self) -> Limits:
        """Boosts, AGBs and cost."""
        return self.max_boosts_per_month, self.max_agbs_per_month, self.max_cost_per_month

    @property
    def limits_spending(self) -> bool:
        """At least one limit per day or month is set."""
        return any(limit is not None for limit in (*self.per_day, *self.per_month))

    @property
    def shared_limits(self) -> SharedLimits | None:
        """The limits that other agents share; None: they are shared with nobody."""
        return SharedLimits(*self.per_day, *self.per_month) if self.shared else None

    @property
    def needs_price(self) -> bool:
        """A limit in currency is set, which can be kept only if prices are known."""
        return (self.max_cost_per_day, self.max_cost_per_month) != (None, None)


class Ahead(StrEnum):
    """Which bursts a cache may be bought ahead of."""

    OFF = "off"  # none: the load decides
    EXPECT = "expect"  # those that are announced
    LEARNED = "learned"  # these, and those that the agent expects from its own past


@dataclass(frozen=True, slots=True)
class StopPolicy:
    """Before the agent or the machine stops, an attached cache is flushed for up to `limit_s`, or left attached."""

    flush: bool = False
    limit_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Policy:
    """The settings of every decision; docs/reference/configuration.md describes each key.

    `cache_bandwidth_mb_s` is what a cache offers to applications. `drain_bandwidth_mb_s` is bought on top of it, so
    that dirty data is flushed while applications write at full speed. With the backing volume's bandwidth b on top of
    B, the cache has to hold only 1 - b/B of a saturating burst: a smaller cache for a shorter time. In total it costs
    less by the share b/B, although each of its seconds costs more (docs/explanation/writeback.md).

    `cutoff` is the share of buckets up to which bcache absorbs asynchronous writes, used until the kernel shows its
    own (0.40: the module's default). `headroom` multiplies a learned size. Volumes with another `backing_uuid`
    belong to another agent; those of `neighbours` to one that runs in this VM.
    `lead_s` is how long before an expected burst the cache is bought while no time to
    attach was measured yet, `release_s` how long a clean cache takes to be deleted while that was not measured yet,
    `least_confidence` the confidence that a forecast needs. `notice_poll_s` is the
    interval of polls for a notice (None: never), `notice_flush` whether a notice flushes the cache. `tags_volumes`:
    keep the tag from which a janitor learns what a volume may hold. `detach_throttle_after_s` is how long a detach
    waits for an instant without requests before applications are held back for one (None: for ever). `market` is what
    `Model.MONEY` decides by; None: the prices are not known yet.

    `buys_nothing` says why nothing is bought, until the configuration is right; empty: volumes are bought.

    `backing_credits` is the bucket of a backing volume that has credits (None: it has one bandwidth), and
    `first_credits_bytes` what was in it when the agent first saw the volume; see `backing_credits`.

    `share_reserve`: what is reserved where the device is shared by the weights of cgroups; None: it is not shared.
    `share_latency`: whose requests are not to wait long then.
    `boost_rights`: whose load counts as utilization.

    `bandwidth`: between which bandwidths that of the next cache is learned; None: it is `cache_bandwidth_mb_s`.
    """

    backing_bandwidth_mb_s: float
    cache_bandwidth_mb_s: float
    drain_bandwidth_mb_s: float = 0.0
    utilization_threshold: float = 0.30
    release_threshold: float = 0.25
    trigger_delay_s: float = 0.0
    inactivity_delay_s: float = 30.0
    cool_down_s: float = 5.0
    initial_size_bytes: int = 10 * GIB
    min_size_bytes: int = GIB
    size_step_bytes: int = GIB
    cache_iops: int | None = None
    cutoff: float = 0.40
    headroom: float = 1.05
    attach_timeout_s: float = 180.0
    start_jitter_s: float = 0.0
    reconcile_interval_s: float = 3600.0
    lead_s: float = 20.0
    release_s: float = 30.0
    least_confidence: float = 0.8
    ahead: Ahead = Ahead.EXPECT
    on_stop: StopPolicy = StopPolicy()
    on_shutdown: StopPolicy = StopPolicy()
    on_reboot: StopPolicy = StopPolicy()
    notice_poll_s: float | None = None
    notice_flush: bool = True
    tags_volumes: bool = True
    detach_throttle_after_s: float | None = None
    backing_uuid: str = ""
    neighbours: frozenset[str] = frozenset()
    caps: Caps = Caps()
    buys_nothing: str = ""
    model: Model = Model.AGBS
    market: Market | None = None
    backing_credits: CreditBucket | None = None
    first_credits_bytes: float = 0.0
    share_reserve: tuple[Reserved, ...] | None = None
    share_latency: tuple[LatencyTarget, ...] = ()
    boost_rights: BoostRights = ALL_MAY
    bandwidth: SpeedBounds | None = None

    @property
    def bought_bandwidth_mb_s(self) -> float:
        """MB/s to buy for a cache volume."""
        return self.cache_bandwidth_mb_s + self.drain_bandwidth_mb_s

    @property
    def least_boost_s(self) -> float:
        """Seconds for which the volume of a boost exists at the least, before any of it was measured.

        That is: attached, once inactive, and released.
        """
        return self.lead_s + self.inactivity_delay_s + self.release_s


# --- when ------------------------------------------------------------------------------------------------


def utilization(sample: Sample, policy: Policy) -> float:
    """Throughput of the adaptive device, reads and writes, over the bandwidth of the backing volume; 1.0: all of it.

    Only of the cgroups whose load counts.
    """
    return sample.load.total_mb_s / policy.backing_bandwidth_mb_s


def as_load(sample: Sample, policy: Policy) -> Sample:
    """The sample as past bursts remember it: without a load that does not count.

    Beside one that counts the whole is remembered, because a cache has to have room for all of it.
    """
    if sample.counted is None or utilization(sample, policy) >= policy.release_threshold:
        return sample
    return replace(sample, adaptive=sample.counted)


def watch_load(load: LoadWatch, sample: Sample, policy: Policy) -> LoadWatch:
    """The load after one more sample, with two thresholds.

    At or above UT the load is high, below the release threshold it is over; in between nothing changes. A stretch of
    high or low load begins at the beginning of the sample that showed it. A late sample begins no high load: after a
    stop of the agent, or of the machine, the load that it shows may be over, and the next sample tells.
    """
    used = utilization(sample, policy)
    begun = sample.at - sample.seconds
    if used >= policy.utilization_threshold and not (sample.is_late and load.above_since is None):
        if load.above_since is None:
            return LoadWatch(begun, None, used, sample.at, used)
        return LoadWatch(load.above_since, None, used, load.crossed_at, max(load.peak, used))
    if used < policy.release_threshold:
        return LoadWatch(None, load.below_since if load.below_since is not None else begun, used)
    return replace(load, utilization=used)


def is_load_high(load: LoadWatch, now: float, policy: Policy) -> bool:
    """Utilization has been at or above UT for the trigger delay."""
    return load.above_since is not None and now - load.above_since >= policy.trigger_delay_s


def chance_until(forecast: Forecast, policy: Policy) -> float:
    """Until when (CLOCK_BOOTTIME) a boost ahead of this burst is kept.

    That is the end of the burst, written at the cache's bandwidth, but at most BEGIN_S after its begin, plus the
    inactivity delay, unless the forecast says how long. A load ends it earlier.
    """
    if forecast.kept_s is not None:
        return forecast.begins_at + forecast.kept_s
    seconds = min(forecast.written_bytes / MB / policy.cache_bandwidth_mb_s, BEGIN_S)
    return forecast.begins_at + seconds + policy.inactivity_delay_s


def is_burst_expected(cycle: Cycle, now: float) -> bool:
    """The burst that this cycle was bought ahead of may still come."""
    return cycle.chance_until is not None and now < cycle.chance_until


def is_quiet(load: LoadWatch, now: float, policy: Policy) -> bool:
    """Utilization has been below the release threshold for the inactivity delay."""
    return load.below_since is not None and now - load.below_since >= policy.inactivity_delay_s


def refusal(size_bytes: int, spend: Spend, policy: Policy, least_s: float | None = None) -> str:
    """Why a cap forbids a boost of this size now; empty: none does.

    `least_s`: for how long its volume exists at the least; None: `Policy.least_boost_s`.
    """
    caps = policy.caps
    if size_bytes > caps.max_size_bytes:
        return (
            f"a cache of {size_bytes / GIB:.1f} GiB is larger than the cap of "
            f"{caps.max_size_bytes / GIB:.1f} GiB (cache.max_size_gib)"
        )
    if not spend.known and caps.limits_spending:
        return "the ledger cannot be read, so what was spent today is not known, and [caps] limits it"
    if spend.others is not None and spend.others.trouble and caps.limits_spending:
        return f"what other devices have spent under the shared caps is not known: {spend.others.trouble}"
    seconds = policy.least_boost_s if least_s is None else least_s
    least = agbs(policy.bought_bandwidth_mb_s, size_bytes, seconds)
    today, month = spend.under_caps_today, spend.under_caps_this_month
    return _refusal("day", caps.per_day, today, least) or _refusal("month", caps.per_month, month, least)


def quote_refusal(
    quote: Quote, *, needs_price: bool, most_cost: float | None, least_s: float, max_size_bytes: int
) -> tuple[str, str]:
    """Why the caps forbid a volume at this quote, as a code for programs and a sentence; both empty: they do not.

    `most_cost` is what the caps on cost leave (None: no limit), `least_s` for how long the volume exists at the least.
    """
    if needs_price and not quote.price_known:
        text = (
            f"a cap in currency (caps.max_cost_per_day, caps.max_cost_per_month) cannot be kept: {quote.price_source}"
        )
        return "caps.max_cost_per_day", text
    least = quote.price_per_hour * quote.billing.billed_s(least_s) / 3600
    if most_cost is not None and least > most_cost:
        text = f"this volume costs at least {least:.4f} {quote.currency}, more than the caps leave"
        return "caps.max_cost", f"{text} (caps.max_cost_per_day, caps.max_cost_per_month)"
    if quote.spec.size_bytes > max_size_bytes:
        provisioned, cap = format_size(quote.spec.size_bytes), format_size(max_size_bytes)
        text = f"the smallest suitable volume has {provisioned}, above the cap of {cap} (cache.max_size_gib)"
        return "cache.max_size_gib", text
    return "", ""


def _refusal(period: str, limits: Limits, spent: Spent, least_agbs: float) -> str:
    """Why the caps of a period forbid a boost that costs `least_agbs` or more."""
    max_boosts, max_agbs, max_cost = limits
    if max_boosts is not None and spent.boosts >= max_boosts:
        return f"the cap of {max_boosts} boosts a {period} is reached (caps.max_boosts_per_{period})"
    if max_agbs is not None and spent.agbs + least_agbs > max_agbs:
        return f"the cap of {max_agbs:.0f} AGBs a {period} would be exceeded (caps.max_agbs_per_{period})"
    if max_cost is not None and spent.currency >= max_cost:
        return f"the cap of {max_cost} a {period} is reached (caps.max_cost_per_{period})"
    return ""


def cost_left(spend: Spend, caps: Caps) -> float | None:
    """What the caps in currency leave for one more boost; None: they do not limit it."""
    today, month = spend.under_caps_today, spend.under_caps_this_month
    pairs = ((caps.max_cost_per_day, today.currency), (caps.max_cost_per_month, month.currency))
    return min((most - spent for most, spent in pairs if most is not None), default=None)


# --- how big ---------------------------------------------------------------------------------------------


def next_size(learned_size_bytes: int | None, policy: Policy) -> int:
    """Bytes to buy for the next boost: the learned size, else the initial size; within the bounds."""
    wanted = policy.initial_size_bytes if learned_size_bytes is None else learned_size_bytes
    return max(policy.min_size_bytes, min(wanted, policy.caps.max_size_bytes))


def in_steps(wanted_bytes: float, policy: Policy) -> int:
    """`wanted_bytes` rounded up to a whole step, within the bounds."""
    steps = -(-int(wanted_bytes) // policy.size_step_bytes)
    return max(policy.min_size_bytes, min(steps * policy.size_step_bytes, policy.caps.max_size_bytes))
