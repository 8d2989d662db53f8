"""Which version of each coarse block is stored where, so that a lost write can be seen.

A version is a number that grows with every write. Time and bandwidth are not known here.
"""

from __future__ import annotations

from collections.abc import Container

# Share of a cache device that bcache uses for its journal, index and reserves.
METADATA_SHARE = 0.01
# bcache collects garbage after writing this share of the cache (sectors_to_gc, nbuckets / 16).
GC_SHARE = 1 / 16
# Above this share of buckets in use bcache bypasses the cache (CUTOFF_CACHE_ADD).
CUTOFF_BYPASS = 0.95


class BackingContent:
    """The blocks of the backing disk: what it returns, and what would survive a power cut.

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
