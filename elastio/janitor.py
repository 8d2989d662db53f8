"""Deletes volumes of machines that are gone, by their tags alone. Pure except for the calls to the fleet.

A janitor cannot read a disk. A volume is created `clean`, tagged `dirty` before it becomes a cache, and `clean` again
once its agent has proven that the disk carries nothing. A volume that is not `clean` (dirty, another word, no tag) may
hold the only copy of somebody's data and is kept, however long ago it expired.

If its machine starts between the last poll and the deletion, either the deletion comes first, and the machine misses a
volume that it has not written to yet; or the attachment does, and the cloud refuses to delete an attached volume.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from elastio.core.model import VolumeId, VolumeTag
from elastio.errors import ElastioError


@dataclass(frozen=True, slots=True)
class FleetVolume:
    """A volume as the account shows it. `is_free`: not attached, and not changing. `expires_wall` None: unreadable."""

    id: VolumeId
    state: str
    is_free: bool
    size_bytes: int
    owner: str
    backing_uuid: str
    tag: VolumeTag
    expires_wall: float | None


class Fleet(Protocol):
    """One account, seen from outside its machines. Errors: `ProviderError`."""

    def volumes(self) -> Iterator[FleetVolume]:
        """Every volume with an owner tag, whoever bought it."""
        ...

    def volume(self, volume_id: VolumeId) -> FleetVolume | None:
        """One volume as it is now; None: it is gone."""
        ...

    def delete(self, volume_id: VolumeId) -> None:
        """Request deletion; the cloud refuses it for an attached volume. Already gone: no error."""
        ...


def why_keep(volume: FleetVolume, wall: float) -> str:
    """Why the volume is kept; empty: it may be deleted."""
    if not volume.owner or not volume.backing_uuid:
        return "it does not carry an agent's tags"
    if not volume.is_free:
        return f"it is {volume.state}"
    if volume.tag is not VolumeTag.CLEAN:
        return f"it is tagged {volume.tag} and may hold data of the backing device {volume.backing_uuid}"
    if volume.expires_wall is None:
        return "its expiry cannot be read"
    if wall < volume.expires_wall:
        return "it has not expired"
    return ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result for one volume: `outcome` is `kept`, `deleted`, `failed`, or, in a dry run, `would delete`."""

    volume: FleetVolume
    outcome: str
    reason: str = ""


def sweep(fleet: Fleet, wall: float, *, dry_run: bool) -> Iterator[Verdict]:
    """Check every volume of the fleet, and delete those that may be deleted; a failure does not stop the others."""
    for volume in fleet.volumes():
        kept = why_keep(volume, wall)
        if kept:
            yield Verdict(volume, "kept", kept)
        elif dry_run:
            yield Verdict(volume, "would delete", "clean, expired and not attached")
        else:
            yield _delete(fleet, volume, wall)


def _delete(fleet: Fleet, volume: FleetVolume, wall: float) -> Verdict:
    """Delete one volume, after a poll of its own: a list of thousands may be minutes old."""
    try:
        now = fleet.volume(volume.id)
        if now is None:
            return Verdict(volume, "kept", "it is gone already")
        kept = why_keep(now, wall)
        if kept:
            return Verdict(now, "kept", kept)
        fleet.delete(volume.id)
    except ElastioError as error:
        return Verdict(volume, "failed", str(error))
    return Verdict(volume, "deleted", "clean, expired and not attached")
