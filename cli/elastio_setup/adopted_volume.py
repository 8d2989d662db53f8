"""Which device is an adopted volume, and which has its head. Read-only."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from elastio.errors import HostError, NotOursError
from elastio.host import heads, tombstone
from elastio.host.blockdev import NO_BACKING, directories, disks_below, is_same_serial, serial_of
from elastio.host.commands import Run
from elastio.host.composed import is_composed
from elastio.host.heads import Head, Volume
from elastio.host.superblock import UNREADABLE
from elastio.host.sysfs import Sysfs

PROBE_S = 30.0
NO_VOLUMES = (*NO_BACKING, "loop", "md")
# device-mapper's UUID of a logical volume: two UUIDs of LVM. Those of its hidden parts are longer.
LOGICAL_VOLUME = "LVM-"
LOGICAL_LENGTH = len(LOGICAL_VOLUME) + 64


def devices(sysfs: Sysfs) -> Iterator[str]:
    """Every device that may be an adopted volume or have a head: disks, partitions and logical volumes."""
    for disk, device, _ in directories(sysfs, NO_VOLUMES):
        is_mapped = disk.startswith("dm-")
        if not is_composed(sysfs, disk) and (not is_mapped or is_logical(sysfs, disk)):
            yield device


def path_of(target: Path, sysfs: Sysfs) -> Path:
    """The path that an operator named; VG/LV is the node of a logical volume, unless there is a file of that name."""
    node = sysfs.path("dev") / target
    is_logical_name = len(target.parts) == 2 and not target.is_absolute() and not target.exists()
    return node if is_logical_name and node.exists() else target


def is_logical(sysfs: Sysfs, device: str) -> bool:
    """Whether a device of device-mapper is a logical volume, not a part of one."""
    shown = sysfs.read_or(f"sys/block/{device}/dm/uuid", "")
    return shown.startswith(LOGICAL_VOLUME) and len(shown) == LOGICAL_LENGTH


def probe(sysfs: Sysfs, device: str, run: Run, length: int = 0) -> dict[str, str]:
    """What libblkid finds on the device: TYPE, UUID and others; empty if that is nothing, or not one thing.

    `length`: of the device as it is looked at, in bytes; 0 for all of it.
    """
    part = ["-S", str(length)] if length else []
    try:
        text = run(["blkid", "-p", "-o", "export", *part, str(sysfs.path(f"dev/{device}"))], timeout_s=PROBE_S)
    except HostError as error:
        if error.code == "program.failed":
            return {}
        raise
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def describe(sysfs: Sysfs, device: str, run: Run) -> Volume | None:
    """The filesystem on the device, and by what the device is told from a copy; None without a filesystem's UUID.

    A tombstone says it, whatever libblkid finds behind it. Raises HostError, and NotOursError if that is damaged.
    """
    volume, stone = _named(sysfs, device, run), tombstone.read(sysfs.path(f"dev/{device}"))
    if stone is not None:
        return replace(volume, filesystem=stone.filesystem, uuid=stone.volume)
    return volume if volume.filesystem and volume.uuid else None


def _named(sysfs: Sysfs, device: str, run: Run) -> Volume:
    """As libblkid sees it."""
    found = probe(sysfs, device, run)
    return Volume(
        filesystem=found.get("TYPE", ""),
        uuid=found.get("UUID", ""),
        size_sectors=int(sysfs.read_or(f"sys/class/block/{device}/size", "0")),
        serial="+".join(serials(sysfs, device)),
        partition=found.get("PART_ENTRY_UUID", ""),
        mapped=sysfs.read_or(f"sys/block/{device}/dm/uuid", ""),
    )


def serials(sysfs: Sysfs, device: str) -> tuple[str, ...]:
    """The serials of the disks below it; those of a logical volume may be several."""
    return tuple(sorted({serial for disk in disks_below(sysfs, device) if (serial := serial_of(sysfs, disk))}))


def with_uuid(sysfs: Sysfs, uuid: str, run: Run) -> dict[str, Volume]:
    """Every device with this filesystem that can be read.

    If there is none, a damaged tombstone may be its: raises NotOursError then.
    """
    found, damaged = dict[str, Volume](), list[NotOursError]()
    for device in devices(sysfs):
        try:
            volume = describe(sysfs, device, run)
        except NotOursError as error:
            damaged.append(error)
        except HostError as error:
            if error.code != UNREADABLE:
                raise
        else:
            found |= {device: volume} if volume is not None and volume.uuid == uuid else {}
    if damaged and not found:
        raise damaged[0]
    return found


def require_one(sysfs: Sysfs, uuid: str, made: str | None, run: Run) -> None:
    """Raises NotOursError while a copy of the volume is there, but for `made`: a mount by UUID may take either."""
    found = sorted(set(with_uuid(sysfs, uuid, run)) - {made})
    if len(found) > 1:
        text = f"{', '.join(f'/dev/{d}' for d in found)} have the same filesystem: detach the copy"
        raise NotOursError(f"{text}; nothing was changed", code="release.copy")


def find(sysfs: Sysfs, wanted: Volume, run: Run) -> str | None:
    """The device that is this volume; None if no device has its filesystem. Raises NotOursError for a copy.

    It may have grown.
    """
    found = with_uuid(sysfs, wanted.uuid, run)
    same = [device for device, volume in found.items() if _is_same(volume, wanted)]
    if len(same) > 1:
        text = f"{', '.join(f'/dev/{d}' for d in same)} cannot be told apart: detach the copy"
        raise NotOursError(text, code="volume.ambiguous")
    if found and not same:
        device, volume = next(iter(found.items()))
        text = (
            f"/dev/{device} has the filesystem of the adopted volume and is not that volume (serial {volume.serial!r}, "
            f"not {wanted.serial!r}): a restored copy, see docs/how-to/adopt.md; nothing was changed"
        )
        raise NotOursError(text, code="volume.copy")
    return same[0] if same else None


def replaced(sysfs: Sysfs, wanted: Volume, run: Run) -> str | None:
    """The device that was this volume, and has another filesystem now, or none; None if nothing tells that it was."""
    if not (wanted.serial or wanted.partition or wanted.mapped):
        return None
    shown = {device: _named(sysfs, device, run) for device in devices(sysfs)}
    same = [device for device, volume in shown.items() if _is_same_place(volume, wanted)]
    return same[0] if len(same) == 1 else None


def _is_same(found: Volume, wanted: Volume) -> bool:
    is_same = (found.filesystem, found.uuid) == (wanted.filesystem, wanted.uuid)
    return is_same and _is_same_place(found, wanted)


def _is_same_place(found: Volume, wanted: Volume) -> bool:
    """Whether it is the same device, which may have grown, whatever is on it.

    Another driver may show the serial of a disk in another length.
    """
    shown, known = found.serial.split("+"), wanted.serial.split("+")
    is_same_disk = len(shown) == len(known) and all(
        is_same_serial(*sorted(pair, key=len)) for pair in zip(shown, known, strict=True)
    )
    is_same_part = (found.partition, found.mapped) == (wanted.partition, wanted.mapped)
    return is_same_disk and is_same_part and found.size_sectors >= wanted.size_sectors


def find_head(sysfs: Sysfs, wanted: Head, volume: str | None) -> str | None:
    """The device with this head, or None. Raises NotOursError if there are several, or it belongs to something else.

    One behind a filesystem is looked for on its `volume` alone: a copy of that has it, too. Raises HostError if that
    cannot be read.
    """
    found = []
    own = [volume] if volume else []
    for device in own if wanted.first_sector else devices(sysfs):
        try:
            head = heads.read(sysfs.path(f"dev/{device}"), wanted.first_sector)
        except HostError as error:  # another volume's, which is damaged, or a device that cannot be read
            if error.code == UNREADABLE and wanted.first_sector:
                raise
            continue
        if head is not None and head.uuid == wanted.uuid:
            found.append((device, head))
    if len(found) > 1:
        text = f"{', '.join(f'/dev/{d}' for d, _ in found)} have the same head: detach the copy"
        raise NotOursError(text, code="head.ambiguous")
    if found and _without_changes(found[0][1]) != _without_changes(wanted):
        text = f"the head on /dev/{found[0][0]} is not the one that was recorded: nothing was changed"
        raise NotOursError(text, code="head.other")
    return found[0][0] if found else None


def may_have_piece(sysfs: Sysfs, wanted: Head, device: str | None) -> bool:
    """Whether the head on the device may have the volume's first sectors; a label that is damaged does not tell.

    A power cut leaves one when the first label is written, or the last one erased. Raises HostError.
    """
    try:
        label = heads.read(sysfs.path(f"dev/{device}")) if device and not wanted.first_sector else None
    except NotOursError as error:
        if error.code != "head.damaged":
            raise
        return True
    return wanted.first_sector > 0 or (label is not None and label.sequence > 1)


def _without_changes(head: Head) -> Head:
    """Without what may differ between a label and its record: the disks below a logical volume change."""
    return replace(head, sequence=1, volume=replace(head.volume, serial=""))
