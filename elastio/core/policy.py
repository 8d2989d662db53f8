"""The settings of every decision. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from elastio.core.shares import ALL_MAY, BoostRights, LatencyTarget, Reserved
from elastio.strategy.credits import CreditBucket
from elastio.strategy.memory import SpeedBounds
from elastio.strategy.spending import NO_CAPS, Caps
from elastio.strategy.worth import Market
from elastio.units import GIB

# Share of the cutoff above which the cache counts as nearly full.
NEARLY_FULL = 0.93
# Share of the backing volume's bandwidth to which applications' writes are limited while a flush has to finish.
LIMITED = 0.5
# Share of the backing volume's bandwidth; a smaller difference is not worth a change of the kernel's settings.
LEAST = 0.10
# The writeback rate at which nothing is flushed.
NOTHING = 0.0


class Model(StrEnum):
    """How size, speed, hold and worth of a cache are decided."""

    AGBS = "agbs"  # by the settings and by AGBs, as published
    MONEY = "money"  # by tariff and value of time


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
    that dirty data is flushed while applications write at full speed (why that pays: docs/explanation/writeback.md).

    `cutoff` is the share of buckets up to which bcache absorbs asynchronous writes, used until the kernel shows its
    own (0.40: the module's default). `headroom` multiplies a learned size. Volumes with another `backing_uuid` belong
    to another agent; those of `neighbours` to one that runs in this VM. `lead_s` is how long before an expected burst
    the cache is bought while no time to attach was measured yet, `release_s` how long a clean cache takes to be deleted
    while that was not measured yet, `least_confidence` the confidence that a forecast needs. `notice_poll_s` is the
    interval of polls for a notice (None: never), `notice_flush` whether a notice flushes the cache. `tags_volumes`:
    keep the tag from which a janitor learns what a volume may hold. `detach_throttle_after_s` is how long a detach
    waits for an instant without requests before applications are held back for one (None: for ever). `market` is what
    `Model.MONEY` decides by; None: the prices are not known yet.

    `buys_nothing` says why nothing is bought, until the configuration is right; empty: volumes are bought.

    `backing_credits` is the bucket of a backing volume that has credits (None: it has one bandwidth), and
    `first_credits_bytes` what was in it when the agent first saw the volume; see `backing_credits`.

    `share_reserve`: what is reserved where the device is shared by the weights of cgroups; None: it is not shared.
    `share_latency`: whose requests are not to wait long then. `boost_rights`: whose load counts as utilization.

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
    caps: Caps = NO_CAPS
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
    def first_writeback_mb_s(self) -> float:
        """The writeback rate from the attachment on, when no sample yet shows that the backing volume is free."""
        drain = min(self.drain_bandwidth_mb_s, self.backing_bandwidth_mb_s)
        return drain if drain >= LEAST * self.backing_bandwidth_mb_s else NOTHING

    @property
    def least_boost_s(self) -> float:
        """Seconds for which the volume of a boost exists at the least, before any of it was measured.

        That is: attached, once inactive, and released.
        """
        return self.lead_s + self.inactivity_delay_s + self.release_s


def is_change(wanted: float | None, in_force: float | None, policy: Policy) -> bool:
    """The writeback rate in force differs enough from the wanted one to be set again."""
    if wanted is None or in_force is None or NOTHING in (wanted, in_force):
        return wanted != in_force
    return abs(wanted - in_force) > LEAST * policy.backing_bandwidth_mb_s
