"""The record of an adopted volume: one file per volume, on the root filesystem, before anything is changed.

The file has the name of the filesystem's UUID, because udev asks for that name (59-elastio-adopted.rules): while it is
there, udev hides the volume from systemd, from mounts by UUID and from LVM.
"""

from __future__ import annotations

import contextlib
import json
import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from elastio.codec import decode, encode
from elastio.config.paths import ADOPTED
from elastio.errors import ConfigError, HostError
from elastio.host.heads import Head
from elastio.host.sysfs import Sysfs
from elastio.whole_file import left_of, sync_directory
from elastio_setup import fstab

T = TypeVar("T")


class Step(StrEnum):
    ADOPTING = "adopting"  # not composed yet: after a power cut it is released
    COMPOSED = "composed"
    RELEASING = "releasing"


@dataclass(frozen=True, slots=True)
class Record:
    """`head_device`: the kernel's name, valid until the next boot. Afterwards the head is found by its label.

    `head_serials`: those of its disks, for whoever has to attach them. `group_uuid`: of the volume group in which the
    head has a logical volume that was made for it (`head_volume`); else empty.
    """

    head: Head
    step: Step
    head_device: str
    head_serials: tuple[str, ...] = ()
    group_uuid: str = ""

    @property
    def uuid(self) -> str:
        return self.head.volume.uuid


def is_name(uuid: str) -> bool:
    """Whether a record can have this name: as udev's rules look for it."""
    return re.fullmatch("[0-9A-Za-z-]+", uuid) is not None


def load(sysfs: Sysfs, uuid: str) -> Record | None:
    """The record of the volume with this filesystem, or None. Raises ConfigError."""
    if not is_name(uuid):
        return None
    return read(sysfs.path(f"{ADOPTED}/{uuid}"), Record)


def read(path: Path, kind: type[T]) -> T | None:
    """What `write` has written there, or None. Raises ConfigError."""
    try:
        return decode(kind, json.loads(path.read_text()))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as error:
        raise ConfigError(f"{path} cannot be read as a record: {error}", code="record.unreadable") from error


def load_all(sysfs: Sysfs) -> tuple[Record, ...]:
    """Every record. Raises ConfigError."""
    names = (name for name in sysfs.names(ADOPTED) if not name.startswith("."))
    return tuple(record for name in names if (record := load(sysfs, name)) is not None)


def save(sysfs: Sysfs, record: Record) -> None:
    """Durable when it returns. Raises ConfigError."""
    if not is_name(record.uuid):
        raise ConfigError(f"{record.uuid!r} cannot be the name of a record", code="record.name")
    write(sysfs.path(f"{ADOPTED}/{record.uuid}"), record)


def write(path: Path, value: object) -> None:
    """Durable when it returns. Raises ConfigError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        sync_directory(path.parent.parent)
    except OSError as error:
        raise ConfigError(f"{path.parent} cannot be created: {error.strerror}", code="record.unwritable") from error
    fstab.write(path, json.dumps(encode(value), indent=1) + "\n", "record.unwritable")


def delete(sysfs: Sysfs, record: Record) -> None:
    """Durable when it returns. Raises HostError."""
    remove(sysfs.path(f"{ADOPTED}/{record.uuid}"))


def remove(path: Path) -> None:
    """With what a power cut has left of it. Durable when it returns. Raises HostError."""
    try:
        path.unlink(missing_ok=True)
        for left in left_of(path):
            left.unlink(missing_ok=True)
        sync_directory(path.parent)
    except OSError as error:
        raise HostError(f"{path} cannot be removed: {error.strerror}", code="record.unwritable") from error
    with contextlib.suppress(OSError):  # there are others
        path.parent.rmdir()
