"""The life of one bought volume: from the decision to buy it to the proof that it is gone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from elastio.core.actions import Action
from elastio.core.model import (
    BackingView,
    CacheSetUuid,
    Quote,
    Serial,
    Volume,
    VolumeId,
    VolumeSpec,
    VolumeState,
    VolumeTag,
)

# Stands for the id of a volume that nobody knows.
UNKNOWN_VOLUME = "unknown"


class Trigger(StrEnum):
    LOAD = "load"
    OPERATOR = "operator"
    FORECAST = "forecast"  # ahead of a load that is expected
    ORPHAN = "orphan"  # a volume of ours was found that no cycle knew


class FailureKind(StrEnum):
    """Why a boost did not come about."""

    ERROR = "error"  # the cloud or the kernel refused
    LOST = "lost"  # the volume, or its disk, is not there or not usable any more
    TIMED_OUT = "timed out"
    WITHDRAWN = "withdrawn"  # nobody wants it any more
    UNKNOWN = "unknown"  # as a journal of 0.1.0 tells it


@dataclass(frozen=True, slots=True)
class Failure:
    kind: FailureKind
    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Backoff:
    """How often something was asked for in a row, and when it may be asked again."""

    tries: int = 0
    retry_at: float = 0.0
    error: str = ""


NO_BACKOFF = Backoff()


@dataclass(frozen=True, slots=True)
class Timestamps:
    """When each step of a cycle was first seen done (CLOCK_BOOTTIME seconds); None: not yet.

    `installing` and `detaching` are set with the intent, before anything is done: from then on the cache may serve, and
    may leave.
    """

    crossed: float | None = None  # the end of the sample that showed the load
    decided: float | None = None
    created: float | None = None  # the cloud accepted the purchase
    available: float | None = None  # the cloud showed that it can be attached
    asked: float | None = None  # the cloud accepted the attachment
    appeared: float | None = None  # the kernel shows the disk
    installing: float | None = None  # the agent set out to put the cache in front
    formatted: float | None = None  # the superblock was written; cycles of before, which took three steps, have it
    registered: float | None = None  # the kernel knew the cache set; as `formatted`
    boosted: float | None = None  # the cache is attached in writeback mode
    quiet: float | None = None  # phase 2 began (the last time it did)
    bypassed: float | None = None  # writes bypass the cache, until it is off
    clean: float | None = None
    detaching: float | None = None  # the agent set out to take the cache set off
    failed_clean: float | None = None  # the kernel let go of the cache, which was clean, and the device went on
    detached: float | None = None  # the cache set is off the backing device
    durable: float | None = None  # the backing device is, with everything that its cache had held
    released: float | None = None  # the disk carries nothing any more
    deleted: float | None = None  # the cloud accepted the deletion


@dataclass(frozen=True, slots=True)
class Cycle:
    """One bought volume.

    `started_wall` and `started_at` are one moment: both ends of the bill are told by the clock that showed it, whatever
    is done to the time of day in between. `forced` drains to the end even under load. `create_unconfirmed_at` is when a
    purchase was last asked for without a clear answer; None: no purchase is in doubt.
    """

    token: str
    trigger: Trigger
    spec: VolumeSpec
    started_at: float
    started_wall: float
    volume_id: VolumeId | None = None
    serial: Serial | None = None
    backing_serial: Serial | None = None  # of the disk that the cache is for; None: the kernel shows none
    cache_set: CacheSetUuid | None = None
    volume: Volume | None = None  # as the cloud last showed it
    quote: Quote | None = None
    unready_at: float | None = None  # when the cloud last showed it as being made
    seen: bool = False  # the cloud has shown it at least once after its creation
    create_unconfirmed_at: float | None = None
    forced: bool = False
    chance_until: float | None = None  # bought ahead of a burst: no lack of load ends it before
    opened_wall: float | None = None
    closed_wall: float | None = None
    times: Timestamps = field(default_factory=Timestamps)
    backoffs: Mapping[str, Backoff] = field(default_factory=dict)
    peak_dirty_bytes: int = 0
    peak_in_use_percent: int = 0
    cutoff_percent: int | None = None  # the kernel's own, seen while the cache was attached
    overflow_base: int | None = None  # what the kernel's counter showed before the cache was attached
    written_through_bytes: int = 0  # not absorbed, because the cache was full
    forced_writeback_bytes: int = 0  # flushed at the application's expense, because the cache was nearly full
    flush_started_dirty_bytes: int = 0
    dirty_bytes: int = 0  # as last seen, at `dirty_wall`
    dirty_wall: float | None = None
    dirty_boot: str = ""  # the boot in which the cache was last seen attached
    is_index_dirty: bool = False  # when last seen the kernel called the cache clean, and its index did not
    may_lack_data: bool = False  # the kernel shows no cache any more, although data may have been dirty on it
    tag: VolumeTag = VolumeTag.UNKNOWN  # the tag, as the cloud acknowledged it
    moved_bytes: int = 0  # read and written by applications while the cache was there
    gained_bytes: int = 0  # of these, beyond what the device carried without the cache
    bare: float = 0.0  # the highest utilization of its load before the cache was there
    longest_s: float = 0.0  # the longest stretch of load without a pause
    failure: Failure | None = None
    operator_confirmed: bool = False  # an operator wants it back although what is on it may be older than the device
    updates_learned_size: bool = True  # False: the size to buy next was set during the cycle, and stays

    def stamped(self, **stamps: float) -> Cycle:
        """The cycle with the named times set, unless they are set already."""
        new = {k: v for k, v in stamps.items() if getattr(self.times, k) is None}
        return replace(self, times=replace(self.times, **new)) if new else self

    def backoff_of(self, action: Action | str) -> Backoff:
        return self.backoffs.get(verb(action), NO_BACKOFF)

    def with_backoff(self, action: Action | str, backoff: Backoff) -> Cycle:
        return replace(self, backoffs={**self.backoffs, verb(action): backoff})

    def wall_at(self, now: float) -> float:
        """The time of day at `now`, by the clock with which the cycle began."""
        return self.started_wall + (now - self.started_at)

    def bill_closed(self, now: float) -> Cycle:
        """The bill ends at `now`, unless it has ended already."""
        return self if self.closed_wall is not None else replace(self, closed_wall=self.wall_at(now))

    @property
    def may_have_served(self) -> bool:
        """From the intent to install it on: it may be attached, take writes and die before it is seen."""
        return any(at is not None for at in (self.times.installing, self.times.registered, self.times.boosted))

    def is_on(self, backing: BackingView) -> bool:
        """Not another disk than the one that the cache was put in front of, as far as the kernel names them."""
        return None in (self.backing_serial, backing.disk_serial) or self.backing_serial == backing.disk_serial

    @property
    def may_have_left(self) -> bool:
        """A device that shows no cache is believed: it was never in front, or the agent, or the kernel, took it off."""
        gone = (self.times.detaching, self.times.failed_clean, self.times.detached, self.times.released)
        return self.times.boosted is None or any(at is not None for at in gone)

    @property
    def is_in_front(self) -> bool:
        """Its cache may have served and has not left in order: the backing device has to come back with it."""
        return self.may_have_served and self.times.detached is None and self.times.released is None

    @property
    def needs_sync(self) -> bool:
        """The backing device may have taken over what its cache held, and nobody has made it durable since."""
        had_cache = self.may_have_served or self.trigger is Trigger.ORPHAN
        return had_cache and self.times.durable is None and self.times.released is None

    @property
    def missing_bytes(self) -> int:
        """What a cache that was large enough would have held besides."""
        return self.written_through_bytes + self.forced_writeback_bytes

    @property
    def provisioned(self) -> VolumeSpec:
        """What was really bought: sizes and speeds are sold in steps."""
        if self.volume is None:
            return self.spec
        return VolumeSpec(self.volume.size_bytes, self.volume.bandwidth_mb_s, self.spec.iops)

    @property
    def volume_state(self) -> VolumeState | None:
        return self.volume.state if self.volume else None


def verb(action: Action | str) -> str:
    """The name under which an action is paced."""
    return action if isinstance(action, str) else type(action).__name__
