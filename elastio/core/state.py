"""What the agent remembers between two decisions. Frozen; every change makes a new value.

A *cycle* is the life of one bought volume: from the decision to buy it to the proof that it is gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from elastio.core.actions import Action
from elastio.core.model import (
    BackingView,
    CacheSetUuid,
    Identity,
    Notice,
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


class Phase(StrEnum):
    IDLE = "idle"  # no cache, nothing bought
    ATTACHING = "attaching"  # buying the volume and putting it in front
    BOOSTING = "boosting"  # phase 1: application I/O first
    FLUSHING = "flushing"  # phase 2: flush first; at its end writes bypass the cache
    DETACHING = "detaching"  # letting go of cache set and volume
    FAULTED = "faulted"  # something only an operator may decide; nothing is released


class Trigger(StrEnum):
    LOAD = "load"
    OPERATOR = "operator"
    FORECAST = "forecast"  # ahead of a load that is expected
    ORPHAN = "orphan"  # a volume of ours was found that no cycle knew


class InhibitionReason(StrEnum):
    SNAPSHOT = "snapshot"  # an operator wants the backing volume to be consistent by itself
    STOP = "stop of the agent"
    SHUTDOWN = "shutdown"
    NOTICE = "notice of the cloud"


@dataclass(frozen=True, slots=True)
class Inhibition:
    """No boost begins before `until` (CLOCK_BOOTTIME); with `flush` an attached cache is flushed and released.

    `under` is the hold that this one was laid over, and that is in force again when it ends.
    """

    reason: InhibitionReason
    until: float
    flush: bool = True
    under: Inhibition | None = None


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
    failure: str = ""
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


@dataclass(frozen=True, slots=True)
class LoadWatch:
    """Since when utilization has been at or above UT, and below the release threshold; None: it is not.

    `crossed_at` is the end of the sample that showed the stretch of load first.
    """

    above_since: float | None = None
    below_since: float | None = None
    utilization: float = 0.0
    crossed_at: float | None = None
    peak: float = 0.0  # the highest utilization of the stretch


@dataclass(frozen=True, slots=True)
class UselessBoost:
    """A load that a cache gained nothing for: the most it used without the cache (utilization), and how long it lasted
    without a pause. `at_wall` is when its volume was gone."""

    peak: float
    seconds: float
    at_wall: float


@dataclass(frozen=True, slots=True)
class Waste:
    """What is remembered of purchases that came to nothing.

    `useless`: boosts that did what they were bought for and gained nothing, the newest last. `wasted`: volumes in a row
    that never became a cache; `stopped` says why none is bought any more until an operator resumes.
    """

    useless: tuple[UselessBoost, ...] = ()
    wasted: int = 0
    stopped: str = ""


@dataclass(frozen=True, slots=True)
class Lesson:
    """What one boost taught: the size that it would have needed, and what applications read and wrote meanwhile."""

    needed_bytes: int
    moved_bytes: int


@dataclass(frozen=True, slots=True)
class AgentState:
    """Everything `decide` carries from one call to the next.

    `recovered` is False until the phase has been read off the kernel after a start. `owned` is the last list of
    this agent's volumes; None while the cloud has not answered since the start. `stopped` is set when a safety rule
    would have been broken: nothing is done any more until an operator resumes.

    `loss_accepted_for` is an order: the volume without whose data an operator wants to go on ("unknown" where nobody
    knows it); empty: none. It is used up once it was executed or the cache came back. What remains of it: `given_up`,
    the volumes that are left to the operator while they exist, and `is_stale_accepted`, the state "inconsistent" that
    the kernel leaves on the backing device.

    `machine` is who this machine is, without asking the cloud; empty: not known. `create_s` is the least time in which
    the cloud made a volume of late; `others` are volumes that this machine bought for another backing device.

    `failed_clean_set` is the cache set that the superblock of the backing device still names, although it was clean
    when it failed and the device has gone on without it; empty: none. It must not be attached again.
    """

    phase: Phase = Phase.IDLE
    cycle: Cycle | None = None
    load: LoadWatch = field(default_factory=LoadWatch)
    flush_mb_s: float | None = 0.0  # the pace of background flushing that the last sample asked for (None: no limit)
    recovered: bool = False
    boot_id: str = ""  # of the journal's last record; empty: nothing is remembered
    paused: bool = False
    inhibition: Inhibition | None = None
    loss_accepted_for: str = ""
    given_up: tuple[VolumeId, ...] = ()
    is_stale_accepted: bool = False
    failed_clean_set: str = ""
    fault: str = ""
    stopped: bool = False
    cool_until: float = 0.0
    failures: int = 0  # boosts in a row that did not come to be
    learned_size_bytes: int | None = None
    machine: str = ""
    create_s: float | None = None
    others: tuple[Volume, ...] = ()
    lessons: tuple[Lesson, ...] = ()  # what the last boosts taught, the newest last
    waste: Waste = field(default_factory=Waste)
    owned: tuple[Volume, ...] | None = None
    listed_at: float | None = None
    list_again_at: float = 0.0
    list_backoff: Backoff = NO_BACKOFF
    tune_backoff: Backoff = NO_BACKOFF
    limit_backoff: Backoff = NO_BACKOFF
    identity: Identity | None = None
    identity_backoff: Backoff = NO_BACKOFF
    notice: Notice | None = None
    notice_backoff: Backoff = NO_BACKOFF
    waiting_for: str = ""  # what stands in the way right now, for people

    @property
    def is_cache_stale(self) -> bool:
        """The cache of this cycle failed and writes have gone past it: should it be in front again, it is stale."""
        return self.cycle is not None and self.failed_clean_set != "" and self.cycle.cache_set == self.failed_clean_set

    @property
    def is_loss_accepted(self) -> bool:
        """An operator gave up what the cache that is missing now holds: it, and no other."""
        if self.cycle is None:
            return self.loss_accepted_for != ""
        return self.loss_accepted_for == (self.cycle.volume_id or UNKNOWN_VOLUME)
