"""One look at the kernel: everything the core wants to know about bcache and our disks. Read-only.

Nearly every file here takes bcache's global lock without a way to interrupt it: call this only where a hang can be
abandoned (a child process), never in the loop.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from elastio.errors import HostError
from elastio.host import blockdev, overflow, superblock, throttle, tuning
from elastio.host.sysfs import Sysfs, parse_size
from elastio.model import BackingView, CacheMode, CacheSetUuid, CacheState, DiskView, HostView, Serial

SETS = "sys/fs/bcache"
# A view is put together from several files; when the kernel changes in between, it is read again.
ATTEMPTS = 5
NO_SET = str(UUID(int=0))


@dataclass(frozen=True, slots=True)
class Backing:
    """Where the backing device lives in /sys. `disk` owns the queue; `adaptive` is bcacheN once it runs."""

    directory: str  # .../bcache, without a leading slash
    disk: str
    device: str  # the disk or its partition
    adaptive: str | None
    nodes: Path  # the directory of device nodes

    @property
    def node(self) -> Path:
        return self.nodes / self.device

    @property
    def adaptive_node(self) -> Path | None:
        return self.nodes / self.adaptive if self.adaptive else None


def find_backing(sysfs: Sysfs, uuid: str) -> Backing | None:
    """The registered backing device with this UUID, or None."""
    for disk in sysfs.names("sys/block"):
        parts = [p for p in sysfs.names(f"sys/block/{disk}") if p.startswith(disk)]
        for device, directory in [(disk, f"sys/block/{disk}/bcache")] + [
            (part, f"sys/block/{disk}/{part}/bcache") for part in parts
        ]:
            if disk.startswith("bcache"):
                continue
            if sysfs.read_or(f"{directory}/backing_dev_uuid", "") == uuid:
                return Backing(directory, disk, device, sysfs.link(f"{directory}/dev"), sysfs.path("dev"))
    return None


def look(sysfs: Sysfs, uuid: str, serials: tuple[Serial, ...], *, now: float, boot_id: str) -> HostView:
    """The backing device and those disks that are asked for or are its cache."""
    sets = tuple(CacheSetUuid(n) for n in sysfs.names(SETS) if len(n) == 36)
    backing = find_backing(sysfs, uuid)
    view = None if backing is None else _backing_view(sysfs, backing)
    wanted = view.cache_set if view else None
    return HostView(now, boot_id, view, _disks(sysfs, serials, wanted), sets)


def _backing_view(sysfs: Sysfs, backing: Backing) -> BackingView:
    problem = "its state keeps changing"
    for _ in range(ATTEMPTS):
        try:
            before = _identity(sysfs, backing)
            view = _read_backing(sysfs, backing)
            if before == _identity(sysfs, backing) == (view.state.value, view.cache_set):
                return view
        except (HostError, ValueError) as error:  # files of a set that leaves are gone before its link is
            problem = str(error)
    raise HostError(f"bcache does not show {backing.device}: {problem}")


def _identity(sysfs: Sysfs, backing: Backing) -> tuple[str, str | None]:
    return sysfs.read(f"{backing.directory}/state"), sysfs.link(f"{backing.directory}/cache")


def _read_backing(sysfs: Sysfs, backing: Backing) -> BackingView:
    directory = backing.directory
    cache_set = sysfs.link(f"{directory}/cache")
    part = "" if backing.device == backing.disk else f"/{backing.device}"
    state, mode = sysfs.read(f"{directory}/state"), sysfs.shown(f"{directory}/cache_mode")
    available = sysfs.read_or(f"{SETS}/{cache_set}/cache_available_percent", "") if cache_set else ""
    full_speed, limit = tuning.read_flush(sysfs, directory)
    cutoff = sysfs.read_or(f"{SETS}/{cache_set}/internal/cutoff_writeback", "") if cache_set else ""
    return BackingView(
        running=sysfs.read(f"{directory}/running") == "1",
        state=CacheState(state),
        cache_mode=CacheMode(mode),
        cache_set=CacheSetUuid(cache_set) if cache_set else None,
        dirty_bytes=parse_size(sysfs.read(f"{directory}/dirty_data")),
        writeback_running=sysfs.read(f"{directory}/writeback_running") == "1",
        tuned=tuning.is_tuned(sysfs, directory, backing.disk, cache_set),
        size_bytes=int(sysfs.read(f"sys/block/{backing.disk}{part}/size")) * blockdev.SECTOR,
        flush_full_speed=full_speed,
        flush_limit_mb_s=limit,
        write_limit_mb_s=_write_limit_mb_s(sysfs, backing),
        available_percent=int(available) if available else None,
        cutoff_percent=int(cutoff) if cutoff else None,
        adaptive_name=backing.adaptive or "",
        disk_name=backing.disk,
        disk_serial=blockdev.serial_of(sysfs, backing.disk),
        overflow_bytes=overflow.read(sysfs),
        named_set=None if cache_set or state == CacheState.NO_CACHE else _named_set(backing),
    )


def _named_set(backing: Backing) -> CacheSetUuid | None:
    """sysfs shows it only while the set is attached."""
    written = superblock.read(backing.node)
    if written is None or written.role is not superblock.Role.BACKING or written.set_uuid == NO_SET:
        return None
    return CacheSetUuid(written.set_uuid)


def _write_limit_mb_s(sysfs: Sysfs, backing: Backing) -> float | None:
    number = sysfs.read_or(f"sys/block/{backing.adaptive}/dev", "") if backing.adaptive else ""
    return throttle.write_limit_mb_s(sysfs, number) if number else None


def _disks(sysfs: Sysfs, serials: tuple[Serial, ...], attached: str | None) -> tuple[DiskView, ...]:
    found = []
    for disk in blockdev.disks(sysfs):
        cache_set = sysfs.link(f"sys/block/{disk.name}/bcache/set")
        asked = next((s for s in serials if blockdev.is_same_serial(disk.serial, s)), None)
        if asked is None and (cache_set is None or cache_set != attached):
            continue
        written = superblock.read(disk.node)
        on_disk = written.set_uuid if written and written.role is superblock.Role.CACHE else None
        held = bool(blockdev.holders(sysfs, disk.name)) or blockdev.is_mounted_or_swap(sysfs, disk.name)
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
