"""Which server this machine is, and whether it is one of an OpenStack cloud at all. Imports no SDK."""

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
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(frozen=True, slots=True)
class Places:
    """Where this machine may tell who it is; other than the defaults only for tests."""

    cloud_init: Path = CLOUD_INIT_DATA
    config_drive: Path = configdrive.LABEL
    dmi: Path = DMI


@dataclass(frozen=True, slots=True)
class Who:
    """One server. `zone` is empty where it is not known."""

    server_id: str
    zone: str


def who(settings: Settings, places: Places | None = None) -> Who:
    """From the settings, cloud-init's instance data, the config drive, the firmware, or the metadata service.

    The first that knows is believed. The firmware comes before the service: a kernel without a driver for the config
    drive's CD-ROM is common, and the firmware needs neither driver nor network.

    Bounded by twice TIMEOUT_S. Raises TransientError when the metadata service is the last hope and does not
    answer, RefusedError when it answers with something else, or when the settings name another server than the
    firmware does.
    """
    places = places or Places()
    if settings.instance_id:
        _require_own(settings.instance_id, places.dmi)
        return Who(settings.instance_id, "")
    return (
        _from_cloud_init(places.cloud_init)
        or _from_drive(places.config_drive)
        or _from_firmware(places.dmi)
        or _from_service(settings)
    )


def detect(places: Places | None = None) -> bool:
    """Whether cloud-init saw OpenStack at boot, or the machine's own maker is OpenStack."""
    places = places or Places()
    if _cloud_init_facts(places.cloud_init).get("cloud_name") == "openstack":
        return True
    return _is_novas(places.dmi)


def _is_novas(dmi: Path) -> bool:
    return any("openstack" in _text(dmi / name).lower() for name in ("sys_vendor", "product_name"))


def _firmware_id(dmi: Path) -> UUID | None:
    """Nova's libvirt driver gives a server's id to its firmware as the UUID. Only root may read it."""
    try:
        return UUID(_text(dmi / "product_uuid").strip()) if _is_novas(dmi) else None
    except ValueError:
        return None


def _require_own(server_id: str, dmi: Path) -> None:
    """A disk that is copied to another server takes a configured id along, and with it the other server's volumes.

    Old machine types show the UUID in the other byte order. Where the firmware knows nothing, nothing is refused.
    """
    told = _firmware_id(dmi)
    if told is not None and server_id.lower() not in (str(told), str(UUID(bytes=told.bytes_le))):
        raise RefusedError(
            f"provider.openstack.instance_id names the server {server_id}, but the firmware of this one says {told}; "
            "remove the setting, and the server is found out.",
            code="provider.openstack.instance_id",
        )


def _from_cloud_init(path: Path) -> Who | None:
    facts = _cloud_init_facts(path)
    if facts.get("cloud_name") != "openstack" or not facts.get("instance_id"):
        return None
    return Who(str(facts["instance_id"]), str(facts.get("availability_zone") or ""))


def _from_drive(device: Path) -> Who | None:
    """None where there is no drive, it may not be read, or it is damaged: the service is asked then."""
    try:
        return _who_of(json.loads(configdrive.read_file(device, DOCUMENT)))
    except (OSError, ValueError):
        return None


def _from_firmware(dmi: Path) -> Who | None:
    told = _firmware_id(dmi)
    return Who(str(told), "") if told is not None else None


def _from_service(settings: Settings) -> Who:
    url = f"{settings.metadata_url}/{DOCUMENT}"
    try:
        with _opener.open(url, timeout=TIMEOUT_S) as answer:
            found = _who_of(json.loads(answer.read(_MAX_BYTES)))
    except urllib.error.HTTPError as error:
        error.close()
        if error.code < 500:
            raise _not_openstack(url, error) from error
        raise _silent(url, error) from error
    except ValueError as error:
        raise _not_openstack(url, error) from error
    except (OSError, HTTPException) as error:
        raise _silent(url, error) from error
    if found is None:
        raise RefusedError(f"{url} names no server; set provider.openstack.instance_id.", code="metadata.incomplete")
    return found


def _silent(url: str, error: Exception) -> TransientError:
    return TransientError(
        f"No config drive is there and no metadata service answers at {url} ({error}); is this a server of an "
        "OpenStack cloud? provider.openstack.instance_id can name it.",
        code="metadata.unreachable",
    )


def _not_openstack(url: str, error: Exception) -> RefusedError:
    return RefusedError(
        f"{url} answers, but not with a server's metadata ({error}); set provider.openstack.instance_id.",
        code="metadata.malformed",
    )


def _who_of(document: Any) -> Who | None:
    if not isinstance(document, Mapping) or not document.get("uuid"):
        return None
    return Who(str(document["uuid"]), str(document.get("availability_zone") or ""))


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
