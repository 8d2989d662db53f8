"""The filesystem of a device: found, made where provably nothing is, mounted, and unmounted while something changes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from elastio.core.model import Serial
from elastio.errors import ConfigError, DeviceBusyError, ElastioError, HostError, NotOursError
from elastio.host import mounts
from elastio.host.blockdev import Disk, require_free
from elastio.host.commands import Run, is_installed
from elastio.host.sysfs import Sysfs
from elastio.host.usage import mounted_at, mounts_on
from elastio.units import SECTOR
from elastio_setup.format_backing import require_blank

# Program and Debian package of each.
MAKERS = {"ext4": ("mkfs.ext4", "e2fsprogs"), "xfs": ("mkfs.xfs", "xfsprogs")}
# The journal and the first inode tables of a large volume take minutes at the speed of a cheap one.
MAKE_S = 1800.0
SETTLE_S = 60.0
MOUNT_S = 120.0


@dataclass(frozen=True, slots=True)
class Filesystem:
    kind: str
    uuid: str


def found_on(adaptive: str, sysfs: Sysfs, run: Run) -> Filesystem | None:
    """The filesystem of the adaptive device; None if wipefs finds no signature.

    Raises NotOursError for anything but one ext4 or XFS, and HostError.
    """
    node = f"/dev/{adaptive}"
    text = run(["wipefs", "--no-act", "--json", str(sysfs.path(node[1:]))], timeout_s=10)
    try:
        rows = json.loads(text).get("signatures") or [] if text.strip() else []
        found = {(str(row["type"]), str(row.get("uuid") or "")) for row in rows}
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise HostError(f"the output of wipefs about {node} is not valid", code="wipefs.output") from error
    if not found:
        return None
    kinds = ", ".join(sorted({kind for kind, _ in found}))
    if len(found) > 1 or kinds not in MAKERS:
        text = f"{node} has {kinds} on it, and only one ext4 or xfs is set up: nothing was changed"
        raise NotOursError(text, code="filesystem.other")
    ((kind, uuid),) = found
    if not uuid:
        raise HostError(f"the {kind} on {node} has no UUID, by which it could be mounted", code="filesystem.uuid")
    return Filesystem(kind, uuid)


def require_maker(kind: str, sysfs: Sysfs) -> None:
    """Raises HostError if the program that makes this filesystem is not installed."""
    program, package = MAKERS[kind]
    if not is_installed(sysfs, program):
        raise HostError(f"{program} is not installed: apt-get install {package}", code="filesystem.maker")


def require_usable(adaptive: str, sysfs: Sysfs, *, is_forced: bool) -> bool:
    """Whether the adaptive device is blank, because an application may use it without a filesystem. Writes nothing.

    Raises DeviceBusyError if it is in use, NotOursError if it is not blank and that is not forced, or HostError.
    """
    disk = _disk(adaptive, sysfs)
    require_free(sysfs, disk)
    return require_blank(disk, f"/dev/{adaptive}", "filesystem.not_blank", is_forced=is_forced)


def make(adaptive: str, kind: str, sysfs: Sysfs, run: Run, *, is_new: bool, is_forced: bool = False) -> Filesystem:
    """Make the filesystem. `is_new`: the device was created a moment ago, on a volume that was checked.

    Any other device must be blank, unless that is forced.
    Raises DeviceBusyError, NotOursError or HostError; then nothing was changed, unless the program itself failed.
    """
    disk = _disk(adaptive, sysfs)
    if is_new:
        require_free(sysfs, disk)
    else:
        require_usable(adaptive, sysfs, is_forced=is_forced)
    run([MAKERS[kind][0], "-q", str(disk.node)], timeout_s=MAKE_S)
    run(["udevadm", "settle", f"--timeout={SETTLE_S:.0f}"], timeout_s=SETTLE_S + 5)
    made = found_on(adaptive, sysfs, run)
    if made is None:
        text = f"{MAKERS[kind][0]} reported success, and wipefs shows no {kind} on /dev/{adaptive}"
        raise HostError(text, code="filesystem.missing")
    return made


def _disk(adaptive: str, sysfs: Sysfs) -> Disk:
    size = int(sysfs.read(f"sys/class/block/{adaptive}/size")) * SECTOR
    return Disk(adaptive, Serial(""), size, sysfs.path(f"dev/{adaptive}"))


# --- the place ---------------------------------------------------------------------------------------------


def is_mounted(adaptive: str, place: Path, sysfs: Sysfs) -> bool:
    """Whether the adaptive device is mounted there. Raises DeviceBusyError if it is mounted elsewhere only."""
    places = mounted_at(sysfs, adaptive)
    if str(place) in places:
        return True
    if places:
        raise DeviceBusyError(
            f"/dev/{adaptive} is mounted at {places[0]}, not at {place}: name that place, or unmount it",
            code="mount.elsewhere",
        )
    return False


def require_place(place: Path, state_dir: Path, sysfs: Sysfs, adaptive: str | None) -> None:
    """Raises ConfigError unless the filesystem can be mounted there without hiding or endangering anything."""
    if not place.is_absolute() or ".." in place.parts or any(ord(c) < ord(" ") for c in str(place)):
        raise ConfigError(f"{place} is not an absolute path without ..", code="mountpoint.path")
    if place in (state_dir, *state_dir.parents) or place == Path("/"):
        raise ConfigError(
            f"{place} holds {state_dir}, and the agent's state must not be on the adaptive device: choose another",
            code="mountpoint.state",
        )
    taken = [mount for mount in mounts.read(sysfs) if mount.place == str(place)]
    if taken:
        if adaptive is None or taken[-1] not in mounts_on(sysfs, adaptive):
            raise ConfigError(f"another filesystem is mounted at {place}: choose another place", code="mountpoint.used")
        return
    try:
        is_empty = not os.path.lexists(place) or not any(place.iterdir())
    except OSError as error:
        text = f"{place} is not a directory that can be read: {error.strerror}"
        raise ConfigError(text, code="mountpoint.unreadable") from error
    if not is_empty:
        raise ConfigError(f"{place} is not empty, and a mount would hide what it holds", code="mountpoint.not_empty")


def mount(place: Path, run: Run) -> None:
    """Mount what /etc/fstab names for this place, as the next boot will. Raises HostError."""
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise HostError(f"{place} cannot be created: {error.strerror}", code="mountpoint.create") from error
    run(["systemctl", "daemon-reload"], timeout_s=MOUNT_S)
    run(["mount", str(place)], timeout_s=MOUNT_S)


@contextmanager
def unmounted(place: Path | None, sysfs: Sysfs, run: Run) -> Iterator[None]:
    """Inside it is not mounted; afterwards it is again, by fstab, whatever happened. None: nothing was mounted."""
    if place is None:
        yield
        return
    run(["umount", str(place)], timeout_s=MOUNT_S)
    try:
        yield
    except BaseException:
        with suppress(ElastioError):  # the first error is the one that matters
            _mount_again(place, sysfs, run)
        raise
    _mount_again(place, sysfs, run)


def _mount_again(place: Path, sysfs: Sysfs, run: Run) -> None:
    """systemd may have mounted it meanwhile, when its device appeared. Raises HostError."""
    try:
        run(["mount", str(place)], timeout_s=MOUNT_S)
    except HostError:
        if all(mount.place != str(place) for mount in mounts.read(sysfs)):
            raise
