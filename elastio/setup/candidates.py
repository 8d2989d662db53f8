"""Finds the registered backing devices. Read-only."""

from __future__ import annotations

from dataclasses import dataclass

from elastio.errors import ConfigError
from elastio.host.sysfs import Sysfs
from elastio.units import SECTOR


@dataclass(frozen=True, slots=True)
class Candidate:
    """A registered backing device. `adaptive` is its bcacheN, None while it does not run."""

    device: str
    uuid: str
    size_bytes: int
    adaptive: str | None

    def __str__(self) -> str:
        return f"{self.uuid} (/dev/{self.device}{f', /dev/{self.adaptive}' if self.adaptive else ''})"


def candidates(sysfs: Sysfs) -> tuple[Candidate, ...]:
    """Every registered backing device, disks and partitions, by name."""
    found = []
    for device in sysfs.names("sys/class/block"):
        directory = f"sys/class/block/{device}/bcache"
        # bcacheN has the same directory as its backing device
        uuid = "" if device.startswith("bcache") else sysfs.read_or(f"{directory}/backing_dev_uuid", "")
        if uuid:
            size = int(sysfs.read_or(f"sys/class/block/{device}/size", "0")) * SECTOR
            found.append(Candidate(device, uuid, size, sysfs.link(f"{directory}/dev")))
    return tuple(found)


def choose(found: tuple[Candidate, ...], wanted: str | None) -> Candidate:
    """The wanted one (by UUID, /dev/vdb or /dev/bcache0), or the only one. Raises ConfigError that lists all."""
    shown = "; ".join(map(str, found)) or "none"
    if wanted is not None:
        name = wanted.removeprefix("/dev/")
        for candidate in found:
            if name in (candidate.uuid, candidate.device, candidate.adaptive):
                return candidate
        raise ConfigError(f"{wanted} is not a registered backing device (registered: {shown})", code="device.unknown")
    if not found:
        raise ConfigError(
            "no backing device is registered with bcache: create one with `elastio device create`", code="device.none"
        )
    if len(found) > 1:
        raise ConfigError(
            f"several backing devices are registered, name one with --device: {shown}", code="device.ambiguous"
        )
    return found[0]
