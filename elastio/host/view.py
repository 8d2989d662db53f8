"""A scan of the kernel: all that the core needs to know about bcache and our disks.

Read-only, but for one thing: an adopted volume that a dead process left suspended is resumed, because bcache's own
files may wait for it.

Theory of operation. The state is spread over some fifty files, and the kernel changes it while they are read. A view is
valid only if the device's state and its link to the cache set are the same before and after; otherwise all is read
again. What earlier scans have found is verified, not searched for again: a search reads the files of every disk.

Reading nearly every file of bcache takes its global lock, uninterruptibly. So scan only in a child process, which can
be abandoned when it hangs, never in the event loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from uuid import UUID

from elastio.core.model import BackingView, CacheMode, CacheSetUuid, CacheState, DiskView, HostView, Serial
from elastio.errors import HostError, NotOursError
from elastio.host import (
    blockdev,
    composed,
    partition_table,
    recompose,
    share_limits,
    superblock,
    throttle,
    tuning,
    usage,
)
from elastio.host.depth import SLOWEST_MB_S, Depths, Prompt
from elastio.host.sysfs import Sysfs, parse_size
from elastio.units import SECTOR

SETS = "sys/fs/bcache"
ATTEMPTS = 5
SEARCH_EVERY = 10
NO_SET = str(UUID(int=0))


@dataclass(frozen=True, slots=True)
class Backing:
    """Where the backing device lives in /sys. `disk` owns the queue; `adaptive` is bcacheN once it runs."""

    directory: str  # .../bcache, without a leading slash
    disk: str
    device: str  # the disk or its partition, or the composed device of an adopted volume
    adaptive: str | None
    nodes: Path  # the directory of device nodes

    @property
    def node(self) -> Path:
        return self.nodes / self.device

    @property
    def adaptive_node(self) -> Path | None:
        return self.nodes / self.adaptive if self.adaptive else None

    @property
    def why_not(self) -> str:
        """Why the agent does not use it; empty if it does."""
        return blockdev.why_no_backing(self.disk)


@dataclass(slots=True)
class Seen:
    """What earlier scans have found."""

    names: tuple[str, ...] = ()
    backing: Backing | None = None
    scans: int = 0
    depths: Depths = field(default_factory=lambda: Depths(SLOWEST_MB_S))
    may_be_limited: bool = True
    is_disk_awaited: bool = False
    released: dict[str, str] = field(default_factory=dict)

    def why_released(self, sysfs: Sysfs, disk: str) -> str:
        """Why this backing disk gets no cache. While its agent runs nobody releases it: one look is enough."""
        if disk in self.released:
            return self.released[disk]
        try:
            self.released = {disk: partition_table.why_no_cache(sysfs, disk)}
        except HostError as error:  # it is looked at again
            return str(error)
        return self.released[disk]


def find_backing(sysfs: Sysfs, uuid: str) -> Backing | None:
    """The registered backing device with this UUID, or None. Raises NotOursError when there are several.

    A volume restored from a snapshot has the same superblock as the original.
    """
    found = find_backings(sysfs, uuid)
    if len(found) > 1:
        names = ", ".join(b.device for b in found)
        text = f"several devices carry the backing UUID {uuid}: {names}; none was touched"
        raise NotOursError(text, code="backing.ambiguous")
    return found[0] if found else None


def find_backings(sysfs: Sysfs, uuid: str) -> tuple[Backing, ...]:
    """Every registered backing device with this UUID; none if there is a single one that the agent does not use.

    Of several, one on a virtual device counts as well: the other may be the copy.
    """
    found = tuple(backing for shown, backing in registered(sysfs) if shown == uuid)
    return () if len(found) == 1 and found[0].why_not else found


def registered(sysfs: Sysfs) -> Iterator[tuple[str, Backing]]:
    """Every registered backing device with its UUID, also on what the agent does not use."""
    for disk, device, directory in blockdev.directories(sysfs, blockdev.NO_BACKING):
        uuid = sysfs.read_or(f"{directory}/bcache/backing_dev_uuid", "")
        if uuid:
            adaptive = sysfs.link(f"{directory}/bcache/dev")
            below = composed.disk_below(sysfs, device) if composed.is_composed(sysfs, device) else None
            yield uuid, Backing(f"{directory}/bcache", below or disk, device, adaptive, sysfs.path("dev"))


def _find_again(sysfs: Sysfs, uuid: str, seen: Seen) -> tuple[Backing, ...]:
    """Like `find_backings`. A second device that adds no name to /sys/block is found SEARCH_EVERY scans later."""
    names, last = sysfs.names("sys/block"), seen.backing
    seen.scans += 1
    is_known = last is not None and names == seen.names and seen.scans % SEARCH_EVERY != 0
    if last is not None and is_known and sysfs.read_or(f"{last.directory}/backing_dev_uuid", "") == uuid:
        return (replace(last, adaptive=sysfs.link(f"{last.directory}/dev")),)
    found = find_backings(sysfs, uuid)
    seen.names, seen.backing = names, found[0] if len(found) == 1 else None
    return found


def scan(
    sysfs: Sysfs, uuid: str, serials: tuple[Serial, ...], *, now: float, boot_id: str, seen: Seen | None = None
) -> HostView:
    """The backing device, and those disks that are asked for or are its cache. Raises HostError."""
    with suppress(HostError):  # what a dead process left suspended; whoever still works on it has its lock
        recompose.mend_all(sysfs)
    seen = seen or Seen()
    seen.is_disk_awaited = bool(serials)
    found = _find_again(sysfs, uuid, seen)
    view = _backing_view(sysfs, found[0], seen, now) if len(found) == 1 else None
    wanted = view.cache_set if view else None
    duplicates = tuple(b.device for b in found) if len(found) > 1 else ()
    unsupported = seen.why_released(sysfs, view.disk_name) if view else ""
    disks = _disks(sysfs, serials, wanted)
    return HostView(now, boot_id, view, disks, duplicates=duplicates, unsupported=unsupported)


def _backing_view(sysfs: Sysfs, backing: Backing, seen: Seen, now: float) -> BackingView:
    problem = "its state keeps changing"
    for _ in range(ATTEMPTS):
        try:
            before = _identity(sysfs, backing)
            view = _read_backing(sysfs, backing, seen, now)
            if before == _identity(sysfs, backing) == (view.state.value, view.cache_set):
                return view
        except (HostError, ValueError) as error:  # a set's files are removed before its link
            problem = str(error)
    raise HostError(f"cannot read the state of {backing.device}: {problem}", code="backing.unstable")


def _identity(sysfs: Sysfs, backing: Backing) -> tuple[str, str | None]:
    return sysfs.read(f"{backing.directory}/state"), sysfs.link(f"{backing.directory}/cache")


def _read_backing(sysfs: Sysfs, backing: Backing, seen: Seen, now: float) -> BackingView:
    directory = backing.directory
    cache_set = sysfs.link(f"{directory}/cache")
    state, mode = sysfs.read(f"{directory}/state"), sysfs.shown(f"{directory}/cache_mode")
    available = sysfs.read_or(f"{SETS}/{cache_set}/cache_available_percent", "") if cache_set else ""
    full_speed, limit = tuning.read_flush(sysfs, directory)
    may_be_limited = full_speed or seen.may_be_limited or (seen.is_disk_awaited and not cache_set)
    shared = share_limits.in_force(sysfs)
    prompt = Prompt(shared.target_s, shared.capacity_mb_s) if shared and shared.target_s else None
    disk = tuning.cache_disk(sysfs, cache_set) if cache_set else None
    depth = seen.depths.change(sysfs, backing.disk, disk, now, prompt)
    cutoff = sysfs.read_or(f"{SETS}/{cache_set}/internal/cutoff_writeback", "") if cache_set else ""
    return BackingView(
        running=sysfs.read(f"{directory}/running") == "1",
        state=CacheState(state),
        cache_mode=CacheMode(mode),
        cache_set=CacheSetUuid(cache_set) if cache_set else None,
        dirty_bytes=parse_size(sysfs.read(f"{directory}/dirty_data")),
        writeback_running=sysfs.read(f"{directory}/writeback_running") == "1",
        tuned=tuning.is_tuned(sysfs, directory, backing.disk, cache_set),
        size_bytes=int(sysfs.read(f"{directory.removesuffix('/bcache')}/size")) * SECTOR,
        depth=depth,
        flush_full_speed=full_speed,
        flush_limit_mb_s=limit,
        write_limit_mb_s=_write_limit_mb_s(sysfs, backing, seen) if may_be_limited else None,
        available_percent=int(available) if available else None,
        cutoff_percent=int(cutoff) if cutoff else None,
        adaptive_name=backing.adaptive or "",
        disk_name=backing.disk,
        disk_serial=blockdev.serial_of(sysfs, backing.disk),
        overflow_bytes=tuning.written_through_bytes(sysfs),
        shared_mb_s=shared.capacity_mb_s if shared else None,
        superblock_set=None if cache_set or state == CacheState.NO_CACHE else _superblock_set(backing),
        has_tombstone=recompose.has_tombstone(sysfs, backing.device),
    )


def _superblock_set(backing: Backing) -> CacheSetUuid | None:
    """The set in the superblock: sysfs shows it only while the set is attached."""
    written = superblock.read(backing.node)
    if written is None or written.role is not superblock.Role.BACKING or written.set_uuid == NO_SET:
        return None
    return CacheSetUuid(written.set_uuid)


def _write_limit_mb_s(sysfs: Sysfs, backing: Backing, seen: Seen) -> float | None:
    """Only before an attach and in a flush at full speed one is set. Other scans need not read every cgroup, once the
    limit was seen gone.
    """
    limit = throttle.write_limit_mb_s(sysfs, backing.adaptive) if backing.adaptive else None
    seen.may_be_limited = limit is not None
    return limit


def _disks(sysfs: Sysfs, serials: tuple[Serial, ...], attached: str | None) -> tuple[DiskView, ...]:
    found = []
    for disk in blockdev.disks(sysfs):
        cache_set = sysfs.link(f"sys/block/{disk.name}/bcache/set")
        asked = next((s for s in serials if blockdev.is_same_serial(disk.serial, s)), None)
        if asked is None and (cache_set is None or cache_set != attached):
            continue
        # Do not read the disk of an attached set: the kernel knows its superblock, and applications wait for the read.
        on_disk = cache_set if cache_set is not None and cache_set == attached else _written_set(disk)
        held = usage.is_held(sysfs, disk.name) or bool(usage.uses(sysfs, disk.name))
        found.append(
            DiskView(
                name=disk.name,
                serial=asked or disk.serial,
                size_bytes=disk.size_bytes,
                cache_set=CacheSetUuid(cache_set) if cache_set else None,
                superblock=CacheSetUuid(on_disk) if on_disk else None,
                held=held,
            )
        )
    return tuple(found)


def _written_set(disk: blockdev.Disk) -> str | None:
    written = superblock.read(disk.node)
    return written.set_uuid if written and written.role is superblock.Role.CACHE else None
