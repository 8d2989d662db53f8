"""The composed device of an adopted volume: made with device-mapper, registered with bcache, and taken apart.

udev does not register it (59-elastio-adopted.rules), so a device that was stopped is not registered again behind the
back of whoever takes it apart. Nothing here writes to the volume.
"""

from __future__ import annotations

import os
from pathlib import Path

from elastio.errors import DeviceBusyError, HostError, NotOursError
from elastio.host import blockdev
from elastio.host.commands import Run
from elastio.host.heads import Head, table
from elastio.host.sysfs import Sysfs, Wait
from elastio.host.usage import in_use
from elastio.units import MIB, SECTOR

# Also in 59-elastio-adopted.rules.
UUID_PREFIX = "ELASTIO-"
DMSETUP_S = 30.0
STOP_S = 20.0


def name_of(head: Head) -> str:
    """device-mapper's name of the composed device."""
    return f"elastio-{head.uuid}"


def is_composed(sysfs: Sysfs, device: str) -> bool:
    """Whether a device of the kernel, such as `dm-0`, is the composed device of an adopted volume."""
    return sysfs.read_or(f"sys/block/{device}/dm/uuid", "").startswith(UUID_PREFIX)


def find(sysfs: Sysfs, head: Head) -> str | None:
    """The kernel's name of the composed device, or None."""
    mapped = (name for name in sysfs.names("sys/block") if name.startswith("dm-"))
    return next((n for n in mapped if sysfs.read_or(f"sys/block/{n}/dm/name", "") == name_of(head)), None)


def adaptive_of(sysfs: Sysfs, head: Head) -> str | None:
    """The adaptive device, `bcacheN`; None while it does not run."""
    found = find(sysfs, head)
    return sysfs.link(f"sys/block/{found}/bcache/dev") if found else None


def compose(sysfs: Sysfs, head: Head, head_device: str, volume: str, run: Run, wait: Wait) -> str:
    """Make the composed device of two devices of the kernel, and register it. Returns `bcacheN`.

    What is there already stays. Raises HostError or NotOursError.
    """
    wanted = table(head, *(sysfs.read(f"sys/class/block/{name}/dev") for name in (head_device, volume)))
    # Also makes device-mapper's control node.
    run(["modprobe", "--all", "dm_mod", "bcache"], timeout_s=DMSETUP_S)
    composed = find(sysfs, head)
    if composed is not None:
        shown = run(["dmsetup", "table", name_of(head)], timeout_s=DMSETUP_S).strip()
        if shown and shown != wanted.strip():
            text = f"/dev/{composed} has another table than the head of {volume} says: it was not touched"
            raise NotOursError(text, code="composed.other")
        if not shown:  # whoever made it was killed before it had a table
            run(["dmsetup", "remove", "--retry", name_of(head)], timeout_s=DMSETUP_S)
            composed = None
    if composed is None:
        lines = ",".join(wanted.splitlines())
        concise = f"{name_of(head)},{UUID_PREFIX}{head.uuid},,rw,{lines}"
        run(["dmsetup", "create", "--concise", concise], timeout_s=DMSETUP_S)
    return _registered(sysfs, head, volume, run, wait)


def _registered(sysfs: Sysfs, head: Head, volume: str, run: Run, wait: Wait) -> str:
    composed = find(sysfs, head)
    if composed is None:
        raise HostError(f"dmsetup made no device {name_of(head)}: see `dmesg`", code="composed.missing")
    if adaptive_of(sysfs, head) is None:
        _require_same_bytes(sysfs, head, composed, volume)
        node = sysfs.path(f"dev/{composed}")
        blockdev.register(sysfs, node, lambda: adaptive_of(sysfs, head) is not None, wait, blockdev.REGISTER_S)
    return adaptive_of(sysfs, head) or ""


def _require_same_bytes(sysfs: Sysfs, head: Head, composed: str, volume: str) -> None:
    """Compare the first and the last MiB, before anything can mount the device. Raises NotOursError."""
    first = head.content_sectors * SECTOR
    nodes = ((sysfs.path(f"dev/{composed}"), first), (sysfs.path(f"dev/{volume}"), 0))
    size = head.volume.size_sectors * SECTOR
    length = min(MIB, size)
    for at in (0, size - length):
        seen, own = (_read(node, begin + at, length) for node, begin in nodes)
        if seen != own:
            text = f"/dev/{composed} does not show the bytes of /dev/{volume}: it was not registered"
            raise NotOursError(text, code="composed.differs")


def _read(node: Path, at: int, length: int) -> bytes:
    try:
        descriptor = os.open(node, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            return os.pread(descriptor, length, at)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise HostError(f"{node} cannot be read: {error.strerror}", code="composed.unreadable") from error


def require_free(sysfs: Sysfs, head: Head) -> None:
    """Raises DeviceBusyError while the adaptive device is used, NotOursError if it has or had a cache."""
    composed, adaptive = find(sysfs, head), adaptive_of(sysfs, head)
    found = in_use(sysfs, adaptive) if adaptive else ()
    if found:
        text = f"/dev/{adaptive} {', '.join(map(str, found))}: nothing was changed"
        raise DeviceBusyError(text, code="composed.busy")
    state = sysfs.read_or(f"sys/block/{composed}/bcache/state", "no cache")
    if state != "no cache":
        text = f"/dev/{composed} has a cache (state {state}): detach it first; nothing was changed"
        raise NotOursError(text, code="composed.cache")


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
