"""Decides by their tags which volumes of dead machines may be deleted. Pure except for the fleet it is given.

A janitor cannot read a disk. A volume is created with the tag `clean`, gets `dirty` before it becomes a cache, and
`clean` again once its agent has verified that it holds no data. A volume with any other tag, or none, may hold the only
copy of data and is kept, however long ago it expired.

If its machine starts again between the last check and the deletion, there are two cases. The deletion comes first: the
machine finds no volume, and has not written to it. The attachment comes first: the cloud refuses to delete it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from elastio.core.model import VolumeId, VolumeTag
from elastio.errors import ElastioError


@dataclass(frozen=True, slots=True)
class FleetVolume:
    """A volume as the cloud lists it. `is_free`: not attached and in no transition. `expires_wall` None: invalid."""

    id: VolumeId
    state: str
    is_free: bool
    size_bytes: int
    owner: str
    backing_uuid: str
    tag: VolumeTag
    expires_wall: float | None


class Fleet(Protocol):
    """The volumes of an account, for use outside its machines. Raises `ProviderError`."""

    def volumes(self) -> Iterator[FleetVolume]:
        """Every volume with an owner tag."""

    def volume(self, volume_id: VolumeId) -> FleetVolume | None:
        """The current state of a volume; None if it does not exist."""

    def delete(self, volume_id: VolumeId) -> None:
        """Request the deletion. The cloud refuses it for an attached volume. No error if the volume does not exist."""


def why_keep(volume: FleetVolume, wall: float) -> str:
    """Why the volume is kept; empty if it may be deleted."""
    if not volume.owner or not volume.backing_uuid:
        return "it does not have the tags of an agent"
    if not volume.is_free:
        return f"it is {volume.state}"
    if volume.tag is not VolumeTag.CLEAN:
        return f"it is tagged {volume.tag} and may hold data of the backing device {volume.backing_uuid}"
    if volume.expires_wall is None:
        return "its expiry is invalid"
    if wall < volume.expires_wall:
        return "it has not expired"
    return ""


@dataclass(frozen=True, slots=True)
class SweepResult:
    """What happened to a volume: `kept`, `deleted`, `failed` or, in a dry run, `would delete`."""

    volume: FleetVolume
    outcome: str
    reason: str = ""


def sweep(fleet: Fleet, wall: float, *, dry_run: bool) -> Iterator[SweepResult]:
    """Check every volume and delete those that may be deleted. A failure does not stop the sweep."""
    for volume in fleet.volumes():
        kept = why_keep(volume, wall)
        if kept:
            yield SweepResult(volume, "kept", kept)
        elif dry_run:
            yield SweepResult(volume, "would delete", "clean, expired and not attached")
        else:
            yield _delete(fleet, volume, wall)


def _delete(fleet: Fleet, volume: FleetVolume, wall: float) -> SweepResult:
    """Checks the volume again: a list of thousands may be minutes old."""
    try:
        now = fleet.volume(volume.id)
        if now is None:
            return SweepResult(volume, "kept", "it no longer exists")
        kept = why_keep(now, wall)
        if kept:
            return SweepResult(now, "kept", kept)
        fleet.delete(volume.id)
    except ElastioError as error:
        return SweepResult(volume, "failed", str(error))
    return SweepResult(volume, "deleted", "clean, expired and not attached")
