"""What is lost, or would be: blocks whose newest acknowledged version is nowhere any more."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from elastio.core.model import CacheSetUuid, Serial
from elastio.sim.bcache import Bcache
from elastio.sim.block_versions import BackingContent, CacheContent
from elastio.sim.disk import SimDisk
from elastio.sim.superblock import Superblock


@dataclass(frozen=True, slots=True)
class BackingDisk:
    """A backing disk, and what applications were told of it."""

    serial: Serial | None
    content: BackingContent
    acked: dict[int, int]
    unsettled: set[int]
    superblock: Superblock

    @classmethod
    def of(cls, bcache: Bcache, serial: Serial | None) -> BackingDisk:
        """The one that is there, as its kernel knows it."""
        return cls(serial, bcache.backing, bcache.acked, bcache.unsettled, bcache.superblock)

    def older_copy(self, serial: Serial | None) -> BackingDisk:
        """One that was restored from a snapshot of what had reached the disk: its superblock names no cache."""
        content = BackingContent()
        content.durable = dict(self.content.durable)
        return BackingDisk(serial, content, dict(content.durable), set(), Superblock(mode=self.superblock.mode))

    def put_into(self, bcache: Bcache) -> None:
        """It is the device's disk from now on."""
        bcache.backing, bcache.acked, bcache.unsettled = self.content, self.acked, self.unsettled
        bcache.sb_set, bcache.sb_dirty, bcache.stale, bcache.mode = self.superblock
        bcache.passed, bcache.running = None, self.superblock.cache_set is None

    def lost(self, cached: CacheContent | None, *, power_cut: bool = False) -> frozenset[int]:
        """`cached`: what is left of the set that its superblock names. `power_cut`: what would be after one as well."""
        shown = {} if power_cut else self.content.volatile
        dirty, clean = (cached.dirty, cached.clean) if cached else ({}, {})
        gone = self.unsettled
        for place in (dirty, clean, shown, self.content.durable):
            gone = {block for block in gone if place.get(block) != self.acked[block]}
        return frozenset(gone)


def content_of(cache_set: CacheSetUuid | None, disks: Iterable[SimDisk], without: Serial | None) -> CacheContent | None:
    """What is on the disk of this set, if that still exists anywhere."""
    if cache_set is None:
        return None
    return next((d.content for d in disks if d.superblock == cache_set and d.serial != without), None)
