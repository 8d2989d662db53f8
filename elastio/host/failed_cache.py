"""A backing device whose cache died: bring it back to the kernel, or start it without its cache.

When a dirty cache disappears bcache stops the adaptive device at its last close, and then lets go of the backing device
too: it is in /sys no more, and nobody registers it again before a reboot.
"""

from __future__ import annotations

from elastio.core.actions import Effect
from elastio.core.model import CacheState
from elastio.errors import DeviceBusyError, HostError, NotOursError
from elastio.host import blockdev, superblock
from elastio.host.sysfs import Sysfs, Wait
from elastio.host.view import Backing, find_backing

START_S = 10.0
# A backing device may be a device-mapper, loop or md device; a cache volume never is (see `blockdev.NO_DISKS`).
NO_BACKING = ("bcache", "ram", "zram", "sr")


def find_unregistered_backing(sysfs: Sysfs, uuid: str) -> str:
    """The one unused device that carries the backing superblock with this UUID, or an empty string.

    Two of them (a copy of the volume, attached beside it) prove nothing: none is named then.
    """
    found = [row for row in blockdev.directories(sysfs, NO_BACKING) if _carries(sysfs, row[1], uuid)]
    if len(found) != 1:
        return ""
    disk, name, directory = found[0]
    return "" if sysfs.names(f"{directory}/holders") or blockdev.is_mounted_or_swap(sysfs, disk) else name


def find_dead_bcache_device(sysfs: Sysfs, uuid: str) -> str:
    """The adaptive device on the device with this UUID that is still in use after bcache let go of both; or nothing."""
    for _, name, directory in blockdev.directories(sysfs, NO_BACKING):
        held_by = [h for h in sysfs.names(f"{directory}/holders") if h.startswith("bcache")]
        if held_by and _carries(sysfs, name, uuid):
            return held_by[0]
    return ""


def _carries(sysfs: Sysfs, name: str, uuid: str) -> bool:
    written = superblock.read(sysfs.path(f"dev/{name}"))
    return written is not None and written.role is superblock.Role.BACKING and written.uuid == uuid


def register_backing(sysfs: Sysfs, uuid: str, wait: Wait) -> Effect:
    """Returns when the kernel shows the backing device. Raises NotOursError, DeviceBusyError or HostError."""
    if find_backing(sysfs, uuid) is not None:
        return Effect.ALREADY
    name = find_unregistered_backing(sysfs, uuid)
    if not name:
        raise NotOursError(f"no single unused device carries the backing superblock {uuid}: nothing was registered")
    node = sysfs.path(f"dev/{name}")
    blockdev.require_exclusive(node)
    blockdev.register(sysfs, node, lambda: find_backing(sysfs, uuid) is not None, wait, blockdev.REGISTER_S)
    return Effect.CHANGED


def start_without_cache(sysfs: Sysfs, backing: Backing, wait: Wait) -> Effect:
    """What only the missing cache holds is lost for good. Raises DeviceBusyError unless it waits for its cache."""
    directory = backing.directory
    state = sysfs.read(f"{directory}/state")
    if sysfs.link(f"{directory}/cache") is not None:
        raise DeviceBusyError(f"a cache set is attached to {backing.device}: it was not started by force")
    if sysfs.read(f"{directory}/running") == "1":
        return Effect.ALREADY
    if state not in (CacheState.CLEAN, CacheState.DIRTY):
        text = f"{backing.device} is {state} and does not wait for a cache: it was not started"
        raise HostError(text, code="backing.state")
    sysfs.write(f"{directory}/running", 1)
    if not wait(lambda: sysfs.read(f"{directory}/running") == "1", START_S):
        raise HostError(f"{backing.device} did not start within {START_S:g} s")
    return Effect.CHANGED
