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
    VolumeMark,
    VolumeSpec,
    VolumeState,
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


class HoldReason(StrEnum):
    SNAPSHOT = "snapshot"  # an operator wants the backing volume to be consistent by itself
    STOP = "stop of the agent"
    SHUTDOWN = "shutdown"
    NOTICE = "notice of the cloud"


@dataclass(frozen=True, slots=True)
class Hold:
    """No boost begins before `until` (CLOCK_BOOTTIME); with `flush` an attached cache is flushed and released.

    `under` is the hold that this one was laid over, and that is in force again when it ends.
    """

    reason: HoldReason
    until: float
    flush: bool = True
    under: Hold | None = None


@dataclass(frozen=True, slots=True)
class Pace:
    """How often something was asked for in a row, and when it may be asked again."""

    tries: int = 0
    again_at: float = 0.0
    error: str = ""


NEVER_ASKED = Pace()


@dataclass(frozen=True, slots=True)
class Marks:
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
    outlived: float | None = None  # the kernel let go of the cache, which was clean, and the device went on
    detached: float | None = None  # the cache set is off the backing device
    durable: float | None = None  # the backing device is, with everything that its cache had held
    released: float | None = None  # the disk carries nothing any more
    deleted: float | None = None  # the cloud accepted the deletion


@dataclass(frozen=True, slots=True)
class Cycle:
    """One bought volume.

    `started_wall` and `started_at` are one moment: both ends of the bill are told by the clock that showed it, whatever
    is done to the time of day in between. `forced` drains to the end even under load. `doubt_at` is when a purchase was
    last asked for without a clear answer; None: no purchase is in doubt.
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
    doubt_at: float | None = None
    forced: bool = False
    chance_until: float | None = None  # bought ahead of a burst: no lack of load ends it before
    opened_wall: float | None = None
    closed_wall: float | None = None
    marks: Marks = field(default_factory=Marks)
    pace: Mapping[str, Pace] = field(default_factory=dict)
    peak_dirty_bytes: int = 0
    peak_in_use_percent: int = 0
    cutoff_percent: int | None = None  # the kernel's own, seen while the cache was attached
    overflow_base: int | None = None  # what the kernel's counter showed before the cache was attached
    evicted_bytes: int = 0  # not absorbed, because the cache was full
    pressed_bytes: int = 0  # flushed at the application's expense, because the cache was nearly full
    flush_started_dirty_bytes: int = 0
    dirty_bytes: int = 0  # as last seen, at `dirty_wall`
    dirty_wall: float | None = None
    dirty_boot: str = ""  # the boot in which the cache was last seen attached
    is_index_dirty: bool = False  # when last seen the kernel called the cache clean, and its index did not
    is_disputed: bool = False  # the kernel shows no cache any more, although data may have been dirty on it
    mark: VolumeMark = VolumeMark.UNKNOWN  # the tag, as the cloud acknowledged it
    moved_bytes: int = 0  # read and written by applications while the cache was there
    gained_bytes: int = 0  # of these, beyond what the device carried without the cache
    bare: float = 0.0  # the highest utilization of its load before the cache was there
    longest_s: float = 0.0  # the longest stretch of load without a pause
    failure: str = ""
    is_vouched_for: bool = False  # an operator wants it back although what is on it may be older than the device
    is_lesson: bool = True  # False: the size to buy next was set during the cycle, and stays

    def marked(self, **times: float) -> Cycle:
        """The cycle with the named marks set, unless they are set already."""
        new = {k: v for k, v in times.items() if getattr(self.marks, k) is None}
        return replace(self, marks=replace(self.marks, **new)) if new else self

    def paced(self, action: Action | str) -> Pace:
        return self.pace.get(verb(action), NEVER_ASKED)

    def with_pace(self, action: Action | str, pace: Pace) -> Cycle:
        return replace(self, pace={**self.pace, verb(action): pace})

    def wall_at(self, now: float) -> float:
        """The time of day at `now`, by the clock with which the cycle began."""
        return self.started_wall + (now - self.started_at)

    def bill_closed(self, now: float) -> Cycle:
        """The bill ends at `now`, unless it has ended already."""
        return self if self.closed_wall is not None else replace(self, closed_wall=self.wall_at(now))

    @property
    def may_have_served(self) -> bool:
        """From the intent to install it on: it may be attached, take writes and die before it is seen."""
        return any(at is not None for at in (self.marks.installing, self.marks.registered, self.marks.boosted))

    def is_on(self, backing: BackingView) -> bool:
        """Not another disk than the one that the cache was put in front of, as far as the kernel names them."""
        return None in (self.backing_serial, backing.disk_serial) or self.backing_serial == backing.disk_serial

    @property
    def may_have_left(self) -> bool:
        """A device that shows no cache is believed: it was never in front, or the agent, or the kernel, took it off."""
        gone = (self.marks.detaching, self.marks.outlived, self.marks.detached, self.marks.released)
        return self.marks.boosted is None or any(at is not None for at in gone)

    @property
    def is_in_front(self) -> bool:
        """Its cache may have served and has not left in order: the backing device has to come back with it."""
        return self.may_have_served and self.marks.detached is None and self.marks.released is None

    @property
    def needs_sync(self) -> bool:
        """The backing device may have taken over what its cache held, and nobody has made it durable since."""
        had_cache = self.may_have_served or self.trigger is Trigger.ORPHAN
        return had_cache and self.marks.durable is None and self.marks.released is None

    @property
    def missing_bytes(self) -> int:
        """What a cache that was large enough would have held besides."""
        return self.evicted_bytes + self.pressed_bytes

    @property
    def sold(self) -> VolumeSpec:
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
class Look:
    """A load that a cache gained nothing for: the most it used without the cache (utilization), and how long it lasted
    without a pause. `at_wall` is when its volume was gone."""

    peak: float
    seconds: float
    at_wall: float


@dataclass(frozen=True, slots=True)
class Thrift:
    """What is remembered of purchases that came to nothing.

    `useless`: boosts that did what they were bought for and gained nothing, the newest last. `wasted`: volumes in a row
    that never became a cache; `stopped` says why none is bought any more until an operator resumes.
    """

    useless: tuple[Look, ...] = ()
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

    `accepted` is an order: the volume without whose data an operator wants to go on ("unknown" where nobody knows it);
    empty: none. It is used up once it was carried out or the cache came back. What remains of it: `given_up`, the
    volumes that are left to the operator while they exist, and `is_stale_accepted`, the mark "inconsistent" that the
    kernel leaves on the backing device.

    `machine` is who this machine is, without asking the cloud; empty: not known. `create_s` is the least time in which
    the cloud made a volume of late; `others` are volumes that this machine bought for another backing device.

    `outlived` is the cache set that the superblock of the backing device still names, although it was clean when it
    failed and the device has gone on without it; empty: none. The device needs it no more, and it must not come back.
    """

    phase: Phase = Phase.IDLE
    cycle: Cycle | None = None
    load: LoadWatch = field(default_factory=LoadWatch)
    flush_mb_s: float | None = 0.0  # the pace of background flushing that the last sample asked for (None: no limit)
    recovered: bool = False
    boot_id: str = ""  # of the journal's last record; empty: nothing is remembered
    paused: bool = False
    hold: Hold | None = None
    accepted: str = ""
    given_up: tuple[VolumeId, ...] = ()
    is_stale_accepted: bool = False
    outlived: str = ""
    fault: str = ""
    stopped: bool = False
    cool_until: float = 0.0
    failures: int = 0  # boosts in a row that did not come to be
    learned_size_bytes: int | None = None
    machine: str = ""
    create_s: float | None = None
    others: tuple[Volume, ...] = ()
    lessons: tuple[Lesson, ...] = ()  # what the last boosts taught, the newest last
    thrift: Thrift = field(default_factory=Thrift)
    owned: tuple[Volume, ...] | None = None
    listed_at: float | None = None
    list_again_at: float = 0.0
    list_pace: Pace = NEVER_ASKED
    tune_pace: Pace = NEVER_ASKED
    limit_pace: Pace = NEVER_ASKED
    identity: Identity | None = None
    identity_pace: Pace = NEVER_ASKED
    notice: Notice | None = None
    notice_pace: Pace = NEVER_ASKED
    waiting_for: str = ""  # what stands in the way right now, for people

    @property
    def is_cache_outlived(self) -> bool:
        """The cache of this cycle failed and writes have gone past it: should it be in front again, it is stale."""
        return self.cycle is not None and self.outlived != "" and self.cycle.cache_set == self.outlived

    @property
    def is_loss_accepted(self) -> bool:
        """An operator gave up what the cache that is missing now holds: it, and no other."""
        if self.cycle is None:
            return self.accepted != ""
        return self.accepted == (self.cycle.volume_id or UNKNOWN_VOLUME)
