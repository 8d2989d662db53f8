"""Volumes of servers that are gone: who owns one, whether that server can start again, and a new owner.

The access rules of the credential need one more for this: GET of every server (`/v2.1/servers/*`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from elastio.core.foreign import ForeignVolume, OwnerState
from elastio.core.model import Volume, VolumeId, VolumeTag
from elastio.errors import ProviderError, TransientError
from elastio_openstack import queries, volumes
from elastio_openstack.catalog import CINDER
from elastio_openstack.responses import object_in, parsing

if TYPE_CHECKING:
    from elastio_openstack.client import Cloud

NOVA = "compute"
PROJECT_OF_VOLUME = "os-vol-tenant-attr:tenant_id"


def foreign(cloud: Cloud, shown: Mapping[str, Any], server: Mapping[str, Any]) -> ForeignVolume:
    """The volume and its owner; `server` is Nova's record of this machine. Raises errors of `elastio.errors`."""
    with parsing("a volume"):
        owner = str((shown.get("metadata") or {}).get(volumes.OWNER_KEY, ""))
        me = str(server["id"])
        is_same_project = shown.get(PROJECT_OF_VOLUME) == server.get("tenant_id") is not None
    records = queries.attachment_records(cloud, str(shown["id"])) if volumes.is_taken(shown) else []
    with parsing("a volume"):
        seen = volumes.volume_of(shown, me, records)
    if owner == me:
        return ForeignVolume(seen, owner, OwnerState.SELF)
    # A server of another project looks as if it did not exist, and a volume is used in its own project only.
    state = owner_state(cloud, owner) if owner and is_same_project else OwnerState.UNKNOWN
    return ForeignVolume(seen, owner, state)


def list_for_backing(cloud: Cloud, backing_uuid: str, server_id: str) -> tuple[Volume, ...]:
    """The volumes that were bought for this backing device, as seen from this server. Raises `elastio.errors`."""
    found = []
    for shown in queries.list_volumes(cloud, {volumes.BACKING_KEY: backing_uuid}):
        records = queries.attachment_records(cloud, str(shown["id"])) if volumes.is_taken(shown) else []
        with parsing("a volume"):
            found.append(volumes.volume_of(shown, server_id, records))
    return tuple(found)


def owner_state(cloud: Cloud, owner: str) -> OwnerState:
    """What Nova says about a server of this project. One that was soft-deleted can be restored: THERE."""
    try:
        found = object_in(cloud.call(NOVA, "GET", f"/servers/{quote(owner)}"), "server")
    except ProviderError as error:
        if error.code != queries.NOT_FOUND:
            raise
        return OwnerState.GONE
    return OwnerState.GONE if found.get("status") == "DELETED" else OwnerState.THERE


def take_over(cloud: Cloud, volume_id: VolumeId, server_id: str) -> dict[str, Any]:
    """The volume after both values were replaced in one request: a volume that changes its owner is never clean."""
    body = {"metadata": {volumes.OWNER_KEY: server_id, volumes.STATE_KEY: VolumeTag.DIRTY.value}}
    cloud.call(CINDER, "POST", f"/volumes/{quote(volume_id)}/metadata", body)
    shown = queries.show_volume(cloud, volume_id)
    if shown is None:
        raise TransientError(f"{volume_id} is not known to Cinder; the call will be repeated.", code="volume.unknown")
    return shown
