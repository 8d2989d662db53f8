"""Adopt at the next boot, before anything mounts the volume, what cannot be unmounted while the machine runs.

Theory of operation. A pending adoption is a file with the name of the filesystem's UUID, below /etc: nothing but the
root is mounted when it is read. With it comes a flag file below /run, which a boot removes. A volume that has the first
and not the second is hidden by udev, which starts the unit, as for a volume with a record (59-elastio-adopted.rules).
The unit plans again, and adopts as the command does, with its checks, record and crash rules; then the file is removed.
It is begun once:

    pending, flag     until the boot: nothing is hidden, and nothing is done
    pending           at boot: begun, planned, adopted. Begun before: what ended that is not known, so it is refused
    refused, flag     the reason. The volume is shown, and mounted as it always was
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from elastio.config.paths import AT_BOOT, NOT_NOW
from elastio.errors import ConfigError, DeviceBusyError, ElastioError, HostError, NotOursError
from elastio.host import composed, recompose
from elastio.host.heads import Volume
from elastio.host.sysfs import Sysfs
from elastio_setup import adopted_record as records
from elastio_setup import fstab
from elastio_setup.adopt import LOCK_S, POLL_S, Adopter
from elastio_setup.adopt_plan import FSTAB, AdoptPlan, plan
from elastio_setup.adopted_volume import devices, find, serials, with_uuid

# Less than systemd waits for the device of a mount.
APPEAR_S = 60.0
START_S = 30.0
REFUSED = ".refused"


@dataclass(frozen=True, slots=True)
class Pending:
    """A pending adoption. `place`: where it was mounted. `refused`: the reason; then it is not tried again.

    `head`: what `_named` says of the device for the head; empty if it has none yet, or the volume itself.
    """

    volume: Volume
    place: str
    head: tuple[str, ...]
    is_begun: bool = False
    refused: str = ""


def load(sysfs: Sysfs, uuid: str) -> Pending | None:
    """Raises ConfigError."""
    return records.read(_path(sysfs, uuid), Pending)


def load_all(sysfs: Sysfs) -> tuple[Pending, ...]:
    """Each that waits for its boot, and each that was refused. Raises ConfigError."""
    names = [name for name in sysfs.names(AT_BOOT) if not name.startswith(".")]
    return tuple(pending for name in names if (pending := load(sysfs, name)) is not None)


def ask(adopter: Adopter, found: AdoptPlan) -> bool:
    """Write it down, durably; False if that was done before. Raises ElastioError: then nothing was."""
    sysfs, uuid = adopter.sysfs, found.volume.uuid
    head = _named(sysfs, found.head_device) if found.head_device not in ("", found.device) else ()
    if head and (not found.head_serials or _heads(sysfs, head) != [found.head_device]):
        text = f"/dev/{found.head_device} cannot be told from other devices after a boot: name a disk with a serial"
        raise NotOursError(f"{text}; nothing was changed", code="at_boot.head")
    with recompose.locked(sysfs, adopter.wait, LOCK_S):
        if (pending := load(sysfs, uuid)) is not None:
            if (pending.place, pending.head) != (str(found.place), head):
                text = f"{pending.place} was to get another head, or {uuid} was elsewhere: `--cancel` that first"
                raise ConfigError(f"{text}; nothing was changed", code="at_boot.other")
            return False
        _defer(sysfs, uuid)
        records.write(_path(sysfs, uuid), Pending(found.volume, str(found.place), head))
        _remove(sysfs, f"{uuid}{REFUSED}")
    return True


def cancel(adopter: Adopter, named: str) -> str:
    """Take it back, or forget why it was refused, by UUID or place. Returns the UUID. Raises ElastioError."""
    with recompose.locked(adopter.sysfs, adopter.wait, LOCK_S):
        for pending in load_all(adopter.sysfs):
            if named in (pending.volume.uuid, pending.place):
                if pending.is_begun and not pending.refused:
                    raise DeviceBusyError(f"{named} is being adopted: wait for its unit", code="at_boot.begun")
                forget(adopter.sysfs, pending.volume.uuid)
                return pending.volume.uuid
    raise ConfigError(f"nobody has asked to adopt {named} at the next boot", code="at_boot.none")


def forget(sysfs: Sysfs, uuid: str) -> None:
    """Raises HostError."""
    _remove(sysfs, uuid)
    _remove(sysfs, f"{uuid}{REFUSED}")


def assemble(adopter: Adopter, uuid: str) -> str:
    """What the unit does: `Adopter.assemble`, and the pending adoption if this is its boot. Raises ElastioError.

    Returns `bcacheN`, or nothing. A volume that is not adopted is shown and mounted then.
    """
    sysfs = adopter.sysfs
    if not records.is_name(uuid) or not _path(sysfs, uuid).exists() or sysfs.exists(f"{NOT_NOW}/{uuid}"):
        return adopter.assemble(uuid)
    with composed.locked(sysfs, adopter.wait, 0.0, f"{NOT_NOW}.{uuid}.lock"):
        adaptive = adopter.assemble(uuid)
        try:
            adaptive = adaptive or _carry_out(adopter, load(sysfs, uuid))
        except ElastioError as error:
            # With a record it could not be undone yet: the unit is started again.
            if records.load(sysfs, uuid) is None:
                _refuse(adopter, uuid, error)
            raise
        _remove(sysfs, uuid)
        _mount(adopter, uuid)
    return adaptive


def _carry_out(adopter: Adopter, pending: Pending | None) -> str:
    sysfs = adopter.sysfs
    if pending is None or pending.is_begun:
        text = "the adoption at boot was ended before it was complete, by a power cut or the time-out of its unit"
        raise HostError(text, code="at_boot.ended")
    records.write(_path(sysfs, pending.volume.uuid), replace(pending, is_begun=True))
    adopter.wait(partial(_is_there, adopter, pending), APPEAR_S)
    device, found = _both(adopter, pending)
    if device is None or len(found) != 1:
        text = f"{'not one device is that for the head' if device else 'the volume is not there'}: nothing was changed"
        raise HostError(text, code="at_boot.missing")
    head = sysfs.path(f"dev/{found[0]}") if pending.head else None
    return adopter.adopt(plan(sysfs.path(f"dev/{device}"), head, sysfs, adopter.run))


def _both(adopter: Adopter, pending: Pending) -> tuple[str | None, list[str]]:
    """The volume, and each device that may be the one for its head."""
    return find(adopter.sysfs, pending.volume, adopter.run), _heads(adopter.sysfs, pending.head)


def _is_there(adopter: Adopter, pending: Pending) -> bool:
    """Each look reads every disk."""
    with suppress(HostError):  # the serial may not show yet
        if all(_both(adopter, pending)):
            return True
    adopter.sleep(POLL_S)
    return False


def _refuse(adopter: Adopter, uuid: str, error: ElastioError) -> None:
    """The flag comes first: whatever else fails, the volume is shown. The error is the one that matters."""
    sysfs, pending = adopter.sysfs, Pending(Volume("", uuid, 0), "", ())
    with suppress(ElastioError):
        _defer(sysfs, uuid)
    with suppress(ElastioError):
        pending = load(sysfs, uuid) or pending
    with suppress(ElastioError):
        records.write(_path(sysfs, f"{uuid}{REFUSED}"), replace(pending, refused=str(error)))
        _remove(sysfs, uuid)
    with suppress(ElastioError):
        for device, volume in with_uuid(sysfs, uuid, adopter.run).items():
            adopter.announce(device, volume)
    _mount(adopter, uuid)


def _mount(adopter: Adopter, uuid: str) -> None:
    """systemd may have waited in vain for the device."""
    with suppress(ElastioError):
        found = fstab.entries(fstab.read(adopter.sysfs.path(FSTAB)))
        own = [entry for entry in found if entry.is_of(uuid, "")]
        for entry in (*own, *fstab.dependents(found, own)):
            if entry.place.startswith("/") and "noauto" not in entry.options:
                adopter.run(["systemctl", "--no-block", "start", entry.place], timeout_s=START_S)


def _named(sysfs: Sysfs, device: str) -> tuple[str, ...]:
    """By what a blank device is found after a boot: size, number of the partition, name of the volume, serials."""
    directory = f"sys/class/block/{device}"
    shown = (sysfs.read_or(f"{directory}/{file}", "") for file in ("size", "partition", "dm/uuid"))
    return (*shown, *serials(sysfs, device))


def _heads(sysfs: Sysfs, head: tuple[str, ...]) -> list[str]:
    return [device for device in devices(sysfs) if _named(sysfs, device) == head] if head else [""]


def _path(sysfs: Sysfs, name: str) -> Path:
    return sysfs.path(f"{AT_BOOT}/{name}")


def _remove(sysfs: Sysfs, name: str) -> None:
    if _path(sysfs, name).exists():
        records.remove(_path(sysfs, name))


def _defer(sysfs: Sysfs, uuid: str) -> None:
    records.write(sysfs.path(f"{NOT_NOW}/{uuid}"), "")
