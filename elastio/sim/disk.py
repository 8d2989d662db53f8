"""A disk that can be plugged into the simulated machine, what it has moved, and bcache's superblock on it.

The content of a disk survives unplugging.

The superblock of the backing disk: what the kernel holds in memory, and which version a power cut leaves.

bcache waits for the write that names a new cache set and for the one that says "no cache". It does not wait for those
that say dirty or clean, nor for a change of the mode, and it sends no flush after any of them (`bch_write_bdev_super`).
After a power cut a superblock may therefore say clean over a dirty index. Of 71 power cuts of real kernels while dirty,
15 left such a superblock, among them all eight right after an attach.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from elastio.core.model import CacheMode, CacheSetUuid, Serial
from elastio.errors import DeviceBusyError, NotOursError
from elastio.sim.block_versions import CacheContent


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
