"""Which server of an OpenStack cloud this machine is, if it is one. Does not import the SDK."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any
from uuid import UUID

from elastio.errors import RefusedError, TransientError
from elastio_openstack import configdrive
from elastio_openstack.settings import Settings

CLOUD_INIT_DATA = Path("/run/cloud-init/instance-data.json")
DMI = Path("/sys/class/dmi/id")
DOCUMENT = "openstack/latest/meta_data.json"
TIMEOUT_S = 2.0
_MAX_BYTES = 1 << 20
_SETTING, _OTHER_SERVER = "provider.openstack.instance_id", "metadata.other-server"
_REMEDIES = {
    _SETTING: "remove the setting, and the id is detected",
    _OTHER_SERVER: "it is from an image of that server: run `cloud-init clean` and reboot (best before an image is "
    f"made), or set {_SETTING} to this server's id",
}
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(frozen=True, slots=True)
class Places:
    """The sources of the server's identity on this machine; differ from the defaults only in tests."""

    cloud_init: Path = CLOUD_INIT_DATA
    config_drive: Path = configdrive.LABEL
    dmi: Path = DMI


@dataclass(frozen=True, slots=True)
class ServerIdentity:
    """One server. `zone` is empty if unknown."""

    server_id: str
    zone: str


def who(settings: Settings, places: Places | None = None) -> ServerIdentity:
    """From the settings, cloud-init's instance data, the config drive, the firmware, or the metadata service.

    The first source that has it is used. The firmware comes before the service: many kernels lack a driver for the
    config drive's CD-ROM, and the firmware needs neither driver nor network.

    Takes at most twice TIMEOUT_S. Raises TransientError if the other sources have nothing and the metadata service does
    not respond, and RefusedError if it returns something else, or if the source that is used names another server than
    the firmware: settings, cloud-init's cache and a config drive are copied with a disk.
    """
    places = places or Places()
    if settings.instance_id:
        return _own(ServerIdentity(settings.instance_id, ""), places.dmi, _SETTING, code=_SETTING)
    if (found := _from_cloud_init(places.cloud_init)) is not None:
        return _own(found, places.dmi, f"cloud-init's {places.cloud_init}")
    if (found := _from_drive(places.config_drive)) is not None:
        return _own(found, places.dmi, f"the config drive {places.config_drive}")
    return _from_firmware(places.dmi) or _from_service(settings)


def detect(places: Places | None = None) -> bool:
    """Whether cloud-init detected OpenStack at boot, or the firmware names OpenStack as the vendor."""
    places = places or Places()
    if _cloud_init_facts(places.cloud_init).get("cloud_name") == "openstack":
        return True
    return _is_nova_guest(places.dmi)


def _is_nova_guest(dmi: Path) -> bool:
    return any("openstack" in _text(dmi / name).lower() for name in ("sys_vendor", "product_name"))


def _firmware_id(dmi: Path) -> UUID | None:
    """The UUID in the firmware, which Nova's libvirt driver sets to the server's id. Only root may read it."""
    try:
        return UUID(_text(dmi / "product_uuid").strip()) if _is_nova_guest(dmi) else None
    except ValueError:
        return None


def _own(found: ServerIdentity, dmi: Path, source: str, *, code: str = _OTHER_SERVER) -> ServerIdentity:
    """What the source says, checked against the firmware: with another server's id its volumes would be released.

    Old machine types show the UUID in the other byte order; so the firmware only contradicts a source, and does not
    replace it. Without a UUID in the firmware any id passes.
    """
    firmware_id = _firmware_id(dmi)
    if firmware_id is None or found.server_id.lower() in (str(firmware_id), str(UUID(bytes=firmware_id.bytes_le))):
        return found
    raise RefusedError(
        f"{source} names server {found.server_id}, but this server's firmware says {firmware_id}; {_REMEDIES[code]}.",
        code=code,
    )


def _from_cloud_init(path: Path) -> ServerIdentity | None:
    facts = _cloud_init_facts(path)
    if facts.get("cloud_name") != "openstack" or not facts.get("instance_id"):
        return None
    return ServerIdentity(str(facts["instance_id"]), str(facts.get("availability_zone") or ""))


def _from_drive(device: Path) -> ServerIdentity | None:
    """None if the drive is missing, unreadable or damaged: then the next source is used."""
    try:
        return _identity_in(json.loads(configdrive.read_file(device, DOCUMENT)))
    except (OSError, ValueError):
        return None


def _from_firmware(dmi: Path) -> ServerIdentity | None:
    firmware_id = _firmware_id(dmi)
    return ServerIdentity(str(firmware_id), "") if firmware_id is not None else None


def _from_service(settings: Settings) -> ServerIdentity:
    url = f"{settings.metadata_url}/{DOCUMENT}"
    try:
        with _opener.open(url, timeout=TIMEOUT_S) as response:
            found = _identity_in(json.loads(response.read(_MAX_BYTES)))
    except urllib.error.HTTPError as error:
        error.close()
        if error.code < 500:
            raise _malformed(url, error) from error
        raise _unreachable(url, error) from error
    except ValueError as error:
        raise _malformed(url, error) from error
    except (OSError, HTTPException) as error:
        raise _unreachable(url, error) from error
    if found is None:
        raise RefusedError(
            f"{url} contains no server id; set provider.openstack.instance_id.", code="metadata.incomplete"
        )
    return found


def _unreachable(url: str, error: Exception) -> TransientError:
    return TransientError(
        f"There is no config drive, and the metadata service at {url} does not respond ({error}); check that this is a "
        "server of an OpenStack cloud, or set provider.openstack.instance_id.",
        code="metadata.unreachable",
    )


def _malformed(url: str, error: Exception) -> RefusedError:
    return RefusedError(
        f"{url} did not return a server's metadata ({error}); set provider.openstack.instance_id.",
        code="metadata.malformed",
    )


def _identity_in(document: Any) -> ServerIdentity | None:
    if not isinstance(document, Mapping) or not document.get("uuid"):
        return None
    return ServerIdentity(str(document["uuid"]), str(document.get("availability_zone") or ""))


def _cloud_init_facts(path: Path) -> Mapping[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    facts = data.get("v1") if isinstance(data, dict) else None
    return facts if isinstance(facts, dict) else {}


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
