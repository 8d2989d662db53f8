"""What is lost, or would be: blocks whose newest acknowledged version no longer exists."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from elastio.core.model import CacheSetUuid, Serial
from elastio.sim.bcache import Bcache
from elastio.sim.block_versions import BackingContent, CacheContent
from elastio.sim.disk import SimDisk, Superblock


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
        bcache.passed, bcache.running = None, self.superblock.cache_set is None

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
