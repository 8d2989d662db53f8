"""The life of one bought volume: from the decision to buy it to the proof that it is gone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from elastio.core import model
from elastio.core.actions import Action, DetachCacheSet, Outcome
from elastio.core.phase import CacheUse as CacheUse  # noqa: PLC0414  re-exported
from elastio.core.phase import Failure as Failure  # noqa: PLC0414  re-exported
from elastio.core.phase import FailureKind as FailureKind  # noqa: PLC0414  re-exported
from elastio.core.phase import Timestamps as Timestamps  # noqa: PLC0414  re-exported
from elastio.core.phase import Trigger as Trigger  # noqa: PLC0414  re-exported
from elastio.strategy.memory import Choice

UNKNOWN_S = 3600.0

# Codes of a DetachCacheSet that was refused before the kernel was asked.
NOT_DETACHED = frozenset({"cache.not_drained", "set.other"})
# The ID of a volume whose ID is not known.
UNKNOWN_VOLUME = "unknown"


@dataclass(frozen=True, slots=True)
class Backoff:
    """The wait between tries: `tries` in a row so far, the next one not before `retry_at`. `error`: the last one's."""

    tries: int = 0
    retry_at: float = 0.0
    error: str = ""


NO_BACKOFF = Backoff()


@dataclass(frozen=True, slots=True)
class Cycle:
    """The agent's record of one bought volume. Its fields are the journal's keys.

    `started_wall` and `started_at` are one moment; both ends of the bill are computed from them, so that setting the
    clock does not change it. `forced`: flush to the end even under load. `create_unconfirmed_at` is when a purchase was
    last requested without an answer; None: no purchase is unconfirmed.
    """

    token: str
    trigger: Trigger
    spec: model.VolumeSpec
    started_at: float
    started_wall: float
    least_s: float | None = None  # for how long it exists at the least; None: nothing of that was measured
    volume_id: model.VolumeId | None = None
    serial: model.Serial | None = None
    backing_serial: model.Serial | None = None  # of the backing disk; None: the kernel shows none
    cache_set: model.CacheSetUuid | None = None
    volume: model.Volume | None = None  # as the cloud last showed it
    quote: model.Quote | None = None
    unready_at: float | None = None  # when the cloud last showed it as `creating`
    seen: bool = False  # the cloud has shown it at least once after its creation
    create_unconfirmed_at: float | None = None
    forced: bool = False
    choice: Choice | None = None  # what was decided by money, and why; None: the settings apply
    opened_wall: float | None = None
    closed_wall: float | None = None
    times: Timestamps = field(default_factory=Timestamps)
    backoffs: Mapping[str, Backoff] = field(default_factory=dict)
    use: CacheUse = field(default_factory=CacheUse)
    flush_started_dirty_bytes: int = 0
    dirty_bytes: int = 0  # as last seen, at `dirty_wall`
    dirty_wall: float | None = None
    dirty_boot: str = ""  # the boot in which the cache was last seen attached
    is_index_dirty: bool = False  # when last seen, the superblock said "clean" and the index held dirty data
    dirtied: int = 0  # how often its release began again, because the cache was not drained any more
    may_lack_data: bool = False  # the kernel shows no cache, and the device may lack data that the cache holds
    tag: model.VolumeTag = model.VolumeTag.UNKNOWN  # as the cloud acknowledged it
    failure: Failure | None = None
    operator_confirmed: bool = False  # an operator wants it back although it may be older than the device
    asked_by: int | None = None  # the uid of the operator who asked for it; None: nobody did, or it is not known

    def stamped(self, **stamps: float) -> Cycle:
        """The cycle with the named times set; a time that is set already stays."""
        new = {k: v for k, v in stamps.items() if getattr(self.times, k) is None}
        return replace(self, times=replace(self.times, **new)) if new else self

    def came_back(self) -> Cycle:
        """The cycle whose cache is attached again: signs that it was detached, or held nothing, no longer count."""
        return replace(self, times=replace(self.times, detached=None, durable=None, released=None, failed_clean=None))

    def backoff_of(self, action: Action | str) -> Backoff:
        """The backoff of this kind of action; NO_BACKOFF if it was not tried in this phase."""
        return self.backoffs.get(verb(action), NO_BACKOFF)

    def with_backoff(self, action: Action | str, backoff: Backoff) -> Cycle:
        """The cycle with the backoff of this kind of action replaced."""
        return replace(self, backoffs={**self.backoffs, verb(action): backoff})

    def answered(self, outcome: Outcome, backoff: Backoff) -> Cycle:
        """The cycle after an outcome. A detach that never reached the kernel explains no missing cache."""
        cycle = self.with_backoff(outcome.action, backoff)
        was_not_asked = isinstance(outcome.action, DetachCacheSet) and outcome.code in NOT_DETACHED
        return replace(cycle, times=replace(cycle.times, detaching=None)) if was_not_asked else cycle

    def wall_at(self, now: float) -> float:
        """Seconds since the epoch at `now`, by the clock as it was set when the cycle began."""
        return self.started_wall + (now - self.started_at)

    def bill_closed(self, now: float) -> Cycle:
        """The cycle with its bill ended at `now`, unless it has ended already."""
        return self if self.closed_wall is not None else replace(self, closed_wall=self.wall_at(now))

    def bill_reopened(self) -> Cycle:
        """The cycle with its bill open: the volume exists, so the deletion that ended the bill did not take place."""
        if self.closed_wall is None and self.times.deleted is None:
            return self
        return replace(self, closed_wall=None, times=replace(self.times, deleted=None))

    @property
    def may_have_served(self) -> bool:
        """From the intent to install it on, the cache may be attached, take writes and fail before it is seen."""
        return any(at is not None for at in (self.times.installing, self.times.registered, self.times.boosted))

    def is_on(self, backing: model.BackingView) -> bool:
        """The backing disk is the one that the cache was attached to; also true where a serial is unknown."""
        return None in (self.backing_serial, backing.disk_serial) or self.backing_serial == backing.disk_serial

    def is_attached_to(self, backing: model.BackingView | None) -> bool:
        """Its own cache set is attached to the backing device; None: that is not known."""
        return backing is not None and backing.cache_set is not None and backing.cache_set == self.cache_set

    @property
    def may_have_left(self) -> bool:
        """A device without a cache set is plausible: none was attached, or the agent or the kernel detached it."""
        gone = (self.times.detaching, self.times.failed_clean, self.times.detached, self.times.released)
        return self.times.boosted is None or any(at is not None for at in gone)

    @property
    def may_be_attached(self) -> bool:
        """Its cache may have served and was not detached in order: the backing device has to come back with it."""
        return self.may_have_served and self.times.detached is None and self.times.released is None

    @property
    def needs_sync(self) -> bool:
        """Data of the cache may have been flushed to the backing device, which has not been made durable since."""
        had_cache = self.may_have_served or self.trigger is Trigger.ORPHAN
        return had_cache and self.times.durable is None and self.times.released is None

    @property
    def provisioned(self) -> model.VolumeSpec:
        """The size and bandwidth that the cloud really sold, after rounding up; before that, what was asked for."""
        if self.volume is None:
            return self.spec
        return model.VolumeSpec(self.volume.size_bytes, self.volume.bandwidth_mb_s, self.volume.iops or self.spec.iops)

    def is_of(self, volume: model.Volume) -> bool:
        """It is the volume of this cycle; of a purchase that was carried out twice, the one that is used."""
        return volume.token == self.token if self.volume_id is None else volume.id == self.volume_id

    @property
    def has_volume(self) -> bool:
        """The cloud has answered the purchase."""
        return self.volume_id is not None

    @property
    def volume_state(self) -> model.VolumeState | None:
        """As the cloud last showed it; None: not seen yet."""
        return self.volume.state if self.volume else None

    @property
    def is_gone(self) -> bool:
        """The cloud has deleted its volume, or is deleting it."""
        return self.volume is not None and self.volume.state.is_gone

    def is_unknown(self, host: model.HostView | None, now: float) -> bool:
        """The cloud knows no such volume, whose disk is there, and nobody has deleted it: is it another project's?"""
        is_there = host is not None and host.disk(self.serial) is not None and self.times.deleted is None
        since = self.times.detaching or self.times.created or 0.0  # a disk may linger until a reboot
        return is_there and self.volume_state is model.VolumeState.GONE and now < since + UNKNOWN_S


def verb(action: Action | str) -> str:
    """The key of an action's backoff: its class name."""
    return action if isinstance(action, str) else type(action).__name__
