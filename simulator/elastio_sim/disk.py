"""A disk that can be plugged into the simulated machine, its blocks, what it has moved, and its superblock of bcache.

The content of a disk survives unplugging.

The superblock of the backing disk: what the kernel holds in memory, and which version a power cut leaves.

bcache waits for the write that names a new cache set and for the one that says "no cache". It does not wait for those
that say dirty or clean, nor for a change of the mode, and it sends no flush after any of them (`bch_write_bdev_super`).
After a power cut a superblock may therefore say clean over a dirty index. Of 71 power cuts of real kernels while dirty,
15 left such a superblock, among them all eight right after an attach.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from elastio.core.model import CacheMode, CacheSetUuid, Serial
from elastio.errors import DeviceBusyError, NotOursError

# Share of a cache device that bcache uses for its journal, index and reserves.
METADATA_SHARE = 0.01
# bcache collects garbage after writing this share of the cache (sectors_to_gc, nbuckets / 16).
GC_SHARE = 1 / 16
# Above this share of buckets in use bcache bypasses the cache (CUTOFF_CACHE_ADD).
CUTOFF_BYPASS = 0.95


class BackingContent:
    """The coarse blocks of the backing disk: what it returns, and what would survive a power cut.

    Which version of each block is stored, so that a lost write can be seen: a number that grows with every write.

    bcache sends no FLUSH after writeback, so flushed blocks stay volatile until an fsync. Writes that applications make
    directly to the backing disk count as durable at once: the applications of the model sync.
    """

    def __init__(self) -> None:
        self.durable: dict[int, int] = {}
        self.volatile: dict[int, int] = {}

    def version(self, block: int) -> int:
        """The version a read would return; 0 for a block never written."""
        return self.volatile.get(block, self.durable.get(block, 0))

    def write(self, block: int, version: int, *, durable: bool) -> None:
        """Store `version` unless the disk already holds a newer one."""
        if version < self.version(block):
            return
        if durable:
            self.volatile.pop(block, None)
            self.durable[block] = version
        else:
            self.volatile[block] = version

    def fsync(self) -> None:
        """Make everything durable."""
        self.durable.update(self.volatile)
        self.volatile.clear()

    def settle(self, block: int) -> int | None:
        """The disk has written this block back by itself by now. Returns its version if it was volatile."""
        version = self.volatile.pop(block, None)
        if version is not None:
            self.durable[block] = version
        return version

    def power_cut(self, kept: Container[int]) -> None:
        """Forget volatile blocks, except those in `kept`."""
        self.volatile = {b: v for b, v in self.volatile.items() if b in kept}


class CacheContent:
    """The blocks of one cache set, and its buckets in use as bcache counts them.

    In use is what was dirty at the last garbage collection, plus everything allocated since, even if it is clean,
    overwritten or flushed by now. A cache that was just flushed therefore looks full until the next collection.
    """

    def __init__(self, size_bytes: int, block_bytes: int) -> None:
        self.blocks = max(1, size_bytes // block_bytes)
        self.dirty: dict[int, int] = {}
        self.clean: dict[int, int] = {}
        self._usable = max(1, int(self.blocks * (1 - METADATA_SHARE)))
        self._reserved = self.blocks - self._usable
        self._marked = 0
        self._allocated = 0

    @property
    def in_use(self) -> float:
        """Share of buckets that cannot be allocated now, 0..1."""
        return min(1.0, (self._reserved + self._marked + self._allocated) / self.blocks)

    @property
    def can_store(self) -> bool:
        """False if every block is dirty: nothing can be evicted."""
        return len(self.dirty) < self._usable

    def holds(self, block: int) -> bool:
        """True if a read of `block` is a hit."""
        return block in self.dirty or block in self.clean

    def put(self, block: int, version: int, *, dirty: bool) -> tuple[int, ...]:
        """Store a block. Returns the clean blocks that were evicted to make room, oldest first."""
        self.drop(block)
        evicted = []
        while self.clean and len(self.dirty) + len(self.clean) >= self._usable:
            evicted.append(next(iter(self.clean)))
            del self.clean[evicted[-1]]
        (self.dirty if dirty else self.clean)[block] = version
        self._allocated += 1
        if self._allocated >= self.blocks * GC_SHARE or self.in_use >= CUTOFF_BYPASS:
            self.collect()
        return tuple(evicted)

    def flushed(self, block: int, version: int) -> bool:
        """Mark `version` of a block clean; False if it was overwritten or dropped meanwhile."""
        if self.dirty.get(block) != version:
            return False
        self.clean[block] = self.dirty.pop(block)
        return True

    def drop(self, block: int) -> None:
        """Invalidate a block."""
        self.dirty.pop(block, None)
        self.clean.pop(block, None)

    def collect(self) -> None:
        """Garbage collection: only dirty blocks stay in use."""
        self._marked = len(self.dirty)
        self._allocated = 0


@dataclass(slots=True)
class Traffic:
    """Cumulative bytes of one block device."""

    read: int = 0
    written: int = 0


@dataclass(slots=True)
class Traffics:
    """Cumulative bytes of the three devices, as /proc/diskstats counts them."""

    adaptive: Traffic = field(default_factory=Traffic)
    backing: Traffic = field(default_factory=Traffic)
    cache: Traffic = field(default_factory=Traffic)


# Seconds until a version is durable, drawn between these bounds.
LATE_S = (0.5, 10.0)


class Superblock(NamedTuple):
    """`cache_set` None: no cache. `is_stale`: the device was started by force without it."""

    cache_set: CacheSetUuid | None = None
    is_dirty: bool = False
    is_stale: bool = False
    mode: CacheMode = CacheMode.WRITETHROUGH

    @property
    def needed_set(self) -> CacheSetUuid | None:
        """The set without which the device does not start, and whose content is its own."""
        return None if self.is_stale else self.cache_set


class SuperblockOnDisk:
    """The durable version, and those on their way. Times are `SimClock.elapsed`."""

    def __init__(self, seed: int) -> None:
        self._random = Random(f"superblock {seed}")
        self._durable = Superblock()
        self.newest = self._durable
        self._late: list[tuple[float, Superblock]] = []

    def note(self, now: float, memory: Superblock) -> None:
        """The kernel holds `memory` now. The write of a new set is durable; every other one is under way."""
        if memory is self.newest or memory == self.newest:
            return
        names_another = memory.cache_set is not None and memory.cache_set != self.newest.cache_set
        self.newest = memory
        if names_another:
            self.flush()
            return
        due = now + self._random.uniform(*LATE_S)
        self._late.append((max([due, *(at for at, _ in self._late)]), memory))

    def flush(self) -> None:
        """The write cache of the disk is flushed: every version has reached the disk."""
        self._durable = self.newest
        self._late.clear()

    def put(self, superblock: Superblock) -> None:
        """Another disk is plugged, with this superblock."""
        self.newest = superblock
        self.flush()

    def found(self, now: float) -> Superblock:
        """What a power cut leaves; versions under way are lost."""
        for at, superblock in self._late:
            if at <= now:
                self._durable = superblock
        self.newest = self._durable
        self._late.clear()
        return self._durable

    @property
    def superblock_set(self) -> CacheSetUuid | None:
        """The set that the device would wait for after a power cut."""
        return self._durable.needed_set


@dataclass(slots=True)
class SimDisk:
    """`signature`: what somebody else wrote on it ("ext4"). `holder`: who else uses it ("mount")."""

    serial: Serial
    size_bytes: int
    mb_s: float
    signature: str | None = None
    holder: str | None = None
    name: str = ""
    superblock: CacheSetUuid | None = None
    content: CacheContent | None = None
    registered: bool = False

    def wipe(self) -> None:
        """Erase superblock and content."""
        self.superblock, self.content, self.registered = None, None, False

    def check_free(self, size_bytes: int) -> None:
        """Raises NotOursError or DeviceBusyError unless it may be written to as a cache of `size_bytes`."""
        if self.size_bytes != size_bytes:
            text = f"disk {self.name} has {self.size_bytes} bytes, {size_bytes} were bought: left alone"
            raise NotOursError(text, code="disk.size")
        if self.signature is not None:
            raise NotOursError(f"disk {self.name} carries {self.signature}: left alone", code="disk.signature")
        if self.holder is not None:
            raise DeviceBusyError(f"disk {self.name} is in use by {self.holder}", code="disk.held")
