"""What this project may buy: volume types with their speeds, and the quota."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from elastio.errors import AuthError, RefusedError
from elastio_openstack import speeds
from elastio_openstack.answers import read_as, rows, table
from elastio_openstack.settings import Declared, Settings

if TYPE_CHECKING:
    from elastio_openstack.client import Cloud

CINDER = "block-storage"
_log = logging.getLogger(__name__)


class Catalog:
    """Asks Cinder anew each time: an operator changes types and quotas while the agent runs."""

    def __init__(self, settings: Settings, cloud: Callable[[], Cloud]) -> None:
        self._settings, self._cloud = settings, cloud

    def types(self) -> list[speeds.Speed]:
        """Every volume type whose bandwidth is known, or the one the settings name.

        RefusedError when Cinder has no type of that name.
        """
        shown = self.shown_types()
        specs = self._qos_specs(shown)
        found = []
        with read_as("the volume types"):
            for row in shown:
                name = str(row["name"])
                if self._settings.volume_type in ("", name):
                    declared = self._settings.types.get(name, Declared())
                    speed = speeds.speed_of(name, declared, specs.get(str(row.get("qos_specs_id"))))
                    found += [speed] if speed is not None else []
        return found

    def shown_types(self) -> list[dict[str, Any]]:
        """The volume types that Cinder shows this credential. RefusedError when the settings want another one."""
        found = rows(self._cloud().call(CINDER, "GET", "/types"), "volume_types")
        with read_as("the volume types"):
            names = sorted(str(row["name"]) for row in found)
        if self._settings.volume_type and self._settings.volume_type not in names:
            raise RefusedError(
                f"Cinder shows no volume type {self._settings.volume_type}, only {', '.join(names) or 'none'}; "
                "correct provider.openstack.volume_type.",
                code="provider.openstack.volume_type",
            )
        return found

    def limits(self) -> dict[str, int]:
        """Cinder's absolute limits of the project and what is used of them."""
        found = table(table(self._cloud().call(CINDER, "GET", "/limits"), "limits"), "absolute")
        with read_as("the quota"):
            return {key: int(value) for key, value in found.items()}

    def _qos_specs(self, types: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
        """The QoS specs by id; empty where this credential may not read them, which is the usual policy."""
        if not any(row.get("qos_specs_id") for row in types):
            return {}
        try:
            found = rows(self._cloud().call(CINDER, "GET", "/qos-specs"), "qos_specs")
        except (AuthError, RefusedError) as error:
            _log.info("QoS specs are not read: %s", error)
            return {}
        with read_as("the QoS specs"):
            return {str(row["id"]): row for row in found}
