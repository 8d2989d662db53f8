"""Finds the registered backing devices. Read-only."""

from __future__ import annotations

from dataclasses import dataclass

from elastio.errors import ConfigError
from elastio.host.sysfs import Sysfs
from elastio.host.view import registered
from elastio.units import SECTOR


@dataclass(frozen=True, slots=True)
class Candidate:
    """A registered backing device. `adaptive` is its bcacheN, None while it does not run.

    `why_not`: why the agent does not use it, as the end of a sentence; empty if it does.
    """

    device: str
    uuid: str
    size_bytes: int
    adaptive: str | None
    why_not: str = ""

    def __str__(self) -> str:
        return f"{self.uuid} (/dev/{self.device}{f', /dev/{self.adaptive}' if self.adaptive else ''})"


def candidates(sysfs: Sysfs) -> tuple[Candidate, ...]:
    """Every registered backing device that the agent can use, disks and partitions, by name."""
    return tuple(candidate for candidate in all_candidates(sysfs) if not candidate.why_not)


def all_candidates(sysfs: Sysfs) -> tuple[Candidate, ...]:
    """The same, with those that the agent does not use: each says why."""
    found = []
    for uuid, backing in registered(sysfs):
        size = int(sysfs.read_or(f"{backing.directory.removesuffix('/bcache')}/size", "0")) * SECTOR
        found.append(Candidate(backing.device, uuid, size, backing.adaptive, backing.why_not))
    return tuple(found)


def choose(found: tuple[Candidate, ...], wanted: str | None) -> Candidate:
    """The wanted one (by UUID, /dev/vdb or /dev/bcache0), or the only one that the agent uses.

    Raises ConfigError that lists all, or says why the agent does not use it.
    """
    chosen = _chosen(found, wanted)
    if chosen.why_not:
        raise ConfigError(f"/dev/{chosen.device} {chosen.why_not}", code="device.virtual")
    return chosen


def _chosen(found: tuple[Candidate, ...], wanted: str | None) -> Candidate:
    shown = "; ".join(map(str, found)) or "none"
    if wanted is not None:
        name = wanted.removeprefix("/dev/")
        for candidate in found:
            if name in (candidate.uuid, candidate.device, candidate.adaptive):
                return candidate
        raise ConfigError(f"{wanted} is not a registered backing device (registered: {shown})", code="device.unknown")
    found = tuple(candidate for candidate in found if not candidate.why_not) or found
    if not found:
        raise ConfigError(
            "no backing device is registered with bcache: create one with `elastio device create`", code="device.none"
        )
    if len(found) > 1:
        raise ConfigError(
            f"several backing devices are registered, name one with --device: {shown}", code="device.ambiguous"
        )
    return found[0]
