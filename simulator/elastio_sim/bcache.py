"""The rules of bcache for one backing device: where a write goes, what a flush leaves, what a detach means.

Theory of operation. Facts come from the kernel's drivers/md/bcache of 6.1 and 6.12. Bandwidth is not modelled here:
`flows` moves the bytes, `kernel` lets time pass.

The superblock of the backing device decides what it depends on. It names at most one cache set (`sb_set`) and says
whether that set holds dirty data (`sb_dirty`). Without a set the state is "no cache" and the device runs alone. With
one it is "clean" or "dirty", and after a boot the device does not start until that set is back, or root starts it by
force: then the state is "inconsistent" and what only the cache held is lost.

A write takes one of four routes, chosen when it begins:

- ABSORB: to the cache, as dirty data. Mode writeback, and no more than `cutoff` (bch_cutoff_writeback) is in use.
- OVERFLOW: mode writeback, but more is in use. The write goes to both disks, at the speed of the slower one.
- THROUGH: mode writethrough, to both disks.
- BYPASS: to the backing disk alone. Modes none and writearound, a detach, or a cache that is nearly full.

A write over a block that is being flushed is absorbed in every mode. A bypassing write takes its block out of the index
when it begins. If the block was dirty, its newest version is nowhere until the write arrives; if a read fills the cache
in between, the cache keeps an older version. This is why the agent bypasses a cache only when it is clean.

Writeback copies dirty blocks to the backing disk. The thread looks for work only while the superblock says dirty. After
a power cut it may say clean over a dirty index: then nothing is flushed until a write is absorbed. When the index is
empty, the thread marks the superblock clean.

A detach cannot be undone. It stops absorbing, flushes everything at full speed and removes the set from the superblock;
from then on the state is "no cache". The link is removed later, at an instant without I/O in flight.

A cache set that is attached again after the device took writes without it holds older blocks. bcache notices this only
if the superblock named another set, or none, in between.

The model does not prevent any of these errors. It counts them (`harm`), so that a test sees what the agent did.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from elastio.core.model import CacheMode, CacheSetUuid, CacheState
from elastio.units import MB, MIB
from elastio_sim.disk import CUTOFF_BYPASS, BackingContent, CacheContent, Superblock


class Route(Enum):
    """Where a write goes."""

    ABSORB = "absorb"  # to the cache, dirty
    OVERFLOW = "overflow"  # writeback mode, but too much is in use: to both disks
    THROUGH = "through"  # writethrough mode: to both disks
    BYPASS = "bypass"  # to the backing disk only; its key in the index is removed when it begins


class WritebackMode(Enum):
    """How fast dirty blocks are written back."""

    TRICKLE = "trickle"  # the kernel's defaults: 4 KiB/s until a tenth of the cache is dirty
    LIMITED = "limited"  # at most `limit_mb_s`
    IDLE = "idle"  # writeback_percent=0: whatever applications leave over on the backing disk
    FULL = "full"  # flushing: as much bandwidth as applications get


TRICKLE_SHARE = 0.10  # writeback_percent's default
TRICKLE_BYTES_S = 4096


@dataclass(slots=True)
class Bcache:
    """The state of one backing device in the kernel; `sb_*` are the fields of its superblock."""

    cutoff: float
    block_bytes: int = MIB
    backing: BackingContent = field(default_factory=BackingContent)
    acked: dict[int, int] = field(default_factory=dict)
    unsettled: set[int] = field(default_factory=set)  # blocks whose newest version is not durable on the backing disk
    running: bool = True
    mode: CacheMode = CacheMode.WRITETHROUGH
    writeback_mode: WritebackMode = WritebackMode.TRICKLE
    limit_mb_s: float = 0.0  # of WritebackMode.LIMITED
    write_limit_mb_s: float | None = None  # for writes of applications, enforced above bcache
    writeback_running: bool = True
    tuned: bool = False
    cache: CacheContent | None = None
    cache_set: CacheSetUuid | None = None
    detaching: bool = False
    sb_set: CacheSetUuid | None = None
    sb_dirty: bool = False
    stale: bool = False  # started by force without the set that the superblock goes on naming: its content is void
    passed: CacheSetUuid | None = None  # the set that the superblock names, if writes have bypassed it
    stale_links: int = 0  # how often such a set was attached again: reads return older data
    stale_reads: int = 0  # reads of applications that returned less than was acknowledged
    stale_copies: int = 0  # older blocks in the cache, because it did not see a later write
    bared_blocks: int = 0  # blocks whose newest version was nowhere during a bypassing write
    is_forgiven: bool = False  # an operator, not the agent, made writes bypass dirty data or removed it
    filling: int | None = None  # the block that a read in flight will add to the cache
    absorbed_bytes: int = 0
    overflow_bytes: int = 0
    bypassed_bytes: int = 0
    flushing_block: int | None = None
    absorbing: bool = False  # the write in flight will be dirty

    @property
    def dirty_bytes(self) -> int:
        return len(self.cache.dirty) * self.block_bytes if self.cache else 0

    @property
    def state(self) -> CacheState:
        """As sysfs shows it: "no cache" once a detach has written the superblock, even if the link is still there."""
        if self.stale:
            return CacheState.INCONSISTENT
        if self.sb_set is None:
            return CacheState.NO_CACHE
        return CacheState.DIRTY if self.sb_dirty else CacheState.CLEAN

    @property
    def detach_written(self) -> bool:
        """True once a detach has flushed everything and waits only for an instant without I/O."""
        return self.detaching and self.sb_set is None

    def link(self, cache_set: CacheSetUuid, cache: CacheContent) -> None:
        """Attach a cache. bcache starts writeback by itself at every attach."""
        self.cache, self.cache_set = cache, cache_set
        if self.sb_set != cache_set or self.stale:
            # A set that was detached, or started without, is attached as a new one: its content is dropped.
            cache.dirty.clear()
            cache.clean.clear()
            self.sb_dirty = False
        elif self.passed == cache_set:
            self.stale_links += 1
        self.passed, self.sb_set, self.filling = None, cache_set, None
        self.writeback_running, self.detaching, self.stale, self.is_forgiven = True, False, False, False

    def unlink(self) -> None:
        """Remove the cache; the superblock is not changed."""
        self.cache, self.cache_set, self.detaching, self.flushing_block = None, None, False, None
        self.is_forgiven = False

    def route(self, block: int) -> Route:
        """The route of a write of `block` that begins now."""
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
        """A bypassing write removes its block from the index at once (`bch_data_insert`) and is still in flight itself.

        Until it arrives, a read and a power cut find the previous version of the backing disk.
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
            self.stale_copies += cache.holds(block)  # it began before the attach, or a read has filled the cache since
            return
        cache.drop(block)
        if cache.can_store:
            self._store(cache, block, version, dirty=False)
        if route is Route.OVERFLOW:
            self.overflow_bytes += self.block_bytes

    def _store(self, cache: CacheContent, block: int, version: int, *, dirty: bool) -> None:
        """Blocks evicted to make room were flushed long ago, because bcache reuses the oldest buckets first."""
        for evicted in cache.put(block, version, dirty=dirty):
            if self.backing.settle(evicted) == self.acked.get(evicted):
                self.unsettled.discard(evicted)

    def fsync(self) -> None:
        """The backing disk flushes its write cache."""
        for block, version in self.backing.volatile.items():
            if self.acked.get(block) == version:
                self.unsettled.discard(block)
        self.backing.fsync()

    def read(self, block: int) -> tuple[bool, int]:
        """A read begins. Returns whether it is a hit, and the version that it reads."""
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
        """A read came from the backing disk. bcache keeps a copy, unless all requests bypass the cache.

        It keeps none either if a write of the block has begun since: that removed the key of the read.
        """
        is_wanted, self.filling = self.filling == block, None
        if not is_wanted or self.cache is None or self.detaching or self.mode is CacheMode.NONE:
            return
        if self.cache.can_store and self.cache.in_use <= CUTOFF_BYPASS and not self.cache.holds(block):
            self._store(self.cache, block, version, dirty=False)

    def set_background(self, mb_s: float | None) -> None:
        """Set the writeback rate: none (0), what applications leave over (None), or a limit in MB/s."""
        self.writeback_running = mb_s != 0
        self.writeback_mode, self.limit_mb_s = (WritebackMode.LIMITED, mb_s) if mb_s else (WritebackMode.IDLE, 0.0)

    @property
    def flush_limit_mb_s(self) -> float | None:
        """The limit of background flushing in MB/s; None: no limit."""
        if self.writeback_mode is WritebackMode.TRICKLE:
            return TRICKLE_BYTES_S / MB
        return self.limit_mb_s if self.writeback_mode is WritebackMode.LIMITED else None

    def may_flush(self) -> bool:
        """True if the writeback thread may run and sees work. It looks at the superblock, not at the index.

        A detach needs neither.
        """
        if self.cache is None or not self.cache.dirty:
            return False
        return self.detaching or (self.writeback_running and self.sb_dirty)

    def flush_class(self) -> WritebackMode:
        """The mode in force: a detach flushes at full speed, and so does a cache above its dirty target."""
        if self.detaching:
            return WritebackMode.FULL
        if self.writeback_mode is WritebackMode.TRICKLE and self.cache is not None:
            over = len(self.cache.dirty) > TRICKLE_SHARE * self.cache.blocks
            return WritebackMode.FULL if over else WritebackMode.TRICKLE
        # I/O class idle has an effect only with a scheduler that sees the queue of the backing disk.
        ignores_class = self.writeback_mode is WritebackMode.IDLE and not self.tuned
        return WritebackMode.FULL if ignores_class else self.writeback_mode

    def harm(self) -> str:
        """Violations of what applications may rely on, as text; empty if there was none."""
        counts = {
            "reads returned less than was acknowledged": self.stale_reads,
            "blocks of the cache are older than those of the backing disk": self.stale_copies,
            "blocks were bypassed while only the cache held them": self.bared_blocks,
            "times a cache that had missed writes was attached": self.stale_links,
        }
        return "; ".join(f"{count} {what}" for what, count in counts.items() if count)

    @property
    def superblock(self) -> Superblock:
        """The superblock as the kernel holds it in memory."""
        return Superblock(self.sb_set, self.sb_dirty, self.stale, self.mode)

    def settle(self) -> None:
        """The writeback thread finds an empty index: it marks the superblock clean, or completes a detach."""
        if self.cache is None or self.cache.dirty or self.flushing_block is not None:
            return
        self.sb_dirty = False
        if self.detaching and not self.absorbing:
            self.sb_set = None
