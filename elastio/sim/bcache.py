"""The rules of bcache for one backing device: where a write goes, what a flush leaves, what a detach means.

Facts come from the kernel's drivers/md/bcache of 6.1 and 6.12. No bandwidth here: `flows` moves the bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from elastio.core.model import CacheMode, CacheSetUuid, CacheState
from elastio.sim.block_versions import CUTOFF_BYPASS, BackingContent, CacheContent
from elastio.sim.superblock import Superblock
from elastio.units import MB, MIB


class Route(Enum):
    """Where a write goes."""

    ABSORB = "absorb"  # to the cache, dirty
    OVERFLOW = "overflow"  # writeback mode, but too much in use: to both disks
    THROUGH = "through"  # writethrough mode: to both disks
    BYPASS = "bypass"  # to the backing disk only; its place in the index goes when it begins


class WritebackMode(Enum):
    """How fast dirty blocks are written back."""

    TRICKLE = "trickle"  # the kernel's defaults: 4 KiB/s until a tenth of the cache is dirty
    LIMITED = "limited"  # at most `limit_mb_s`
    IDLE = "idle"  # writeback_percent=0: what applications leave over on the backing disk
    FULL = "full"  # phase 2: as much as applications get


TRICKLE_SHARE = 0.10  # writeback_percent's default
TRICKLE_BYTES_S = 4096


@dataclass(slots=True)
class Bcache:
    """One backing device's state in the kernel, with its superblock (`sb_*`, which survives a power cut)."""

    cutoff: float
    block_bytes: int = MIB
    backing: BackingContent = field(default_factory=BackingContent)
    acked: dict[int, int] = field(default_factory=dict)
    unsettled: set[int] = field(default_factory=set)  # whose newest version the backing disk does not hold durably
    running: bool = True
    mode: CacheMode = CacheMode.WRITETHROUGH
    writeback_mode: WritebackMode = WritebackMode.TRICKLE
    limit_mb_s: float = 0.0  # of a limited pace
    write_limit_mb_s: float | None = None  # of applications' writes, above bcache
    writeback_running: bool = True
    tuned: bool = False
    cache: CacheContent | None = None
    cache_set: CacheSetUuid | None = None
    detaching: bool = False
    sb_set: CacheSetUuid | None = None
    sb_dirty: bool = False
    stale: bool = False  # it was started by force without its dirty cache
    passed: CacheSetUuid | None = None  # the set that the superblock names, where writes have gone past it
    stale_links: int = 0  # how often such a set was put in front again: reads show what was there before
    stale_reads: int = 0  # reads of applications that returned less than was acknowledged
    stale_copies: int = 0  # older blocks that the cache keeps, because a write went past it unseen
    bared_blocks: int = 0  # for the time of a bypassing write their newest version was nowhere
    is_forgiven: bool = False  # somebody else's hand made writes bypass dirty data, or took it off
    filling: int | None = None  # the block that a read in flight will put into the cache
    absorbed_bytes: int = 0
    overflow_bytes: int = 0
    bypassed_bytes: int = 0
    flushed_bytes: int = 0
    flushing_block: int | None = None
    absorbing: bool = False  # the write in flight will be dirty

    @property
    def dirty_bytes(self) -> int:
        return len(self.cache.dirty) * self.block_bytes if self.cache else 0

    @property
    def state(self) -> CacheState:
        """As sysfs shows it: "no cache" as soon as a detach has written the superblock, link or not."""
        if self.sb_set is None:
            return CacheState.INCONSISTENT if self.stale else CacheState.NO_CACHE
        return CacheState.DIRTY if self.sb_dirty else CacheState.CLEAN

    @property
    def detach_written(self) -> bool:
        """True once a detach flushed everything and only waits for an instant without I/O."""
        return self.detaching and self.sb_set is None

    def link(self, cache_set: CacheSetUuid, cache: CacheContent) -> None:
        """Put a cache in front. bcache starts writeback by itself at every attach."""
        self.cache, self.cache_set = cache, cache_set
        if self.sb_set != cache_set:
            # A set that served before is attached as a new one: what it held is worth nothing.
            cache.dirty.clear()
            cache.clean.clear()
            self.sb_dirty = False
        elif self.passed == cache_set:
            self.stale_links += 1
        self.passed, self.sb_set, self.filling = None, cache_set, None
        self.writeback_running, self.detaching, self.stale, self.is_forgiven = True, False, False, False

    def unlink(self) -> None:
        """Take the cache off; the superblock is left as it is."""
        self.cache, self.cache_set, self.detaching, self.flushing_block = None, None, False, None
        self.is_forgiven = False

    def route(self, block: int) -> Route:
        """Decide for a write of `block` that starts now."""
        if self.cache is None:
            return Route.BYPASS
        if block == self.flushing_block and self.cache.can_store:
            return Route.ABSORB  # bch_keybuf_check_overlapping: the old version is on its way to the backing disk
        in_use = self.cache.in_use
        if self.detaching or self.mode in {CacheMode.NONE, CacheMode.WRITEAROUND} or in_use > CUTOFF_BYPASS:
            return Route.BYPASS
        if self.mode is CacheMode.WRITETHROUGH:
            return Route.THROUGH
        return Route.ABSORB if in_use <= self.cutoff and self.cache.can_store else Route.OVERFLOW

    def begin_bypass(self, block: int) -> None:
        """A bypassing write takes its block out of the index at once (`bch_data_insert`), and is itself under way.

        Until it has arrived a read, and a power cut, find what was on the backing disk before.
        """
        if self.filling == block:
            self.filling = None
        if self.cache is None or not self.cache.holds(block):
            return
        self.cache.drop(block)
        left = self.backing.version(block)
        if self.is_forgiven:
            self.backing.settle(block)
            self.acked[block] = left
            self.unsettled.discard(block)
        elif left != self.acked.get(block, 0):
            self.bared_blocks += 1

    def written(self, block: int, version: int, route: Route) -> None:
        """A write was acknowledged."""
        self.acked[block] = version
        cache = self.cache
        if route is Route.ABSORB and cache is not None:
            self._store(cache, block, version, dirty=True)
            self.sb_dirty = True
            self.unsettled.add(block)
            self.absorbed_bytes += self.block_bytes
            return
        self.backing.write(block, version, durable=True)
        self.unsettled.discard(block)
        self.bypassed_bytes += self.block_bytes
        if cache is None:
            self.passed = self.sb_set
            return
        if route is Route.BYPASS:
            self.stale_copies += cache.holds(block)  # it began before the cache was there, or a read has filled it
            return
        cache.drop(block)
        if cache.can_store:
            self._store(cache, block, version, dirty=False)
        if route is Route.OVERFLOW:
            self.overflow_bytes += self.block_bytes

    def _store(self, cache: CacheContent, block: int, version: int, *, dirty: bool) -> None:
        """What must go to make room was flushed long ago: the oldest buckets are reused first."""
        for evicted in cache.put(block, version, dirty=dirty):
            if self.backing.settle(evicted) == self.acked.get(evicted):
                self.unsettled.discard(evicted)

    def fsync(self) -> None:
        """A FLUSH reaches the backing disk."""
        for block, version in self.backing.volatile.items():
            if self.acked.get(block) == version:
                self.unsettled.discard(block)
        self.backing.fsync()

    def read(self, block: int) -> tuple[bool, int]:
        """A read begins: whether it is a hit, and the version that it returns."""
        is_hit, version = self._shown(block)
        if version < self.acked.get(block, 0) and not self.is_forgiven:
            self.stale_reads += 1
        self.filling = None if is_hit or self.cache is None else block
        return is_hit, version

    def _shown(self, block: int) -> tuple[bool, int]:
        if self.cache is not None:
            for place in (self.cache.dirty, self.cache.clean):
                if block in place:
                    return True, place[block]
        return False, self.backing.version(block)

    def missed(self, block: int, version: int) -> None:
        """A read came from the backing disk; bcache keeps a copy unless all requests bypass.

        Nor where a write of the block has begun since: the key that the read left in the index is gone.
        """
        is_wanted, self.filling = self.filling == block, None
        if not is_wanted or self.cache is None or self.detaching or self.mode is CacheMode.NONE:
            return
        if self.cache.can_store and self.cache.in_use <= CUTOFF_BYPASS and not self.cache.holds(block):
            self._store(self.cache, block, version, dirty=False)

    def set_background(self, mb_s: float | None) -> None:
        """The pace of background flushing: none (0), what is left over (None), or at most so many MB/s."""
        self.writeback_running = mb_s != 0
        self.writeback_mode, self.limit_mb_s = (WritebackMode.LIMITED, mb_s) if mb_s else (WritebackMode.IDLE, 0.0)

    @property
    def flush_limit_mb_s(self) -> float | None:
        """MB/s that the pace in force allows to background flushing; None: no limit."""
        if self.writeback_mode is WritebackMode.TRICKLE:
            return TRICKLE_BYTES_S / MB
        return self.limit_mb_s if self.writeback_mode is WritebackMode.LIMITED else None

    def may_flush(self) -> bool:
        """True when the writeback thread has leave to run, and sees work: its sign is the superblock, not the index.

        A detach ignores both.
        """
        if self.cache is None or not self.cache.dirty:
            return False
        return self.detaching or (self.writeback_running and self.sb_dirty)

    def flush_class(self) -> WritebackMode:
        """The pace in force now: a detach flushes at full speed, and so does a cache above its target."""
        if self.detaching:
            return WritebackMode.FULL
        if self.writeback_mode is WritebackMode.TRICKLE and self.cache is not None:
            over = len(self.cache.dirty) > TRICKLE_SHARE * self.cache.blocks
            return WritebackMode.FULL if over else WritebackMode.TRICKLE
        # Class IDLE means something only to a scheduler that sees the queue of the backing disk.
        return (
            WritebackMode.FULL if self.writeback_mode is WritebackMode.IDLE and not self.tuned else self.writeback_mode
        )

    def harm(self) -> str:
        """What applications could see that must not be, ever; empty where there was nothing."""
        counts = {
            "reads were older than what was acknowledged": self.stale_reads,
            "blocks in the cache are older than the backing disk's": self.stale_copies,
            "blocks were bypassed while only the cache had them": self.bared_blocks,
            "times a cache that had missed writes was put in front": self.stale_links,
        }
        return "; ".join(f"{count} {what}" for what, count in counts.items() if count)

    @property
    def superblock(self) -> Superblock:
        """As the kernel has it in memory."""
        return Superblock(self.sb_set, self.sb_dirty, self.stale, self.mode)

    def settle(self) -> None:
        """The writeback thread's look at an empty index: the superblock turns clean, or loses its set."""
        if self.cache is None or self.cache.dirty or self.flushing_block is not None:
            return
        self.sb_dirty = False
        if self.detaching and not self.absorbing:
            self.sb_set = None
