"""Which volumes of dead machines may be deleted, judged by their tags alone. Pure but for the fleet it is given.

A janitor cannot look at a disk. A volume is born `clean`, marked `dirty` before it becomes a cache, and `clean` again
once its agent has proven that the disk carries nothing. Whatever is not `clean` (dirty, another word, no tag at all)
may hold the only copy of somebody's data and stays, however long ago it expired.

Should its machine come to life between the last look and the deletion, one of two is first: the deletion, and the
machine finds no volume where it has put nothing yet; or the attachment, and the cloud deletes nothing that is attached.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from elastio.core.model import VolumeId, VolumeTag
from elastio.errors import ElastioError


@dataclass(frozen=True, slots=True)
class FleetVolume:
    """A volume as the account shows it. `is_free`: attached to nothing and at rest. `expires_wall` None: unreadable."""

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
        """One volume now; None when it is gone."""
        ...

    def delete(self, volume_id: VolumeId) -> None:
        """Ask for deletion; the cloud refuses an attached one. Already gone: no error."""
        ...


def why_keep(volume: FleetVolume, wall: float) -> str:
    """Why the volume stays, or an empty string when it may be deleted."""
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
class SweepResult:
    """What became of one volume: `kept`, `deleted`, `failed`, or, in a dry run, `would delete`."""

    volume: FleetVolume
    outcome: str
    reason: str = ""


def sweep(fleet: Fleet, wall: float, *, dry_run: bool) -> Iterator[SweepResult]:
    """Judge every volume, and delete those that may go. One that fails does not stop the others."""
    for volume in fleet.volumes():
        kept = why_keep(volume, wall)
        if kept:
            yield SweepResult(volume, "kept", kept)
        elif dry_run:
            yield SweepResult(volume, "would delete", "clean, expired and attached to nothing")
        else:
            yield _delete(fleet, volume, wall)


def _delete(fleet: Fleet, volume: FleetVolume, wall: float) -> SweepResult:
    """On a look of its own: a list of thousands may be minutes old."""
    try:
        now = fleet.volume(volume.id)
        if now is None:
            return SweepResult(volume, "kept", "it is gone already")
        kept = why_keep(now, wall)
        if kept:
            return SweepResult(now, "kept", kept)
        fleet.delete(volume.id)
    except ElastioError as error:
        return SweepResult(volume, "failed", str(error))
    return SweepResult(volume, "deleted", "clean, expired and attached to nothing")
