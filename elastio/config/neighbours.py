"""The other devices of this VM: what stands in the configuration files beside one.

A file that cannot be read is not a reason for the agent of another device to stop: what it holds is not known then.
Where caps are shared, it may have held the lowest one: the agent starts, and buys nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elastio.config.files import read_merged
from elastio.config.paths import MAIN, NAME
from elastio.errors import ConfigError

UNKNOWN_CAPS = "caps.unknown"


@dataclass(frozen=True, slots=True)
class Device:
    """A device by its configuration file. `uuid` is that of the backing device; empty: the file does not say it."""

    name: str
    path: Path
    uuid: str

    def __str__(self) -> str:
        return f"{self.name} ({self.uuid or 'no device.backing_uuid'})"


def devices_in(directory: Path) -> tuple[Device, ...]:
    """The devices that are configured in this directory: that of `elastio.toml` first, then by name.

    A second file for the device of `elastio.toml` is none of its own, for example a copy that somebody kept.
    """
    files = sorted(directory.glob("*.toml"), key=lambda path: (path.stem != MAIN, path.stem))
    found = [Device(p.stem, p, uuid_of(p)) for p in files if NAME.fullmatch(p.stem)]
    main = next((d.uuid for d in found if d.name == MAIN), "")
    return tuple(d for d in found if d.name == MAIN or not main or d.uuid != main)


def require_only_one(path: Path, backing_uuid: str) -> None:
    """Raises ConfigError if another file beside `path` is for the same backing device. `elastio.toml` comes first."""
    if path.stem == MAIN:
        return
    for other in _beside(path):
        if uuid_of(other) == backing_uuid:
            raise ConfigError(
                f"{path} and {other} are for the same backing device {backing_uuid}: keep one of them",
                code="device.backing_uuid",
            )


def uuids_beside(path: Path) -> frozenset[str]:
    """The UUIDs of the backing devices that other files beside `path` name."""
    return frozenset(uuid for other in _beside(path) if (uuid := uuid_of(other)))


def sharing_with(path: Path) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """The files beside `path` whose caps are shared, and their documents. Raises ConfigError if that is not known."""
    for other in _beside(path):
        try:
            document = read_merged(other)
        except ConfigError as error:
            if error.code == "file.missing":  # removed meanwhile, or a link to nothing
                continue
            raise ConfigError(f"the caps that {path} shares are not known: {error}", code=UNKNOWN_CAPS) from error
        caps = document.get("caps")
        if isinstance(caps, Mapping) and caps.get("shared") is True:
            yield other, document


def _beside(path: Path) -> Iterator[Path]:
    return (p for p in sorted(path.parent.glob("*.toml")) if p.stem != path.stem and NAME.fullmatch(p.stem))


def _document(path: Path) -> Mapping[str, Any]:
    """What the file and its drop-ins hold; nothing if they cannot be used."""
    try:
        return read_merged(path)
    except ConfigError:
        return {}


def uuid_of(path: Path) -> str:
    """The UUID of the backing device that the file names; empty: none, or it cannot be read."""
    device = _document(path).get("device")
    found = device.get("backing_uuid") if isinstance(device, Mapping) else None
    return found.lower() if isinstance(found, str) else ""
