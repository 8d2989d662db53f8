"""The bandwidth of a volume that is attached to this server and that somebody else bought."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from elastio.core.model import Serial, VolumeId
from elastio_openstack import queries, volumes
from elastio_openstack.responses import parsing
from elastio_openstack.speeds import Speed

if TYPE_CHECKING:
    from elastio_openstack.catalog import Catalog
    from elastio_openstack.client import Cloud

ATTACHED = "os-extended-volumes:volumes_attached"


def volume_id_of(server: Mapping[str, Any], serial: Serial) -> VolumeId | None:
    """The one volume of the server whose disk shows this serial, or its beginning; None if it is not certain."""
    with parsing("a server"):
        ids = [str(row["id"]) for row in server.get(ATTACHED) or ()]
    found = [name for name in ids if serial in (name, volumes.serial_of(name))]
    return VolumeId(found[0]) if len(found) == 1 else None


def bandwidth(cloud: Cloud, server: Mapping[str, Any], serial: Serial, catalog: Catalog) -> float | None:
    """MB/s of the volume's type at its size; None if the cloud does not say. Raises errors of `elastio.errors`."""
    volume_id = volume_id_of(server, serial)
    shown = None if volume_id is None else queries.show_volume(cloud, volume_id)
    if shown is None:
        return None
    return of_type(shown, catalog.all_types())


def of_type(shown: Mapping[str, Any], known: Iterable[Speed]) -> float | None:
    """MB/s of a volume by its type; None if the type is not known."""
    with parsing("a volume"):
        kind, size_gib = str(shown.get("volume_type") or ""), int(shown.get("size") or 0)
    speed = next((speed for speed in known if speed.name == kind), None)
    return None if speed is None else speed.at(size_gib)
