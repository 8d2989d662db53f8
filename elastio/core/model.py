"""The values that observing, deciding and acting exchange. All frozen; no I/O, no clock.

Times named `*_at` or `now` are seconds of CLOCK_BOOTTIME, which counts through suspend and starts again at a reboot.
Times named `*_wall` are seconds since the epoch. Sizes are bytes, bandwidths MB/s (10^6 bytes per second).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NewType

from elastio.billing import Billing

VolumeId = NewType("VolumeId", str)
Serial = NewType("Serial", str)
CacheSetUuid = NewType("CacheSetUuid", str)


# --- the cloud -------------------------------------------------------------------------------------------


class VolumeState(StrEnum):
    """The state of one volume as the cloud shows it, seen from this instance."""

    CREATING = "creating"
    AVAILABLE = "available"
    ATTACHING = "attaching"
    ATTACHED = "attached"
    DETACHING = "detaching"
    BUSY = "busy"  # detaching, and the guest has not released it yet
    DELETING = "deleting"
    GONE = "gone"
    ERROR = "error"
    ELSEWHERE = "elsewhere"  # attached to another instance
    FOREIGN = "foreign"  # its tags name another owner: nothing is done to it
    UNLABELED = "unlabeled"  # its tags name no owner: nothing is done to it either

    @property
    def is_gone(self) -> bool:
        """The volume is deleted, or is being deleted: it is no longer billed."""
        return self in {VolumeState.DELETING, VolumeState.GONE}


class VolumeTag(StrEnum):
    """The tag `elastio:state` of a volume, for a janitor that can no longer ask the volume's machine.

    Volumes are created `clean` and tagged `dirty` before they may hold data. A volume that is not `clean` is kept.
    """

    UNKNOWN = "unknown"  # the tag is missing, or has another value
    DIRTY = "dirty"  # a cache, or about to be one: it may hold the only copy of data
    CLEAN = "clean"  # not a cache yet, or it no longer holds anything that is needed


@dataclass(frozen=True, slots=True)
class VolumeSpec:
    """A volume to buy. `iops` None leaves the choice to the provider: the fewest that allow the bandwidth."""

    size_bytes: int
    bandwidth_mb_s: float
    iops: int | None = None


@dataclass(frozen=True, slots=True)
class Volume:
    """One volume as the cloud last showed it. `serial` is the serial that the guest's kernel shows for its disk."""

    id: VolumeId
    serial: Serial
    state: VolumeState
    size_bytes: int
    bandwidth_mb_s: float
    token: str  # of the cycle that bought it; from its tag
    backing_uuid: str  # of the backing device it was bought for; from its tag
    created_wall: float
    tag: VolumeTag = VolumeTag.UNKNOWN  # from its tag
    iops: int | None = None  # most requests a second; None: the cloud does not say


@dataclass(frozen=True, slots=True)
class Identity:
    """This machine as its cloud names it. `bandwidth_limit_mb_s` is the instance's storage limit; None: not known."""

    cloud: str
    instance_id: str
    zone: str
    region: str
    instance_type: str
    bandwidth_limit_mb_s: float | None = None


@dataclass(frozen=True, slots=True)
class Quote:
    """What the cloud would really sell for a spec, after rounding up, and what it costs.

    `minimum_s` and `step_s` say for how long it is billed, see `billing`. `price_source`: where the price is from, and
    its date. If `price_known` is False, the price of 0 means nothing, and no cap in currency allows to buy.
    """

    spec: VolumeSpec
    currency: str
    price_per_hour: float
    minimum_s: float
    price_source: str
    price_known: bool = True
    step_s: float = 0.0

    @property
    def billing(self) -> Billing:
        return Billing(self.minimum_s, self.step_s)


@dataclass(frozen=True, slots=True)
class Purchase:
    """A volume that was bought, as the cloud answered, with its quote."""

    volume: Volume
    quote: Quote


@dataclass(frozen=True, slots=True)
class Notice:
    """The cloud will take this machine away: what happens (terminate, stop, hibernate, ...), and when."""

    action: str
    at_wall: float


@dataclass(frozen=True, slots=True)
class NoticeView:
    """The answer to one poll for a notice. `supported` False: this cloud has no notices; do not poll again."""

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
    """bcache's `cache_mode` of a backing device."""

    WRITETHROUGH = "writethrough"
    WRITEBACK = "writeback"
    WRITEAROUND = "writearound"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Depth:
    """How many requests may be in flight to the backing disk and to the cache's disk, for each hardware queue.

    And how large each may be, in KiB; None: as large as without a latency target.
    """

    backing: int
    cache: int | None = None
    backing_kb: int | None = None
    cache_kb: int | None = None


@dataclass(frozen=True, slots=True)
class BackingView:
    """The backing device as the kernel shows it.

    `cache_set` is read from the link `cache`, the only proof that a set is attached: `state` says "no cache" before a
    detach is finished. `dirty_bytes` is rounded by the kernel. `available_percent` is the share of the cache set's
    buckets that can be allocated at once. `overflow_bytes` counts bytes that were written through in writeback mode,
    from some time in this boot on; None: it cannot. `depth`: what the load needs; None: in force. `tuned`: the rest is.
    """

    running: bool
    state: CacheState
    cache_mode: CacheMode
    cache_set: CacheSetUuid | None
    dirty_bytes: int
    writeback_running: bool
    tuned: bool
    size_bytes: int
    depth: Depth | None = None
    flush_full_speed: bool = False  # the rate settings of phase 2 are in force
    flush_limit_mb_s: float | None = None  # the writeback rate in force; None: no limit
    write_limit_mb_s: float | None = None  # the agent's limit on applications' writes; None: no limit
    adaptive_name: str = ""  # bcacheN, once it runs
    disk_name: str = ""  # the whole disk that the backing device is, or is a part of
    disk_serial: Serial | None = None  # of that disk; None: the kernel shows none
    available_percent: int | None = None
    cutoff_percent: int | None = None  # share of buckets in use above which asynchronous writes are not absorbed
    overflow_bytes: int | None = None
    shared_mb_s: float | None = None  # the capacity that the agent shares among cgroups; None: none
    superblock_set: CacheSetUuid | None = None  # what the superblock names while no set is attached; None: unknown
    has_tombstone: bool | None = None  # an adopted volume: it cannot be mounted alone now; None: never, or not adopted

    @property
    def is_drained(self) -> bool:
        """The cache is clean and writes bypass it: nothing is to be flushed, and nothing can become dirty.

        `dirty_bytes` is not checked. After a power cut the index may call dirty what was flushed just before, or the
        superblock clean what was not, which the writeback thread does not see. A detach is still safe: the kernel first
        flushes everything that the index calls dirty.
        """
        return self.state is CacheState.CLEAN and self.cache_mode is CacheMode.NONE

    @property
    def is_bypassed(self) -> bool:
        """Writes bypass a cache that is attached.

        They must not be sent to it again: a read that misses while one is in flight would fill the cache with old data.
        """
        return self.cache_set is not None and self.cache_mode is not CacheMode.WRITEBACK

    @property
    def is_dirty_unseen(self) -> bool:
        """Nothing flushes what only the index calls dirty, until the cache absorbs a write: in two modes it may."""
        takes_writes = self.cache_mode in (CacheMode.WRITEBACK, CacheMode.WRITETHROUGH)
        return self.state is CacheState.CLEAN and self.dirty_bytes > 0 and takes_writes

    @property
    def is_left_to_detach(self) -> bool:
        """Nothing but a detach flushes it: somebody has set a mode in which writes bypass dirty data already."""
        return self.state is CacheState.CLEAN and self.cache_mode is CacheMode.WRITEAROUND

    @property
    def waits_for_cache(self) -> bool:
        """Its superblock names a cache set that is not there, which may hold the last minutes of the data."""
        lacks_it = self.state is CacheState.DIRTY or (self.state is CacheState.CLEAN and not self.running)
        return self.cache_set is None and lacks_it

    @property
    def may_have_been_written_since(self) -> bool:
        """It waits for a cache that was clean. The cache may have failed while the device ran and took more writes."""
        return self.waits_for_cache and self.state is CacheState.CLEAN

    @property
    def may_lose_tombstone(self) -> bool:
        """It is an adopted volume without a cache: it can be the plain filesystem again that it was."""
        return bool(self.has_tombstone) and self.state is CacheState.NO_CACHE and self.cache_set is None

    @property
    def lost_clean_cache(self) -> bool:
        """The cache failed or was removed while it was clean, and the kernel runs the device without it.

        The superblock still names the set, so the device will wait for it at the next boot. If the set came back, the
        kernel would serve its data, although later writes bypassed it.
        """
        return self.cache_set is None and self.state is CacheState.CLEAN and self.running


@dataclass(frozen=True, slots=True)
class DiskView:
    """The disk of one of this agent's volumes, as the kernel shows it.

    `cache_set` is the set that is registered on it; None: none is. `superblock` is the set whose superblock is on the
    disk, registered or not. `held`: a bcache device, a mount or device-mapper uses it.
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
    """One scan of the kernel. `backing` None: the backing device is not registered with bcache, or several are.

    `unregistered_backing` names the one unused device that carries the backing device's superblock while none is
    registered. `dead_bcache_device` names an adaptive device that bcache has stopped and that is still open: it
    disappears when it is closed. `duplicates` names the registered devices with the backing device's UUID, if there are
    several. `unsupported` says why no cache may be attached on this kernel. Each is empty where there is none.
    """

    at: float
    boot_id: str
    backing: BackingView | None
    disks: tuple[DiskView, ...] = ()
    unregistered_backing: str = ""
    dead_bcache_device: str = ""
    duplicates: tuple[str, ...] = ()
    unsupported: str = ""

    def disk(self, serial: Serial | None) -> DiskView | None:
        """The disk with this serial; None: the kernel does not show it."""
        return next((d for d in self.disks if d.serial == serial), None)


@dataclass(frozen=True, slots=True)
class Rates:
    """Throughput of one device over one sample."""

    read_mb_s: float = 0.0
    write_mb_s: float = 0.0

    @property
    def total_mb_s(self) -> float:
        """Reads and writes together."""
        return self.read_mb_s + self.write_mb_s


@dataclass(frozen=True, slots=True)
class Sample:
    """Throughput over the `seconds` before `at`.

    Only `adaptive` is the applications' I/O; the others are part of it, or flushing, and must not be added to it.
    `is_late`: it covers much more time than an interval, so what it shows may be over. `counted`: the part of
    `adaptive` that cgroups with a right to a boost caused; None: all of it. `recent`: this sample with some before it.
    """

    at: float
    seconds: float
    adaptive: Rates
    backing: Rates = field(default_factory=Rates)
    cache: Rates = field(default_factory=Rates)
    is_late: bool = False
    counted: Rates | None = None
    cache_iops: tuple[float, float] = (0.0, 0.0)  # of reads, of writes
    recent: Sample | None = None

    @property
    def flushed_mb_s(self) -> float:
        """What was flushed: read from the cache volume and written to the backing volume."""
        return min(self.cache.read_mb_s, self.backing.write_mb_s)

    @property
    def load(self) -> Rates:
        """What counts towards a boost."""
        return self.adaptive if self.counted is None else self.counted


@dataclass(frozen=True, slots=True)
class Forecast:
    """The next burst as it is expected: when it begins, how much it writes (0: unknown), how sure that is (0 to 1).

    `is_announced`: somebody said so; else a forecaster did. `lead_s` is how long before it a cache is bought (None: as
    long as the last ones took), `kept_s` how long after its begin the cache waits for it (None: until its end).
    """

    begins_at: float
    written_bytes: int
    confidence: float
    is_announced: bool = False
    lead_s: float | None = None
    kept_s: float | None = None


# --- requests of an operator --------------------------------------------------------------------------------


class RequestKind(StrEnum):
    """The requests that the agent answers, see `requests`."""

    BOOST = "boost"
    FLUSH = "flush"
    PAUSE = "pause"
    RESUME = "resume"
    QUIESCE = "quiesce"  # flush and release the cache, and begin no boost for `seconds`
    UNQUIESCE = "unquiesce"
    STOP = "stop"  # the agent is being stopped
    SHUTDOWN = "shutdown"  # the machine is being shut down; with `cancels`, it is not after all
    RECOVER = "recover"  # bring a missing cache back, or go on without it
    COLLECT = "gc"  # list this agent's volumes now, and release orphans
    LEARN = "learn"  # set the learned size to `size_bytes`
    EXPECT = "expect"  # a burst begins in `seconds` and writes `size_bytes`; without `seconds`: forget announced bursts


@dataclass(frozen=True, slots=True)
class Request:
    """What an operator or the service manager asked for.

    Only root may accept a loss: the control socket refuses `accepts_loss` of anybody else (`protocol.needs_root`). So
    whatever may lose data, or bring older data back, asks for it, by the state in which it is decided.
    """

    kind: RequestKind
    size_bytes: int | None = None
    seconds: float | None = None
    volume_id: str | None = None
    accepts_loss: bool = False
    brings_back: bool = False  # of RECOVER: the named cache comes back although it may be older than the device
    is_foreign: bool = False  # of RECOVER: another machine bought the volume, and is gone
    reboots: bool = False  # of SHUTDOWN: it is a reboot
    cancels: bool = False  # of SHUTDOWN: end its inhibition
    asked_by: int | None = None  # the uid of who asked; None: not known, or not asked over the socket
