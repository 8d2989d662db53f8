"""Calls to Cinder and Nova through the SDK's session, with a time-out each. Translates every error."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from keystoneauth1.adapter import Adapter
from openstack.config import OpenStackConfig

import elastio
from elastio.errors import AuthError, RefusedError
from elastio_openstack.settings import Settings
from elastio_openstack.translate import SDK_ERRORS, CloudError, message_of, translate

# Pinned, so that an upgraded cloud responds as before: attachment records (Cinder, Ocata), a server's flavor by its
# name, and servers without a network (Nova, Pike).
MICROVERSIONS: Mapping[str, str] = {"block-storage": "3.27", "compute": "2.47"}
MAJOR_VERSIONS: Mapping[str, str] = {"block-storage": "3", "compute": "2"}
_FAILED, _NOT_FOUND = 400, 404
_PURCHASE = ("POST", "/volumes")
# What the SDK raises for a clouds.yaml of the right syntax with wrong values: it has no class of its own for them.
_FILE_ERRORS = (TypeError, ValueError, AttributeError, KeyError, Warning)

# Inode, size and modification time of a file; None if there is none.
Stamp: TypeAlias = tuple[int, int, int] | None


class Cloud:
    """One project in one region. Safe to use from several threads.

    A changed clouds.yaml is read again before the next call: the agent need not be restarted for a new credential.

    Each request of a call takes at most `timeout_s` of the settings: one request, and three more while the token or the
    version of a service is unknown.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._region: Any = None
        self._is_region_named = False  # by somebody, not chosen by the SDK
        self._file: Path | None = None  # clouds.yaml, where one was found
        self._stamp: Stamp = None
        self._adapters: dict[str, Any] = {}

    def call(self, service: str, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """One request; a response without content is empty. Raises errors of `elastio.errors`."""
        operation = f"{method} {path.partition('?')[0]} of {service}"
        if (method, path) == _PURCHASE:
            self._require_one_region(service)
        try:
            response = self._adapter(service).request(
                path,
                method,
                json=body,
                microversion=MICROVERSIONS[service],
                raise_exc=False,
                timeout=self._settings.timeout_s,
            )
            found = _content(response)
            if response.status_code >= _FAILED:
                raise CloudError(response.status_code, message_of(found))
        except (*SDK_ERRORS, CloudError) as error:
            if isinstance(error, CloudError) and error.status == _NOT_FOUND and path.startswith("/servers/"):
                self._require_one_region(service)
            raise translate(operation, error) from error
        return found

    def _require_one_region(self, service: str) -> None:
        """Raises RefusedError if the cloud has several regions and nobody named one.

        Only where a volume would be bought, or the server is not found: what was bought before has to be released from
        the region that the SDK chooses.
        """
        try:
            region = self._cloud_region()
            names = () if self._is_region_named else _regions_of(region, service)
        except SDK_ERRORS as error:
            raise translate("Looking for the regions", error) from error
        if len(names) > 1:
            text = f"The cloud has the regions {', '.join(names)}, and none of them is named: set region_name in "
            raise RefusedError(f"{text}clouds.yaml, or provider.openstack.region.", code="provider.openstack.region")

    def region(self) -> str:
        """The region's name; empty if the cloud has none. Raises errors of `elastio.errors`."""
        try:
            name: str = self._cloud_region().region_name or ""
        except SDK_ERRORS as error:
            raise translate("Reading clouds.yaml", error) from error
        return name

    def login(self) -> dict[str, Any]:
        """Get a token, and return whose it is. Raises errors of `elastio.errors`."""
        try:
            session = self._cloud_region().get_session()
            access = session.auth.get_access(session)
        except SDK_ERRORS as error:
            raise translate("Logging in", error) from error
        return {
            "project": access.project_name or access.project_id or "",
            "user": access.username or access.user_id or "",
            "roles": list(access.role_names),
            "application_credential": bool(access.application_credential_id),
        }

    def close(self) -> None:
        """Close the connections and drop the token. The next call logs in again."""
        with self._lock:
            self._drop()

    def _drop(self) -> None:
        if self._region is not None:
            self._region.get_session().session.close()
        self._region = None
        self._adapters = {}

    def _adapter(self, service: str) -> Any:
        region = self._cloud_region()
        with self._lock:
            if service not in self._adapters:
                # The SDK's own client of a service needs a connection to all of them; a session is enough here.
                self._adapters[service] = Adapter(
                    region.get_session(),
                    service_type=service,
                    service_name=region.get_service_name(service),
                    interface=region.get_interface(service),
                    region_name=region.get_region_name(service),
                    endpoint_override=region.get_endpoint(service),
                    version=MAJOR_VERSIONS[service],
                )
            return self._adapters[service]

    def _cloud_region(self) -> Any:
        with self._lock:
            stamp = _stamp(self._file)
            # None: an editor is replacing the file, and the old credential may still be valid.
            if stamp is not None and stamp != self._stamp:
                self._drop()
            if self._region is None:
                self._region = self._load_region()
            return self._region

    def _load_region(self) -> Any:
        settings = self._settings
        files = {"config_files": [settings.clouds_file], "load_envvars": False} if settings.clouds_file else {}
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("error", message=".*vendor profile")
                config = OpenStackConfig(app_name="elastio", app_version=elastio.__version__, **files)
                self._file = Path(config.config_filename) if config.config_filename else None
                self._stamp = _stamp(self._file)
                chosen = {"cloud": _require_one_cloud(config, settings.cloud)}
                if settings.region:
                    chosen["region_name"] = settings.region
                found = config.get_one(api_timeout=settings.timeout_s, **chosen)
                _require_url(found.config["auth"].get("auth_url"))
                _require_text("interface", found.config.get("interface"))
                found.get_session()
                self._is_region_named = _is_region_named(config, found.name, settings)
        except _FILE_ERRORS as error:
            name = f"The entry {settings.cloud or 'used'} of {self._file or 'clouds.yaml'}"
            text = f"{name} cannot be used ({type(error).__name__}: {error}); {_NEEDED}."
            raise AuthError(text, code="clouds.entry") from error
        return found


_NEEDED = (
    "an application credential needs `auth_type: v3applicationcredential`, and under `auth` its id, its secret and an "
    "auth_url that begins with http:// or https://"
)


def _require_url(url: str | None) -> None:
    """Raises ValueError for an auth_url that cannot be one; without one, the SDK names what is missing."""
    if not url:
        return
    parts = urlsplit(url.strip())
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
        raise ValueError(f"auth_url: {url!r}")


def _require_text(key: str, value: object) -> None:
    """Raises TypeError for a value that is not text; the SDK would fail with the first call."""
    if value is not None and not isinstance(value, str):
        raise TypeError(f"{key}: {value!r}")


def _require_one_cloud(config: OpenStackConfig, cloud: str) -> str | None:
    """The cloud to use; None: the only one. Raises AuthError if there are several and nobody named one."""
    names = config.get_cloud_names()
    if cloud or os.environ.get("OS_CLOUD") or len(names) < 2:
        return cloud or None
    text = f"clouds.yaml has several clouds, {', '.join(sorted(names))}: set provider.openstack.cloud to one of them."
    raise AuthError(text, code="provider.openstack.cloud")


def _is_region_named(config: OpenStackConfig, cloud: str, settings: Settings) -> bool:
    entry = (config.cloud_config.get("clouds") or {}).get(cloud) or {}
    by_environment = not settings.clouds_file and os.environ.get("OS_REGION_NAME")
    return bool(settings.region or by_environment or entry.get("region_name")) or len(entry.get("regions") or ()) == 1


def _regions_of(region: Any, service: str) -> tuple[str, ...]:
    """In which the catalog has the service. May raise the SDK's errors."""
    session = region.get_session()
    catalog = session.auth.get_access(session).service_catalog
    found = catalog.get_endpoints_data(service_type=service, interface=region.get_interface(service))
    return tuple(sorted({str(e.raw_endpoint.get("region")) for endpoints in found.values() for e in endpoints}))


def _stamp(path: Path | None) -> Stamp:
    try:
        found = path.stat() if path is not None else None
    except OSError:
        return None
    return (found.st_ino, found.st_size, found.st_mtime_ns) if found is not None else None


def _content(response: Any) -> dict[str, Any]:
    if not response.content:
        return {}
    try:
        found = response.json()
    except ValueError as error:
        if response.status_code >= _FAILED:
            return {}
        raise CloudError(502, "the response is not JSON") from error
    return found if isinstance(found, dict) else {}
