"""The values that travel between observing, deciding and acting. All frozen; no I/O, no clock.

Times named `*_at` or `now` are seconds of CLOCK_BOOTTIME (they go on through suspend and stop at a reboot);
times named `*_wall` are seconds since the epoch. Sizes are bytes, bandwidths MB/s (10^6 bytes per second).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NewType

VolumeId = NewType("VolumeId", str)
Serial = NewType("Serial", str)
CacheSetUuid = NewType("CacheSetUuid", str)


# --- the cloud -------------------------------------------------------------------------------------------


class VolumeState(StrEnum):
    """What the cloud shows of one volume, seen from this instance."""

    CREATING = "creating"
    AVAILABLE = "available"
    ATTACHING = "attaching"
    ATTACHED = "attached"
    DETACHING = "detaching"
    BUSY = "busy"  # detach was asked for and the guest has not let go
    DELETING = "deleting"
    GONE = "gone"
    ERROR = "error"
    ELSEWHERE = "elsewhere"  # attached to another instance
    FOREIGN = "foreign"  # its tags name another owner: nothing is done to it


class VolumeTag(StrEnum):
    """What the tag `elastio:state` of a volume says to those who cannot ask its machine any more.

    Volumes are born `clean` and marked `dirty` before they may hold anything. What is not `clean` is kept.
    """

    UNKNOWN = "unknown"  # the tag is missing, or says something else
    DIRTY = "dirty"  # it serves as a cache, or is about to, and may hold the only copy of data
    CLEAN = "clean"  # it has held nothing yet, or holds nothing that is needed any more


@dataclass(frozen=True, slots=True)
class VolumeSpec:
    """What to buy. `iops` None leaves the choice to the provider (the least that carries the bandwidth)."""

    size_bytes: int
    bandwidth_mb_s: float
    iops: int | None = None


@dataclass(frozen=True, slots=True)
class Volume:
    """One volume as the cloud last showed it. `serial` is what the guest's kernel shows for its disk."""

    id: VolumeId
    serial: Serial
    state: VolumeState
    size_bytes: int
    bandwidth_mb_s: float
    token: str  # of the cycle that bought it; from its tag
    backing_uuid: str  # of the backing device it was bought for; from its tag
    created_wall: float
    tag: VolumeTag = VolumeTag.UNKNOWN  # from its tag


@dataclass(frozen=True, slots=True)
class Identity:
    """Who this machine is to its cloud. `bandwidth_limit_mb_s` is the instance's own storage limit, if known."""

    cloud: str
    instance_id: str
    zone: str
    region: str
    instance_type: str
    bandwidth_limit_mb_s: float | None = None


@dataclass(frozen=True, slots=True)
class Quote:
    """What a spec really buys (sizes and speeds are sold in steps) and what it costs.

    `minimum_s` is the shortest time billed; `price_source` names where the price comes from and its date. Where
    `price_known` is False the price is 0 and means nothing: nothing may be bought then under a cap in currency.
    """

    spec: VolumeSpec
    currency: str
    price_per_hour: float
    minimum_s: float
    price_source: str
    price_known: bool = True


@dataclass(frozen=True, slots=True)
class Purchase:
    """A purchase: the volume as the cloud answered, and what it costs."""

    volume: Volume
    quote: Quote


@dataclass(frozen=True, slots=True)
class Notice:
    """The cloud will take this machine away: what happens (terminate, stop, hibernate, ...), and when."""

    action: str
    at_wall: float


@dataclass(frozen=True, slots=True)
class NoticeView:
    """One look for a notice. `supported` False: this cloud gives none, and asking again is of no use."""

    supported: bool
    notice: Notice | None = None


# --- the host --------------------------------------------------------------------------------------------


class CacheState(StrEnum):
    """bcache's `state` of a backing device."""

    NO_CACHE = "no cache"
    CLEAN = "clean"
    DIRTY = "dirty"
    INCONSISTENT = "inconsistent"  # was started by force without its dirty cache


class CacheMode(StrEnum):
    WRITETHROUGH = "writethrough"
    WRITEBACK = "writeback"
    WRITEAROUND = "writearound"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class BackingView:
    """The backing device as the kernel shows it.

    `cache_set` follows the `cache` link, the only proof of attachment: `state` says "no cache" before a detach is
    finished. `dirty_bytes` is rounded by the kernel. `available_percent` is the share of the cache set's buckets
    that can be allocated at once. `overflow_bytes` counts, since some time in this boot, what was written in
    writeback mode and not absorbed; None where the kernel cannot be asked.
    """

    running: bool
    state: CacheState
    cache_mode: CacheMode
    cache_set: CacheSetUuid | None
    dirty_bytes: int
    writeback_running: bool
    tuned: bool
    size_bytes: int
    flush_full_speed: bool = False  # the phase-2 rate settings are in force
    flush_limit_mb_s: float | None = None  # of background flushing, where one is in force
    write_limit_mb_s: float | None = None  # of applications' writes to the adaptive device, where the agent set one
    adaptive_name: str = ""  # bcacheN, once it runs
    disk_name: str = ""  # the whole disk the backing device is or lies on
    disk_serial: Serial | None = None  # of that disk; None where the kernel shows none
    available_percent: int | None = None
    cutoff_percent: int | None = None  # of buckets in use, above which asynchronous writes are not absorbed
    overflow_bytes: int | None = None
    superblock_set: CacheSetUuid | None = None  # by its superblock, where no set is attached; None: none, or unreadable

    @property
    def is_drained(self) -> bool:
        """The writeback thread has nothing to do, and nothing can become dirty.

        `dirty_bytes` is no condition. After a power cut the index may call dirty again what was flushed just before it,
        or the superblock may still say clean over data that was not. The thread then sees no work and waits for a
        write, which does not come in this mode. A detach does not ask it: the kernel flushes all that the index calls
        dirty first.
        """
        return self.state is CacheState.CLEAN and self.cache_mode is CacheMode.NONE

    @property
    def is_bypassed(self) -> bool:
        """Writes bypass a cache that is attached. They must not be led back into it: a read that misses while such a
        write is in flight would put what was there before into the cache."""
        return self.cache_set is not None and self.cache_mode is not CacheMode.WRITEBACK

    @property
    def waits_for_cache(self) -> bool:
        """Its superblock names a cache set that is not there: it may hold the last minutes of the data."""
        lacks_it = self.state is CacheState.DIRTY or (self.state is CacheState.CLEAN and not self.running)
        return self.cache_set is None and lacks_it

    @property
    def may_have_been_written_since(self) -> bool:
        """It waits for a cache that was clean: it may have lost that while it ran, and have been written to since."""
        return self.waits_for_cache and self.state is CacheState.CLEAN

    @property
    def lost_clean_cache(self) -> bool:
        """The cache failed, or was torn off, while it was clean: the kernel goes on without it.

        Its superblock keeps the name of the set, so that it will wait for the set at the next boot; should the set come
        back, the kernel would serve what is on it, although writes have gone past it.
        """
        return self.cache_set is None and self.state is CacheState.CLEAN and self.running


@dataclass(frozen=True, slots=True)
class DiskView:
    """A disk of ours that the kernel shows. `cache_set` is set while it is registered as a cache device.

    `superblock` is the cache set that is written on the disk, whether registered or not; `held` tells whether
    anything (a bcache device, a mount, device-mapper) uses it.
    """

    name: str
    serial: Serial
    size_bytes: int
    cache_set: CacheSetUuid | None
    superblock: CacheSetUuid | None
    held: bool

    @property
    def is_in_use(self) -> bool:
        """The disk still carries or serves a cache set."""
        return self.cache_set is not None or self.superblock is not None or self.held


@dataclass(frozen=True, slots=True)
class HostView:
    """One look at the kernel. `backing` None: the backing device is not registered with bcache, or several are.

    `dropped` names the one unused device that carries the backing device's superblock while none is registered,
    `wounded` the adaptive device that bcache has let go of and that is still in use: it goes at its last close.
    `twins` names the registered devices that share the backing device's UUID, where several do. `unfit` says why this
    kernel must not be given a cache.
    """

    at: float
    boot_id: str
    backing: BackingView | None
    disks: tuple[DiskView, ...] = ()
    cache_sets: tuple[CacheSetUuid, ...] = ()  # every registered set, ours or not
    unregistered_backing: str = ""
    dead_bcache_device: str = ""
    duplicates: tuple[str, ...] = ()
    unsupported: str = ""

    def disk(self, serial: Serial | None) -> DiskView | None:
        """The disk with this serial, or None."""
        return next((d for d in self.disks if d.serial == serial), None)


@dataclass(frozen=True, slots=True)
class Rates:
    """Throughput of one device over one sample."""

    read_mb_s: float = 0.0
    write_mb_s: float = 0.0

    @property
    def total_mb_s(self) -> float:
        return self.read_mb_s + self.write_mb_s


@dataclass(frozen=True, slots=True)
class Sample:
    """Throughput over the `seconds` before `at`. Only `adaptive` is what applications do: never add the others."""

    at: float
    seconds: float
    adaptive: Rates
    backing: Rates = field(default_factory=Rates)
    cache: Rates = field(default_factory=Rates)


@dataclass(frozen=True, slots=True)
class Forecast:
    """The next burst as a forecaster expects it: when it begins, how much it writes, how sure that is (0 to 1)."""

    begins_at: float
    written_bytes: int
    confidence: float


# --- money -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Spend:
    """What was used up of the caps since local midnight. `known` False: it may be more, the ledger cannot be read."""

    boosts: int = 0
    agbs: float = 0.0
    currency: float = 0.0
    known: bool = True


# --- requests of an operator --------------------------------------------------------------------------------


class RequestKind(StrEnum):
    BOOST = "boost"
    FLUSH = "flush"
    PAUSE = "pause"
    RESUME = "resume"
    QUIESCE = "quiesce"  # flush and hold clean for `seconds`
    UNQUIESCE = "unquiesce"
    STOP = "stop"  # the agent is being stopped
    SHUTDOWN = "shutdown"  # the machine is being shut down
    RECOVER = "recover"  # bring a missing cache back, or go on without it
    COLLECT = "gc"  # look for forgotten volumes now
    LEARN = "learn"  # the next boosts by load buy this size, as if past phases had taught it


@dataclass(frozen=True, slots=True)
class Request:
    """Something an operator (or the service manager) asked for."""

    kind: RequestKind
    size_bytes: int | None = None
    seconds: float | None = None
    volume_id: str | None = None
    accepts_loss: bool = False
    reboots: bool = False  # of SHUTDOWN: the machine comes back by itself
