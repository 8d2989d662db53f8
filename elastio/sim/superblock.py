"""The backing disk's superblock: what the kernel holds in memory, and which of its versions a power cut finds.

bcache waits for the write that names a new cache set and for the one that says "no cache". It does not wait for those
that say dirty or clean, nor for a change of the mode, and sends no flush after any of them (`bch_write_bdev_super`).
So after a power cut a superblock may say clean over a dirty index: of 71 power cuts while dirty, on real kernels, 15
left one, among them all eight right after an attach.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from elastio.core.model import CacheMode, CacheSetUuid

# A version is on the disk so many seconds after it was asked for, drawn between them.
LATE_S = (0.5, 10.0)


class Superblock(NamedTuple):
    """`cache_set` None: no cache, or one that was given up by force (`is_stale`)."""

    cache_set: CacheSetUuid | None = None
    is_dirty: bool = False
    is_stale: bool = False
    mode: CacheMode = CacheMode.WRITETHROUGH


class SuperblockOnDisk:
    """The versions on their way. Times are `SimClock.elapsed`."""

    def __init__(self, seed: int) -> None:
        self._random = Random(f"superblock {seed}")
        self._durable = Superblock()
        self.newest = self._durable
        self._late: list[tuple[float, Superblock]] = []

    def note(self, now: float, memory: Superblock) -> None:
        """The kernel has `memory` now. A name that is new was waited for; everything else is under way from now on."""
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
        """The disk's write cache is flushed, and what was under way has reached it."""
        self._durable = self.newest
        self._late.clear()

    def put(self, superblock: Superblock) -> None:
        """Another disk is there, with this superblock."""
        self.newest = superblock
        self.flush()

    def found(self, now: float) -> Superblock:
        """What a power cut leaves; what was under way is gone."""
        for at, superblock in self._late:
            if at <= now:
                self._durable = superblock
        self.newest = self._durable
        self._late.clear()
        return self._durable

    @property
    def superblock_set(self) -> CacheSetUuid | None:
        """The set that the device would wait for after a power cut."""
        return self._durable.cache_set
