"""What this project may buy: the volume types with their bandwidths, and the quota."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from elastio.errors import AuthError, RefusedError
from elastio_openstack import speeds
from elastio_openstack.responses import list_in, object_in, parsing
from elastio_openstack.settings import Declared, Settings

if TYPE_CHECKING:
    from elastio_openstack.client import Cloud

CINDER = "block-storage"
_log = logging.getLogger(__name__)


class Catalog:
    """Queries Cinder every time: types and quotas may change while the agent runs."""

    def __init__(self, settings: Settings, cloud: Callable[[], Cloud]) -> None:
        self._settings, self._cloud = settings, cloud

    def types(self) -> list[speeds.Speed]:
        """Every volume type with a known bandwidth, or only the one that the settings name.

        Raises RefusedError if Cinder has no type of that name.
        """
        return [speed for speed in self.all_types() if self._settings.volume_type in ("", speed.name)]

    def all_types(self) -> list[speeds.Speed]:
        """Every volume type with a known bandwidth, also those that are not to be bought."""
        shown = self.listed_types()
        specs = self._qos_specs(shown)
        found = []
        with parsing("the volume types"):
            for row in shown:
                name = str(row["name"])
                declared = self._settings.types.get(name, Declared())
                speed = speeds.speed_of(name, declared, specs.get(str(row.get("qos_specs_id"))))
                found += [speed] if speed is not None else []
        return found

    def listed_types(self) -> list[dict[str, Any]]:
        """The volume types that Cinder lists. Raises RefusedError if the one in the settings is not among them."""
        found = list_in(self._cloud().call(CINDER, "GET", "/types"), "volume_types")
        with parsing("the volume types"):
            names = sorted(str(row["name"]) for row in found)
        if self._settings.volume_type and self._settings.volume_type not in names:
            raise RefusedError(
                f"Cinder lists no volume type {self._settings.volume_type}, only {', '.join(names) or 'none'}; "
                "correct provider.openstack.volume_type.",
                code="provider.openstack.volume_type",
            )
        return found

    def limits(self) -> dict[str, int]:
        """Cinder's absolute limits of the project, and their use."""
        found = object_in(object_in(self._cloud().call(CINDER, "GET", "/limits"), "limits"), "absolute")
        with parsing("the quota"):
            return {key: int(value) for key, value in found.items()}

    def _qos_specs(self, types: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
        """The QoS specs by id; empty if the credential may not read them, as by Cinder's default policy."""
        if not any(row.get("qos_specs_id") for row in types):
            return {}
        try:
            found = list_in(self._cloud().call(CINDER, "GET", "/qos-specs"), "qos_specs")
        except (AuthError, RefusedError) as error:
            _log.info("QoS specs not available: %s", error)
            return {}
        with parsing("the QoS specs"):
            return {str(row["id"]): row for row in found}
