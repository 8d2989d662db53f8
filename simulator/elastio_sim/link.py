"""How a cache set is attached to the simulated device and detached; which requests are held back, and what is lost.

Lost are blocks whose newest acknowledged version no longer exists.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from random import Random

from elastio.core.actions import HELD_MB_S
from elastio.core.model import CacheMode, CacheSetUuid, Serial
from elastio.errors import HostError
from elastio.strategy.credits import CreditBucket, constant
from elastio.units import GB, MIB
from elastio_sim.bcache import Bcache
from elastio_sim.clock import SimClock, Timers
from elastio_sim.disk import BackingContent, CacheContent, SimDisk, Superblock, SuperblockOnDisk, Traffics
from elastio_sim.flows import FlushFlow, ReadFlow, WriteFlow
from elastio_sim.shares import SimShares


@dataclass(frozen=True, slots=True)
class BackingDisk:
    """A backing disk, and what applications know of it: `acked` is the newest version that was acknowledged."""

    serial: Serial | None
    content: BackingContent
    acked: dict[int, int]
    unsettled: set[int]
    superblock: Superblock

    @classmethod
    def of(cls, bcache: Bcache, serial: Serial | None) -> BackingDisk:
        """The disk that is plugged now, as the kernel knows it."""
        return cls(serial, bcache.backing, bcache.acked, bcache.unsettled, bcache.superblock)

    def older_copy(self, serial: Serial | None) -> BackingDisk:
        """A copy restored from a snapshot of what had reached the disk. Its superblock names no cache."""
        content = BackingContent()
        content.durable = dict(self.content.durable)
        return BackingDisk(serial, content, dict(content.durable), set(), Superblock(mode=self.superblock.mode))

    def put_into(self, bcache: Bcache) -> None:
        """Make it the backing disk of the device."""
        bcache.backing, bcache.acked, bcache.unsettled = self.content, self.acked, self.unsettled
        bcache.sb_set, bcache.sb_dirty, bcache.stale, bcache.mode = self.superblock
        bcache.passed, bcache.running = None, self.superblock.needed_set is None

    def lost(self, cached: CacheContent | None, *, power_cut: bool = False) -> frozenset[int]:
        """The lost blocks. `cached`: the content of the set that the superblock names. `power_cut`: as after one."""
        shown = {} if power_cut else self.content.volatile
        dirty, clean = (cached.dirty, cached.clean) if cached else ({}, {})
        gone = self.unsettled
        for place in (dirty, clean, shown, self.content.durable):
            gone = {block for block in gone if place.get(block) != self.acked[block]}
        return frozenset(gone)


def content_of(cache_set: CacheSetUuid | None, disks: Iterable[SimDisk], without: Serial | None) -> CacheContent | None:
    """The content of the disk of this set, if it exists."""
    if cache_set is None:
        return None
    return next((d.content for d in disks if d.superblock == cache_set and d.serial != without), None)


# Share of the cap above which the queue of a disk is full. It is compared with a smoothed value, which never reaches 1.
SATURATED = 0.8
# Time constant of the smoothing: the queue is full after a second of saturation.
SMOOTHING_S = 0.5
# An attach waits this long for writes in flight, and checks this often whether they are done.
SETTLE_S, ATTACH_AGAIN_S = 5.0, 0.05
# device-mapper keeps requests waiting for this long.
MOVE_S = 0.05
# What the kernel goes on to write while it is held back: all that is dirty, so many seconds of the backing disk.
FLOOD_S = 10.0


@dataclass(frozen=True, slots=True)
class KernelSettings:
    """Defaults are the values measured in guests with Debian's kernels 6.1 and 6.12."""

    backing_mb_s: float = 33.0
    backing_bytes: int = 50 * GB
    backing_uuid: str = "5f0e1d2c-0000-4000-8000-000000000001"
    backing_serial: str = "vol0backing0000001"
    machine: str = "i-00000000000000001"
    cutoff: float = 0.70  # bch_cutoff_writeback; the kernel takes no more than 0.90
    block_bytes: int = MIB
    cache_efficiency: float = 0.94  # the rest goes to bcache's index and journal
    superblock_s: float = 0.05
    superblock_loaded_s: float = 0.4  # on a saturated backing disk with a bounded queue
    superblock_untuned_s: float = 12.0  # with the default queue of 256 requests of up to 1.3 MB
    unlink_s: float = 0.25  # at least, from "no cache" to the end of a detach
    holds_back: bool = True  # False: no cgroup can be limited, or the device is below LUKS or md
    in_use: bool = False  # mounted, mapped or stacked: it cannot be opened exclusively
    is_adopted: bool = False
    backing_credits: CreditBucket | None = None  # in place of `backing_mb_s`
    first_credits_bytes: float = 0.0

    def __post_init__(self) -> None:
        if not 0 < self.cutoff <= 0.90:
            raise ValueError(f"bcache takes cutoffs up to 0.90, not {self.cutoff}")


class Link:
    """The part of `SimKernel` that attaches and detaches cache sets. Calls take effect at once, or some time later."""

    def __init__(self, clock: SimClock, settings: KernelSettings, seed: int = 0) -> None:
        self.clock = clock
        self.settings = settings
        self.random = Random(seed)
        self.bcache = Bcache(cutoff=settings.cutoff, block_bytes=settings.block_bytes)
        self.traffic = Traffics()
        self.disks: dict[Serial, SimDisk] = {}
        self.away: dict[Serial, SimDisk] = {}
        self.always_busy = False
        self.registered = True
        self.backing_serial: Serial | None = Serial(settings.backing_serial)
        self.original: BackingDisk | None = None
        self.was_detached_by_hand = False
        self.was_swapped_unseen = False
        self.has_tombstone = False if settings.is_adopted else None
        self._superblock = SuperblockOnDisk(seed)
        self._held_back_until = self._writes_held_until = self._reads_held_until = self._flooded_until = 0.0
        self.boots = 0
        self.boot_id = self.new_uuid()
        self._backing_use = 0.0
        self._superblock_free_at = 0.0
        self._attaching: tuple[CacheSetUuid, float] | None = None
        self._unlink_at: float | None = None
        self.timers = Timers(clock)
        self.shares = SimShares()
        self._write = WriteFlow(self.bcache, self.traffic, self.shares)
        self._read = ReadFlow(self.bcache, self.traffic, self.shares)
        self._flush = FlushFlow(self.bcache, self.traffic)
        self._fractions = [0.0, 0.0]
        self._bucket = settings.backing_credits or constant(settings.backing_mb_s)
        self.credits_bytes = self.least_credits_bytes = settings.first_credits_bytes

    def new_uuid(self) -> str:
        """The next UUID of the seed."""
        return str(uuid.UUID(int=self.random.getrandbits(128), version=4))

    def attach(self, cache_set: CacheSetUuid, *, flush_mb_s: float | None) -> float:
        """Start to attach. Returns the seconds until the link exists, 0 if it does. Raises HostError as sysfs would."""
        now = self.clock.elapsed()
        if self.bcache.cache_set == cache_set and not self.bcache.detaching:
            self.bcache.set_background(flush_mb_s)
            return 0.0
        if self._attaching is not None and self._attaching[0] == cache_set:
            return max(0.0, self._attaching[1] - now)
        if self.bcache.cache_set is not None or self._attaching is not None:
            raise HostError("a cache set is attached already, or is still detaching", code="cache.attached")
        if self.bcache.sb_dirty and self.bcache.sb_set != cache_set:
            raise HostError("the backing device waits for another cache set")
        if not any(d.registered and d.superblock == cache_set for d in self.disks.values()):
            raise HostError(f"no cache set {cache_set} is registered")
        done_at = self._write_superblock()
        self._attaching = (cache_set, done_at)
        self.hold(done_at - now + SETTLE_S)
        self.timers.later(done_at - now, lambda: self._end_attach(cache_set, flush_mb_s=flush_mb_s))
        return done_at - now

    def set_mode(self, mode: CacheMode, *, by_hand: bool = False) -> None:
        """In force at once. The superblock is written later and delays the next write."""
        if self.bcache.mode is not mode:
            if mode is CacheMode.NONE and not by_hand:
                self.shares.changed()
            self.bcache.mode = mode
            self._write_superblock()

    def set_mode_by_hand(self, mode: CacheMode) -> None:
        """An operator does it; what bypasses dirty data then is not the agent's doing. Without a cache nobody does."""
        if self.bcache.cache is not None:
            is_bypass = mode in (CacheMode.WRITEAROUND, CacheMode.NONE)
            self.bcache.is_forgiven |= is_bypass and self.bcache.dirty_bytes > 0
            self.set_mode(mode, by_hand=True)

    def detach(self, *, by_hand: bool = False) -> None:
        """Start a detach. It cannot be undone, and ends at an instant without I/O in flight.

        Until then writes bypass the cache, even over dirty blocks. `by_hand`: an operator does it, not the agent.
        """
        if self.bcache.cache is not None:
            self.bcache.detaching = True
            if not by_hand:
                self.shares.changed()
            self.bcache.is_forgiven |= by_hand
            self.was_detached_by_hand |= by_hand

    def hold_back(self, seconds: float) -> None:
        """Let no request of the application be in flight for this long."""
        self._held_back_until = self.clock.elapsed() + seconds

    def hold(self, seconds: float, *, reads: bool = False) -> None:
        """Let no write of the application begin for this long, and no read if `reads`."""
        if self.settings.holds_back:
            self._writes_held_until = self.clock.elapsed() + seconds
            self._reads_held_until = self._writes_held_until if reads else 0.0

    def limit_writes(self, mb_s: float | None) -> None:
        """None lifts the limit, and with it what was held back passes."""
        if mb_s is None and self.bcache.write_limit_mb_s == HELD_MB_S:
            self._let_pass()
        self.bcache.write_limit_mb_s = mb_s

    def _let_pass(self) -> None:
        """All that was held back is in flight at once, if applications still write."""
        self._flooded_until = self.clock.elapsed() + FLOOD_S

    def move_first_block(self, *, to_head: bool) -> None:
        """Of an adopted volume, to its head or back. Writes stay held back for the attach that follows."""
        self.has_tombstone = to_head
        if to_head:
            self.keep_held()
        else:
            self._let_pass()
        self.hold(MOVE_S, reads=True)

    def keep_held(self) -> None:
        """Writes stay held back for the attach, or the next try."""
        if self.settings.holds_back:
            self.limit_writes(HELD_MB_S)

    def wait_for_writes(self, *, for_attach: bool = True) -> float:
        """Hold writes back for as long as they may be in flight, and for an attach until the next try; the seconds."""
        if self.is_flooded:
            self.hold(SETTLE_S)
            if for_attach:
                self.keep_held()
        return SETTLE_S if self.is_flooded else 0.0

    @property
    def is_flooded(self) -> bool:
        """No moment without a write in flight comes while writes are held back."""
        return self.clock.elapsed() < self._flooded_until and not self._write.is_idle

    def resume_requests(self) -> None:
        """Stop holding requests back."""
        self._writes_held_until = self._reads_held_until = 0.0

    @property
    def holds_writes(self) -> bool:
        """True while writes of the application are held back."""
        return self.clock.elapsed() < self._writes_held_until

    @property
    def _holds_reads(self) -> bool:
        return self.clock.elapsed() < self._reads_held_until

    @property
    def in_flight(self) -> tuple[bool, bool]:
        """Whether a write and a read of applications are under way."""
        return not self._write.is_idle, self._read.block is not None

    @property
    def is_quiet(self) -> bool:
        """True if no request of the application is in flight."""
        return self._write.block is None and self._read.block is None

    def fsync(self) -> None:
        """Make the content of the backing disk durable, with its superblock."""
        self.bcache.fsync()
        self._superblock.note(self.clock.elapsed(), self.bcache.superblock)
        self._superblock.flush()

    # --- inside ------------------------------------------------------------------------------------------------

    def _write_superblock(self) -> float:
        """When a superblock write submitted now will be done. Writes queue up behind each other."""
        wait = self.settings.superblock_s
        if self._backing_use > SATURATED:
            tuned = self.bcache.tuned
            wait = self.settings.superblock_loaded_s if tuned else self.settings.superblock_untuned_s
        self._superblock_free_at = max(self._superblock_free_at, self.clock.elapsed()) + wait
        return self._superblock_free_at

    def _end_attach(self, cache_set: CacheSetUuid, *, flush_mb_s: float | None) -> None:
        if self._attaching is None or self._attaching[0] != cache_set:
            return
        in_flight = self._write.block is not None and self.settings.holds_back
        if in_flight and self.holds_writes:  # it will not invalidate what a read adds to the cache meanwhile
            self.timers.later(ATTACH_AGAIN_S, lambda: self._end_attach(cache_set, flush_mb_s=flush_mb_s))
            return
        self._attaching = None
        self.resume_requests()
        if in_flight:
            return
        disk = next((d for d in self.disks.values() if d.superblock == cache_set), None)
        if disk is None or not disk.registered or disk.content is None:
            return
        self.traffic.cache.read = self.traffic.cache.written = 0
        self.shares.changed()
        self.bcache.link(cache_set, disk.content)
        self._superblock.note(self.clock.elapsed(), self.bcache.superblock)
        self.bcache.set_background(flush_mb_s)

    def _finish_detach(self) -> None:
        if not self.bcache.detach_written:
            self._unlink_at = None
            return
        now = self.clock.elapsed()
        if self._unlink_at is None:
            self._unlink_at = now + self.settings.unlink_s
        in_flight = self._write.block is not None or self._read.block is not None or self.always_busy
        in_flight = in_flight and now > self._held_back_until
        if now >= self._unlink_at and not in_flight:
            if self.bcache.is_forgiven:
                self.fsync()  # no agent does, and a disk writes its own cache back within seconds
            self.bcache.unlink()
            self._unlink_at = None
            self.resume_requests()
