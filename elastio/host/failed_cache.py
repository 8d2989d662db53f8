"""A backing device whose cache died: bring it back to the kernel, or start it without its cache.

When a dirty cache disappears bcache stops the adaptive device at its last close, and then lets go of the backing device
too: it is in /sys no more, and nobody registers it again before a reboot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from elastio.core.model import CacheState
from elastio.errors import DeviceBusyError, HostError, NotOursError
from elastio.host import blockdev, superblock
from elastio.host.sysfs import Sysfs
from elastio.host.view import Backing, find_backing

REGISTER_S = 10.0
START_S = 10.0
Wait = Callable[[Callable[[], bool], float], bool]


def find_unregistered_backing(sysfs: Sysfs, uuid: str) -> str:
    """The one unused device that carries the backing superblock with this UUID, or an empty string.

    Two of them (a copy of the volume, attached beside it) prove nothing: none is named then.
    """
    found = [name for disk, name in _devices(sysfs) if _carries(sysfs, name, uuid)]
    if len(found) != 1:
        return ""
    disk = next(disk for disk, name in _devices(sysfs) if name == found[0])
    used = sysfs.names(f"{_directory(disk, found[0])}/holders") or blockdev.is_mounted_or_swap(sysfs, disk)
    return "" if used else found[0]


def find_dead_bcache_device(sysfs: Sysfs, uuid: str) -> str:
    """The adaptive device on the device with this UUID that is still in use after bcache let go of both; or nothing."""
    for disk, name in _devices(sysfs):
        held_by = [h for h in sysfs.names(f"{_directory(disk, name)}/holders") if h.startswith("bcache")]
        if held_by and _carries(sysfs, name, uuid):
            return held_by[0]
    return ""


def _devices(sysfs: Sysfs) -> Iterator[tuple[str, str]]:
    """Every disk and partition, each with its disk; bcache's own devices and memory disks cannot be one."""
    for disk in sysfs.names("sys/block"):
        if disk.startswith(("bcache", "ram", "zram", "sr")):
            continue
        yield disk, disk
        for part in sysfs.names(f"sys/block/{disk}"):
            if part.startswith(disk):
                yield disk, part


def _directory(disk: str, device: str) -> str:
    return f"sys/block/{disk}" if device == disk else f"sys/block/{disk}/{device}"


def _carries(sysfs: Sysfs, name: str, uuid: str) -> bool:
    written = superblock.read(sysfs.path(f"dev/{name}"))
    return written is not None and written.role is superblock.Role.BACKING and written.uuid == uuid


def register_backing(sysfs: Sysfs, uuid: str, wait: Wait) -> None:
    """Returns when the kernel shows the backing device. Raises NotOursError, DeviceBusyError or HostError."""
    if find_backing(sysfs, uuid) is not None:
        return
    name = find_unregistered_backing(sysfs, uuid)
    if not name:
        raise NotOursError(f"no single unused device carries the backing superblock {uuid}: nothing was registered")
    node, refused = sysfs.path(f"dev/{name}"), ""
    blockdev.require_exclusive(node)
    try:
        sysfs.write("sys/fs/bcache/register_quiet", str(node))
    except HostError as error:  # udev may have been faster; the look below decides
        refused = str(error)
    if not wait(lambda: find_backing(sysfs, uuid) is not None, REGISTER_S):
        raise HostError(f"{name} was not registered within {REGISTER_S:g} s. {refused}")


def start_without_cache(sysfs: Sysfs, backing: Backing, wait: Wait) -> None:
    """What only the missing cache holds is lost for good. Raises DeviceBusyError unless it waits for its cache."""
    directory = backing.directory
    state = sysfs.read(f"{directory}/state")
    if sysfs.link(f"{directory}/cache") is not None:
        raise DeviceBusyError(f"a cache set is attached to {backing.device}: it was not started by force")
    if sysfs.read(f"{directory}/running") == "1":
        return
    if state not in (CacheState.CLEAN, CacheState.DIRTY):
        raise HostError(f"{backing.device} is {state} and not waiting for a cache: it was not started by force")
    sysfs.write(f"{directory}/running", 1)
    if not wait(lambda: sysfs.read(f"{directory}/running") == "1", START_S):
        raise HostError(f"{backing.device} did not start within {START_S:g} s")
