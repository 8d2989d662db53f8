"""The lost record of an adopted volume is written again, by the label of its head. Also on another machine.

Without a record nothing hides or composes the volume. With its tombstone it waits. Without one it is the plain
filesystem that it was, which may have been mounted and changed meanwhile: that is right as long as it has no cache.
"""

from __future__ import annotations

import os
from pathlib import Path

from elastio.errors import ConfigError, DeviceBusyError, NotOursError
from elastio.host import composed, heads, recompose
from elastio.host.usage import in_use
from elastio_setup import adopted_record as records
from elastio_setup import head_behind, head_volume
from elastio_setup.adopt import LOCK_S, Adopter
from elastio_setup.adopted_record import Record, Step
from elastio_setup.adopted_volume import serials
from elastio_setup.format_backing import name_of


def recorded_again(adopter: Adopter, path: Path) -> str:
    """Write the record, and compose. Returns `bcacheN`. Raises ElastioError; without the volume nothing is recorded."""
    sysfs = adopter.sysfs
    with recompose.locked(sysfs, adopter.wait, LOCK_S):
        head_device = name_of(path, sysfs)
        head = heads.read(sysfs.path(f"dev/{head_device}")) or head_behind.read(sysfs, head_device, adopter.run)
        if head is None:
            raise NotOursError(f"{path} has no head of an adopted volume", code="head.none")
        if records.load(sysfs, head.volume.uuid) is not None:
            text = f"{head.volume.uuid} has its record: `elastio device compose {head.volume.uuid}`"
            raise ConfigError(text, code="record.there")
        group_uuid = head_volume.group_of(sysfs, head, head_device, adopter.run)
        record = Record(head, Step.COMPOSED, head_device, serials(sysfs, head_device), group_uuid)
        device, _ = adopter.both_there(record)
        _require_usable(adopter, record, device)
        records.save(sysfs, record)
        adopter.announce(device)
        return adopter.compose(record)


def _require_usable(adopter: Adopter, record: Record, device: str) -> None:
    """Raises DeviceBusyError if the volume itself is used, NotOursError if it may be older than its cache."""
    found = in_use(adopter.sysfs, device)
    if found and composed.find(adopter.sysfs, record.head) is None:
        text = f"/dev/{device} {', '.join(map(str, found))}: unmount it first; nothing was changed"
        raise DeviceBusyError(text, code="volume.used")
    with adopter.pair(record, device, record.head_device, os.O_RDONLY) as pair:
        adopter.require_no_older(record, device, record.head_device, has_tombstone=pair.has_tombstone())
