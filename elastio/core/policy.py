"""When to boost, how big, and when to flush: pure functions of what was seen.

Each question is a function of its own, so that another answer (a forecast, a calibrated size, a finer governor)
is another function and not another branch in the loop.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from elastio.core.cycle import Cycle, Trigger
from elastio.core.model import Forecast, Sample, Spend
from elastio.core.state import LoadWatch
from elastio.units import GIB, MB, agbs


@dataclass(frozen=True, slots=True)
class Caps:
    """What may be spent. None: no limit."""

    max_size_bytes: int = 100 * GIB
    max_boosts_per_day: int | None = None
    max_agbs_per_day: float | None = None
    max_cost_per_day: float | None = None

    @property
    def has_daily(self) -> bool:
        """Something but the size is limited."""
        return any(c is not None for c in (self.max_boosts_per_day, self.max_agbs_per_day, self.max_cost_per_day))


@dataclass(frozen=True, slots=True)
class StopPolicy:
    """What happens to an attached cache before the agent, or the machine, ends: flushed within the time, or left."""

    flush: bool = False
    limit_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Policy:
    """The settings of every decision.

    `cache_bandwidth_mb_s` is what a cache gives to applications; `drain_bandwidth_mb_s` is bought on top of it, so
    that dirty data flows back while applications write at full speed. With the backing volume's bandwidth b on top of
    B, a saturating burst leaves 1 - b/B of its data to be held: a smaller cache for a shorter time, which together cost
    less by the share b/B, although each of its seconds costs more (docs/explanation/writeback.md).
    `cutoff` is the share of a cache set's buckets up to which bcache absorbs asynchronous writes, where the kernel has
    not shown it (0.40: the module's own default). `headroom` multiplies a learned size. Volumes
    that carry another `backing_uuid` are another agent's. `lead_s` is how long before a forecast burst the cache is
    bought, `least_confidence` how sure the forecast must be. `notice_poll_s` is how often the cloud is asked whether it
    takes this machine away (None: never), `notice_flush` whether the cache is flushed then. `tags_volumes` keeps the
    tag that tells a janitor what a volume may hold. `detach_throttle_after_s` is how long a detach may wait for an
    instant without requests before the applications are held back for one (None: for ever).
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
    lead_s: float = 60.0
    least_confidence: float = 0.8
    on_stop: StopPolicy = StopPolicy()
    on_shutdown: StopPolicy = StopPolicy()
    on_reboot: StopPolicy = StopPolicy()
    notice_poll_s: float | None = None
    notice_flush: bool = True
    tags_volumes: bool = True
    detach_throttle_after_s: float | None = None
    backing_uuid: str = ""
    caps: Caps = Caps()

    @property
    def bought_bandwidth_mb_s(self) -> float:
        """Of a cache volume."""
        return self.cache_bandwidth_mb_s + self.drain_bandwidth_mb_s


# --- when ------------------------------------------------------------------------------------------------


def utilization(sample: Sample, policy: Policy) -> float:
    """Throughput of the adaptive device (reads and writes) over the reserved bandwidth of the backing device."""
    return sample.adaptive.total_mb_s / policy.backing_bandwidth_mb_s


def watch_load(load: LoadWatch, sample: Sample, policy: Policy) -> LoadWatch:
    """Two thresholds: at or above UT the load is there, below the release threshold it is gone, between: as before.

    A stretch of load (or of quiet) begins with the sample that showed it, not before.
    """
    used = utilization(sample, policy)
    begun = sample.at - sample.seconds
    if used >= policy.utilization_threshold:
        if load.above_since is None:
            return LoadWatch(begun, None, used, sample.at, used)
        return LoadWatch(load.above_since, None, used, load.crossed_at, max(load.peak, used))
    if used < policy.release_threshold:
        return LoadWatch(None, load.below_since if load.below_since is not None else begun, used)
    return replace(load, utilization=used)


def is_load_high(load: LoadWatch, now: float, policy: Policy) -> bool:
    """Utilization has been at or above UT for the hold time."""
    return load.above_since is not None and now - load.above_since >= policy.trigger_delay_s


def boost_trigger(load: LoadWatch, forecast: Forecast | None, now: float, policy: Policy) -> Trigger | None:
    """What asks for a boost now, or None. The one place that decides when to boost.

    A load that is there; else a sure enough forecast whose burst begins within the lead time. A burst that should
    have begun and did not is left to the load: it is too late to be ahead of it.
    """
    if is_load_high(load, now, policy):
        return Trigger.LOAD
    if forecast is None or not forecast.confidence >= policy.least_confidence:
        return None
    return Trigger.FORECAST if 0 <= forecast.begins_at - now <= policy.lead_s else None


def chance_until(forecast: Forecast, policy: Policy) -> float:
    """Until when a boost ahead of this burst is kept: its end at the cache's speed, and the inactivity delay."""
    seconds = forecast.written_bytes / MB / policy.cache_bandwidth_mb_s
    return forecast.begins_at + seconds + policy.inactivity_delay_s


def has_chance(cycle: Cycle, now: float) -> bool:
    """The burst that this cycle was bought ahead of may still come."""
    return cycle.chance_until is not None and now < cycle.chance_until


def is_quiet(load: LoadWatch, now: float, policy: Policy) -> bool:
    """Utilization has been below the release threshold for the inactivity delay."""
    return load.below_since is not None and now - load.below_since >= policy.inactivity_delay_s


def refusal(size_bytes: int, spend: Spend, policy: Policy) -> str:
    """Why a boost of this size may not be bought now, or an empty string."""
    caps = policy.caps
    if size_bytes > caps.max_size_bytes:
        return (
            f"a cache of {size_bytes / GIB:.1f} GiB is larger than the cap of "
            f"{caps.max_size_bytes / GIB:.1f} GiB (cache.max_size_gib)"
        )
    if not spend.known and caps.has_daily:
        return "what was spent today is not known, because the ledger cannot be read, and there are caps on it ([caps])"
    if caps.max_boosts_per_day is not None and spend.boosts >= caps.max_boosts_per_day:
        return f"the cap of {caps.max_boosts_per_day} boosts a day is reached (caps.max_boosts_per_day)"
    least = agbs(policy.bought_bandwidth_mb_s, size_bytes, policy.inactivity_delay_s)
    if caps.max_agbs_per_day is not None and spend.agbs + least > caps.max_agbs_per_day:
        return f"the cap of {caps.max_agbs_per_day:.0f} AGBs a day would be passed (caps.max_agbs_per_day)"
    if caps.max_cost_per_day is not None and spend.currency >= caps.max_cost_per_day:
        return f"the cap of {caps.max_cost_per_day} a day is reached (caps.max_cost_per_day)"
    return ""


# --- how big ---------------------------------------------------------------------------------------------


def next_size(learned_size_bytes: int | None, policy: Policy) -> int:
    """Bytes to buy for the next cycle: what past phases taught, else the initial size; within the bounds."""
    wanted = policy.initial_size_bytes if learned_size_bytes is None else learned_size_bytes
    return max(policy.min_size_bytes, min(wanted, policy.caps.max_size_bytes))


def forecast_size(forecast: Forecast, learned_size_bytes: int | None, policy: Policy) -> int:
    """Bytes to buy ahead of this burst: room for all that it writes, or what was learned if that is more."""
    wanted = in_steps(forecast.written_bytes / policy.cutoff * policy.headroom, policy)
    return max(wanted, next_size(learned_size_bytes, policy))


def in_steps(wanted_bytes: float, policy: Policy) -> int:
    """Rounded up to a whole step, within the bounds."""
    steps = -(-int(wanted_bytes) // policy.size_step_bytes)
    return max(policy.min_size_bytes, min(steps * policy.size_step_bytes, policy.caps.max_size_bytes))
