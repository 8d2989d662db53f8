"""The disk that carries a cache set: what it carries, its registration with bcache, and the end of both."""

from __future__ import annotations

import uuid
from functools import partial

from elastio.core.actions import Effect
from elastio.core.model import CacheSetUuid
from elastio.errors import DeviceBusyError, HostError, NotOursError
from elastio.host import blockdev, kernel, superblock
from elastio.host.blockdev import Disk
from elastio.host.commands import Run
from elastio.host.sysfs import Sysfs, Wait
from elastio.host.view import SETS

UNREGISTER_S = 20.0


def registered_set(sysfs: Sysfs, disk: Disk) -> CacheSetUuid | None:
    """The cache set as which the kernel has registered the disk."""
    name = sysfs.link(f"sys/block/{disk.name}/bcache/set")
    return CacheSetUuid(name) if name else None


def register(sysfs: Sysfs, disk: Disk, cache_set: CacheSetUuid, wait: Wait, seconds: float) -> Effect:
    """Returns when the disk is registered as this set. Raises HostError after that time."""
    if registered_set(sysfs, disk) == cache_set:
        return Effect.ALREADY
    blockdev.register(sysfs, disk.node, lambda: registered_set(sysfs, disk) == cache_set, wait, seconds)
    return Effect.CHANGED


def make(sysfs: Sysfs, disk: Disk, cache_set: uuid.UUID, block_bytes: int) -> None:
    """Make it the disk of a new set, with buckets for which the kernel has the memory. Raises HostError.

    The caller has proven that the disk is the volume just bought and that nothing is on it.
    """
    bucket_bytes = kernel.affordable_bucket(sysfs, superblock.buckets_bytes(disk.size_bytes))
    sizes = {"size_bytes": disk.size_bytes, "block_bytes": block_bytes, "bucket_bytes": bucket_bytes}
    superblock.write_cache(disk.node, cache_set, partial(blockdev.require_same, sysfs, disk), **sizes)


def why_no_memory(sysfs: Sysfs) -> str:
    """Why no cache should be bought now, or an empty string: not even the smallest buckets could be registered."""
    has_memory = kernel.has_memory(sysfs, superblock.SMALLEST_BUCKET_BYTES, kernel.FREE_SUMS)
    return "" if has_memory else "the kernel has no contiguous memory for a cache: see `elastio doctor`"


def require_registrable(sysfs: Sysfs, disk: Disk, wanted: CacheSetUuid) -> None:
    """Raises HostError where the kernel would show another set than this one, or would die of it: see `kernel`."""
    written, registered = superblock.read(disk.node), registered_set(sysfs, disk)
    if written is not None and wanted not in (registered, written.set_uuid):
        text = f"disk {disk.name} carries cache set {written.set_uuid}, not {wanted}: it was not registered"
        raise HostError(text, code="disk.other_set")
    if written is not None and registered is None:
        kernel.affordable_bucket(sysfs, (written.bucket_size_bytes,))


def require_carries(sysfs: Sysfs, disk: Disk, wanted: CacheSetUuid | None) -> None:
    """Raises NotOursError unless the disk carries no cache set, or the wanted one; None: any."""
    written = superblock.read(disk.node)
    carried = registered_set(sysfs, disk) or (written.set_uuid if written else None)
    if carried is not None and wanted is not None and carried != wanted:
        text = f"disk {disk.name} carries cache set {carried}, not {wanted}: it was not touched"
        raise NotOursError(text, code="disk.other_set")


def require_detached(sysfs: Sysfs, cache_set: CacheSetUuid) -> None:
    """Raises DeviceBusyError while the cache set is attached to a backing device."""
    served = [n for n in sysfs.names(f"{SETS}/{cache_set}") if n.startswith("bdev")]
    if served:
        text = f"cache set {cache_set} is attached to {len(served)} backing device(s)"
        raise DeviceBusyError(text, code="set.attached")


def unregister(sysfs: Sysfs, disk: Disk, cache_set: CacheSetUuid, wait: Wait) -> None:
    """Returns when the kernel has released the disk. Raises HostError after UNREGISTER_S."""
    sysfs.write(f"{SETS}/{cache_set}/unregister", 1)

    def is_gone() -> bool:
        return not sysfs.exists(f"{SETS}/{cache_set}") and not sysfs.exists(f"sys/block/{disk.name}/bcache")

    if not wait(is_gone, UNREGISTER_S):
        text = f"cache set {cache_set} is still registered after {UNREGISTER_S:g} s"
        raise HostError(text, code="unregister.timeout")


def erase(sysfs: Sysfs, disk: Disk, run: Run) -> bool:
    """Whether the disk had a superblock of a cache, which is erased now. Raises HostError unless nothing else is on it.

    Where it had one no program is started: the volume costs money until this is done.
    """
    written = superblock.read(disk.node)
    if written is None or written.role is not superblock.Role.CACHE:
        blockdev.require_unused(sysfs, disk, size_bytes=disk.size_bytes, run=run)
        return False
    blockdev.require_free(sysfs, disk)
    superblock.erase(disk.node, partial(blockdev.require_same, sysfs, disk))
    if superblock.read(disk.node) is not None:
        raise HostError(f"the superblock on {disk.name} is still there after it was erased")
    return True
