"""The composed device of an adopted volume: made with device-mapper, registered with bcache, and taken apart.

udev does not register it (59-elastio-adopted.rules), so a device that was stopped is not registered again behind the
back of whoever takes it apart. Nothing here writes to the volume. Whoever changes a composed device, its head or its
volume has the one lock (`locked`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial

from elastio.core.model import CacheState
from elastio.errors import DeviceBusyError, HostError, NotOursError
from elastio.host import blockdev, heads, mapper, superblock
from elastio.host.commands import Run
from elastio.host.heads import Head
from elastio.host.locks import try_lock
from elastio.host.mapper import Linear
from elastio.host.superblock import bytes_of
from elastio.host.sysfs import Sysfs, Wait
from elastio.host.usage import described, in_use, uses
from elastio.units import MIB, SECTOR

# Also in 59-elastio-adopted.rules.
UUID_PREFIX = "ELASTIO-"
# Of one whose tombstone stays: who looks every second reads no disk.
KEEPING_PREFIX = f"{UUID_PREFIX}KEEPING-"
LOCK = "run/elastio/adopt.lock"
DMSETUP_S = 30.0
STOP_S = 20.0
NAMES_CACHE = "release.cache"
# States of a device that has a cache, or waits for it.
WITH_CACHE = (CacheState.CLEAN, CacheState.DIRTY)


def name_of(head: Head) -> str:
    """device-mapper's name of the composed device."""
    return f"elastio-{head.uuid}"


def mapped_uuid(head: Head) -> str:
    """device-mapper's UUID of the composed device."""
    return f"{KEEPING_PREFIX if head.keeps_tombstone else UUID_PREFIX}{head.uuid}"


def is_composed(sysfs: Sysfs, device: str) -> bool:
    """Whether a device of the kernel, such as `dm-0`, is the composed device of an adopted volume."""
    return sysfs.read_or(f"sys/block/{device}/dm/uuid", "").startswith(UUID_PREFIX)


def keeps_tombstone(sysfs: Sysfs, device: str) -> bool:
    """Whether the tombstone of the composed device `dm-N` stays until the release."""
    return sysfs.read_or(f"sys/block/{device}/dm/uuid", "").startswith(KEEPING_PREFIX)


def all_of(sysfs: Sysfs) -> tuple[str, ...]:
    """Every composed device, by the kernel's names."""
    return tuple(name for name in sysfs.names("sys/block") if name.startswith("dm-") and is_composed(sysfs, name))


def mapped_name(sysfs: Sysfs, device: str) -> str:
    """device-mapper's name of a device of the kernel. Raises HostError."""
    return sysfs.read(f"sys/block/{device}/dm/name")


def device_of(sysfs: Sysfs, name: str) -> str | None:
    """The kernel's name of the composed device with this name, or None."""
    return next((n for n in all_of(sysfs) if sysfs.read_or(f"sys/block/{n}/dm/name", "") == name), None)


def find(sysfs: Sysfs, head: Head) -> str | None:
    """The kernel's name of the composed device, or None."""
    return device_of(sysfs, name_of(head))


@dataclass(frozen=True, slots=True)
class Parts:
    """A composed device by device-mapper's name, the label of its head, and the two devices by the kernel's names."""

    name: str
    head: Head
    head_device: str
    head_number: str
    volume_device: str
    volume_number: str

    def table(self, *, has_tombstone: bool) -> tuple[Linear, ...]:
        return heads.table(self.head, self.head_number, self.volume_number, has_tombstone=has_tombstone)


def parts(sysfs: Sysfs, device: str) -> Parts:
    """What the composed device `dm-N` consists of. Raises HostError, or NotOursError if its head says otherwise."""
    name = mapped_name(sysfs, device)
    rows = mapper.table(sysfs, name)
    numbers = (rows[0].device, rows[-1].device) if rows else ("", "")
    head_device, volume_device = (node_of(sysfs, number) for number in numbers)
    first = rows[0].offset - heads.CONTENT_SECTOR if rows and numbers[0] == numbers[1] else 0
    head = heads.read(sysfs.path(f"dev/{head_device}"), first) if head_device else None
    if head is None:
        raise HostError(f"/dev/{device} shows no head of an adopted volume", code="head.missing")
    found = Parts(name, head, head_device, numbers[0], volume_device, numbers[1])
    if name != name_of(head) or rows not in (found.table(has_tombstone=False), found.table(has_tombstone=True)):
        text = f"/dev/{device} has another table than the head on /dev/{head_device} says: it was not touched"
        raise NotOursError(text, code="composed.other")
    return found


def node_of(sysfs: Sysfs, number: str) -> str:
    """The kernel's name of the device with this `major:minor`; empty if there is none."""
    return sysfs.link(f"sys/dev/block/{number}") or ""


def disk_below(sysfs: Sysfs, device: str) -> str | None:
    """The one disk of the volume below the composed device `dm-N`; None if there are several, or it is not known."""
    found = blockdev.disks_below(sysfs, volume_below(sysfs, device))
    return found[0] if len(found) == 1 else None


def volume_below(sysfs: Sysfs, device: str) -> str:
    """The volume below `dm-N`. Only root may ask for a table; for others it is the one that is large enough."""
    try:
        rows = mapper.table(sysfs, mapped_name(sysfs, device))
        return node_of(sysfs, rows[-1].device) if rows else ""
    except HostError:
        least = int(sysfs.read_or(f"sys/block/{device}/size", "0")) - heads.DATA_OFFSET_SECTORS
        below = sysfs.names(f"sys/block/{device}/slaves")
        large = [name for name in below if int(sysfs.read_or(f"sys/class/block/{name}/size", "0")) >= least]
        return large[0] if len(large) == 1 else ""


@contextmanager
def locked(sysfs: Sysfs, wait: Wait, seconds: float, name: str = LOCK) -> Iterator[None]:
    """Only one process changes adopted volumes, their heads and what they are composed to. Raises DeviceBusyError.

    The kernel releases the lock when the last write of a killed holder has ended.
    """
    path = sysfs.path(name)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise HostError(f"{path} cannot be opened: {error.strerror}", code="adopt.lock") from error
    try:
        if not wait(partial(try_lock, descriptor), seconds):
            raise DeviceBusyError("another process changes an adopted volume", code="adopt.lock")
        yield
    finally:
        os.close(descriptor)


def adaptive_of(sysfs: Sysfs, head: Head) -> str | None:
    """The adaptive device, `bcacheN`; None while it does not run."""
    found = find(sysfs, head)
    return sysfs.link(f"sys/block/{found}/bcache/dev") if found else None


def compose(
    sysfs: Sysfs, head: Head, head_device: str, volume: str, run: Run, wait: Wait, *, has_tombstone: bool
) -> str | None:
    """Make the composed device of two devices of the kernel, and register it. Returns `bcacheN`; None if it waits.

    What is there already stays. Raises HostError or NotOursError, and DeviceBusyError as `require_unused`.
    """
    numbers = (sysfs.read(f"sys/class/block/{name}/dev") for name in (head_device, volume))
    wanted = heads.table(head, *numbers, has_tombstone=has_tombstone)
    # Also makes device-mapper's control node.
    run(["modprobe", "--all", "dm_mod", "bcache"], timeout_s=DMSETUP_S)
    composed = find(sysfs, head)
    if composed is not None:
        live = mapper.table(sysfs, name_of(head))
        if live and live != wanted:
            text = f"/dev/{composed} has another table than the head of {volume} says: it was not touched"
            raise NotOursError(text, code="composed.other")
        if not live:  # whoever made it was killed before it had a table
            run(["dmsetup", "remove", "--retry", name_of(head)], timeout_s=DMSETUP_S)
            composed = None
    if composed is None:
        require_unused(sysfs, head, volume)
        lines = ",".join(map(str, wanted))
        concise = f"{name_of(head)},{mapped_uuid(head)},,rw,{lines}"
        run(["dmsetup", "create", "--concise", concise], timeout_s=DMSETUP_S)
    if find(sysfs, head) is None:
        raise HostError(f"dmsetup made no device {name_of(head)}: see `dmesg`", code="composed.missing")
    if not _is_registered(sysfs, head):
        _require_alone(sysfs, head, volume, run)
        _register(sysfs, head, (head_device, volume), wait, has_tombstone=has_tombstone)
    return adaptive_of(sysfs, head)


def require_unused(sysfs: Sysfs, head: Head, volume: str) -> None:
    """Raises DeviceBusyError if the volume is in use, and not by its composed device.

    device-mapper does not: it lets two of its devices share one.
    """
    found = in_use(sysfs, volume) if find(sysfs, head) is None else ()
    if found:
        raise DeviceBusyError(f"/dev/{volume} {described(sysfs, found)}; it was not composed", code="composed.held")


def _require_alone(sysfs: Sysfs, head: Head, volume: str, run: Run) -> None:
    """Raises DeviceBusyError if anybody else has the volume; then the composed device, unregistered, is removed.

    Somebody may have opened the volume between `require_unused` and the claim of device-mapper. The composed device has
    claimed it now, so an exclusive open tells nothing, and nobody but device-mapper gets in.
    """
    composed = find(sysfs, head)
    found = tuple(use for use in uses(sysfs, volume) if use.by != composed)
    if found:
        # One that cannot be removed is not registered, and is looked at again; who is beside it is what matters.
        with suppress(HostError):
            run(["dmsetup", "remove", "--retry", name_of(head)], timeout_s=DMSETUP_S)
        text = f"/dev/{volume} {described(sysfs, found)}; it was opened while it was composed, which was taken back"
        raise DeviceBusyError(text, code="composed.held")


def waits_for_cache(sysfs: Sysfs, head: Head) -> bool:
    """Whether the composed device is registered, and does not run because its cache is missing."""
    directory = f"sys/block/{find(sysfs, head)}/bcache"
    return sysfs.read_or(f"{directory}/state", "") in WITH_CACHE and adaptive_of(sysfs, head) is None


def _is_registered(sysfs: Sysfs, head: Head) -> bool:
    return adaptive_of(sysfs, head) is not None or waits_for_cache(sysfs, head)


def _register(sysfs: Sysfs, head: Head, below: tuple[str, str], wait: Wait, *, has_tombstone: bool) -> None:
    _require_same_bytes(sysfs, head, *below, has_tombstone=has_tombstone)
    node = sysfs.path(f"dev/{find(sysfs, head)}")
    try:
        blockdev.register(sysfs, node, lambda: adaptive_of(sysfs, head) is not None, wait, blockdev.REGISTER_S)
    except HostError:
        if not waits_for_cache(sysfs, head):
            raise


def _require_same_bytes(sysfs: Sysfs, head: Head, head_device: str, volume: str, *, has_tombstone: bool) -> None:
    """Compare the first and the last MiB, before anything can mount the device. Raises NotOursError."""
    composed, front = sysfs.path(f"dev/{find(sysfs, head)}"), head.content_sectors * SECTOR
    own, size = sysfs.path(f"dev/{volume}"), head.volume.size_sectors * SECTOR
    saved, length = head.saved_sectors * SECTOR if has_tombstone else 0, min(MIB, size)
    # Where it is shown, on which device it lies, where there, and how long it is.
    pieces = [(0, sysfs.path(f"dev/{head_device}"), head.saved_at, saved)]
    pieces += [(saved, own, saved, length - saved), (size - length, own, size - length, length)]
    for at, node, there, piece in pieces:
        if bytes_of(composed, front + at, piece) != bytes_of(node, there, piece):
            text = f"/dev/{find(sysfs, head)} does not show the bytes of /dev/{volume}: it was not registered"
            raise NotOursError(text, code="composed.differs")


def require_free(sysfs: Sysfs, head: Head) -> None:
    """Raises DeviceBusyError while the adaptive device is used, NotOursError if it has or had a cache."""
    adaptive = adaptive_of(sysfs, head)
    found = in_use(sysfs, adaptive) if adaptive else ()
    if found:
        text = f"/dev/{adaptive} {described(sysfs, found)}: nothing was changed"
        raise DeviceBusyError(text, code="composed.busy")
    require_no_cache(sysfs, head)


def require_no_cache(sysfs: Sysfs, head: Head) -> None:
    """Raises NotOursError if the adaptive device has or had a cache, but for one whose loss was accepted."""
    composed = find(sysfs, head)
    state = sysfs.read_or(f"sys/block/{composed}/bcache/state", CacheState.NO_CACHE)
    is_alone = sysfs.link(f"sys/block/{composed}/bcache/cache") is None
    if state != CacheState.NO_CACHE and not (state == CacheState.INCONSISTENT and is_alone):
        text = f"/dev/{composed} has a cache (state {state}): detach it first; nothing was changed"
        raise NotOursError(text, code="composed.cache")


def require_names_none(sysfs: Sysfs, head: Head, head_device: str) -> None:
    """Raises NotOursError if bcache's superblock in the head names a cache: the volume may lack what is on it.

    A cache whose loss was accepted is named, and not needed.
    """
    block = heads.superblock_of(sysfs.path(f"dev/{head_device}"), head)
    is_needless = superblock.is_without_cache(block) or superblock.is_given_up(block)
    if superblock.parse(block) is not None and not is_needless:
        text = f"the adopted volume {head.volume.uuid} has a cache: detach it first; nothing was changed"
        raise NotOursError(text, code=NAMES_CACHE)


def take_apart(sysfs: Sysfs, head: Head, run: Run, wait: Wait) -> None:
    """Stop the adaptive device and remove the composed one; what is gone already is fine. Raises HostError.

    The caller has asked `require_free`.
    """
    composed = find(sysfs, head)
    if composed is None:
        return
    directory = f"sys/block/{composed}/bcache"
    if sysfs.exists(directory):
        sysfs.write(f"{directory}/stop", 1)
        if not wait(lambda: not sysfs.exists(directory), STOP_S):
            text = f"bcache did not release /dev/{composed} within {STOP_S:g} s: who uses it?"
            raise DeviceBusyError(text, code="composed.stop")
    run(["dmsetup", "remove", "--retry", name_of(head)], timeout_s=DMSETUP_S)
