"""What the agent remembers between two decisions. Frozen; every change makes a new value.

The life of one bought volume is a `cycle.Cycle`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from elastio.core.cycle import NO_BACKOFF, UNKNOWN_VOLUME, Backoff, Cycle
from elastio.core.model import (
    BackingView,
    CacheState,
    Identity,
    Notice,
    Volume,
    VolumeId,
    VolumeState,
    VolumeTag,
)


class Phase(StrEnum):
    IDLE = "idle"  # no cache, nothing bought
    ATTACHING = "attaching"  # buying the volume and putting it in front
    BOOSTING = "boosting"  # phase 1: application I/O first
    FLUSHING = "flushing"  # phase 2: flush first; at its end writes bypass the cache
    DETACHING = "detaching"  # letting go of cache set and volume
    FAULTED = "faulted"  # something only an operator may decide; nothing is released


class FaultKind(StrEnum):
    """Why only an operator can go on."""

    CACHE_MISSING = "cache missing"  # the device waits for a cache that is not there
    CACHE_FAILED = "cache failed"  # bcache let go of the device because its cache failed, or somebody stopped it
    MAY_LACK_DATA = "may lack data"  # the device shows no cache, and its volume may hold what the device does not
    CACHE_STALE = "cache stale"  # a cache is back that writes have gone past
    INCONSISTENT = "inconsistent"  # the device was started by force without its cache
    FOREIGN_CACHE = "foreign cache"  # a cache set is attached that this agent did not attach
    DUPLICATE_DEVICE = "duplicate device"  # two devices carry the backing UUID
    ATTACHED_ELSEWHERE = "attached elsewhere"  # the volume is attached to another instance
    RULE_BROKEN = "rule broken"  # a decision would have broken a safety rule: a bug


@dataclass(frozen=True, slots=True)
class Fault:
    """What only an operator can resolve; `text` is the sentence for people."""

    kind: FaultKind
    text: str

    def __str__(self) -> str:
        return self.text


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
    this agent's volumes; None while the cloud has not answered since the start.

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
    fault: Fault | None = None
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
    def is_stopped(self) -> bool:
        """A safety rule would have been broken: nothing is done any more until an operator resumes."""
        return self.fault is not None and self.fault.kind is FaultKind.RULE_BROKEN

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

    @property
    def is_mixed(self) -> bool:
        """The device went on without a cache that may have been dirty: a flush may write older data over newer."""
        return self.is_cache_stale and self.cycle is not None and self.cycle.may_lack_data

    def may_run_without_cache(self, backing: BackingView) -> bool:
        """The device waits for a cache set that failed while clean, and for no other: starting it loses nothing."""
        is_awaited = backing.waits_for_cache and self.failed_clean_set != ""
        is_awaited = is_awaited and self.failed_clean_set == backing.superblock_set
        # It may have been attached again, and have taken writes: the superblock turns dirty late.
        is_back = self.is_cache_stale and self.cycle is not None and self.cycle.is_in_front
        may_lack_data = self.cycle is not None and self.cycle.may_lack_data
        return is_awaited and backing.state is CacheState.CLEAN and not may_lack_data and not is_back

    def is_kept(self, volume: Volume) -> bool:
        """Not tagged clean, or given up by an operator: only an operator knows whose data is on it."""
        return volume.tag is not VolumeTag.CLEAN or volume.id == self.loss_accepted_for or volume.id in self.given_up

    @property
    def orphans(self) -> tuple[Volume, ...]:
        """Owned volumes that may be released, are not being deleted and are not attached to another instance."""
        left_alone = (VolumeState.DELETING, VolumeState.GONE, VolumeState.ELSEWHERE, VolumeState.FOREIGN)
        return tuple(v for v in self.owned or () if v.state not in left_alone and not self.is_kept(v))
