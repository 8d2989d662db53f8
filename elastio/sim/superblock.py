"""The superblock of the backing disk: what the kernel holds in memory, and which version a power cut leaves.

bcache waits for the write that names a new cache set and for the one that says "no cache". It does not wait for those
that say dirty or clean, nor for a change of the mode, and it sends no flush after any of them (`bch_write_bdev_super`).
After a power cut a superblock may therefore say clean over a dirty index. Of 71 power cuts of real kernels while dirty,
15 left such a superblock, among them all eight right after an attach.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from elastio.core.model import CacheMode, CacheSetUuid

# Seconds until a version is durable, drawn between these bounds.
LATE_S = (0.5, 10.0)


class Superblock(NamedTuple):
    """`cache_set` None: no cache, or the device was started by force without its cache (`is_stale`)."""

    cache_set: CacheSetUuid | None = None
    is_dirty: bool = False
    is_stale: bool = False
    mode: CacheMode = CacheMode.WRITETHROUGH


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
        return self._durable.cache_set
