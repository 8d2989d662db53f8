"""A backing device whose cache failed: register it again, or start it without its cache.

Theory of operation. When the disk of a dirty cache disappears, bcache stops the adaptive device at its last close, and
then unregisters the backing device, too. It is no longer in /sys/block/*/bcache, and nothing registers it again before
a reboot. While a program still has the adaptive device open, it stays as a dead device with the backing device in use.

An unregistered device is recognized only by its superblock, as a snapshot or a copy of it would be. So it is registered
only if exactly one unused device carries the UUID. A device that waits for its cache is started without it only at an
operator's request, or where nothing can be lost: what only the cache holds is lost then.
"""

from __future__ import annotations

from elastio.core.actions import Effect
from elastio.core.model import CacheState
from elastio.errors import DeviceBusyError, HostError, NotOursError
from elastio.host import blockdev, composed, superblock
from elastio.host.sysfs import Sysfs, Wait
from elastio.host.usage import UseKind, uses
from elastio.host.view import Backing, find_backing

START_S = 10.0


def find_unregistered_backing(sysfs: Sysfs, uuid: str) -> str:
    """The one unused device that carries the backing superblock with this UUID, or an empty string.

    Also empty where several carry it, whatever they are: one of them may be a copy of the volume.
    """
    found = [row for row in blockdev.directories(sysfs, blockdev.NO_BACKING) if _carries(sysfs, row[1], uuid)]
    if len(found) != 1:
        return ""
    _, name, _ = found[0]
    if blockdev.why_no_backing(name) and not composed.is_composed(sysfs, name):
        return ""
    is_free = all(use.kind is UseKind.PARTITION for use in uses(sysfs, name))
    return name if is_free else ""


def find_dead_bcache_device(sysfs: Sysfs, uuid: str) -> str:
    """The stopped adaptive device that still holds the device with this UUID, or an empty string."""
    for _, name, directory in blockdev.directories(sysfs, blockdev.NO_BACKING):
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
        raise NotOursError(f"no single unused device has the backing superblock {uuid}: nothing was registered")
    node = sysfs.path(f"dev/{name}")
    blockdev.require_exclusive(node)
    blockdev.register(sysfs, node, lambda: find_backing(sysfs, uuid) is not None, wait, blockdev.REGISTER_S)
    return Effect.CHANGED


def start_without_cache(sysfs: Sysfs, backing: Backing, wait: Wait) -> Effect:
    """What only the missing cache holds is lost. Raises DeviceBusyError or HostError unless the device waits for it."""
    directory = backing.directory
    state = sysfs.read(f"{directory}/state")
    if sysfs.link(f"{directory}/cache") is not None:
        text = f"a cache set is attached to {backing.device}: it was not started without it"
        raise DeviceBusyError(text, code="set.attached")
    if sysfs.read(f"{directory}/running") == "1":
        return Effect.ALREADY
    if state not in (CacheState.CLEAN, CacheState.DIRTY):
        text = f"{backing.device} is {state} and does not wait for a cache: it was not started"
        raise HostError(text, code="backing.state")
    sysfs.write(f"{directory}/running", 1)
    if not wait(lambda: sysfs.read(f"{directory}/running") == "1", START_S):
        raise HostError(f"{backing.device} did not start within {START_S:g} s")
    return Effect.CHANGED
