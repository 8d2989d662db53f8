"""Finds the registered backing devices. Read-only."""

from __future__ import annotations

import os.path
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from elastio.errors import ConfigError
from elastio.host.mounts import node_name
from elastio.host.sysfs import Sysfs
from elastio.host.usage import mounted_at
from elastio.host.view import registered
from elastio.units import SECTOR

# udev's links of bcache (69-bcache.rules).
_BY_UUID = "/dev/bcache/by-uuid/"


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


def choose(found: tuple[Candidate, ...], wanted: str | None, sysfs: Sysfs | None = None) -> Candidate:
    """The wanted one, or the only one that the agent uses.

    A name is a UUID, /dev/vdb, /dev/bcache0 or vdb; with `sysfs` also a link to one of these nodes and a mount point.
    Raises ConfigError that lists all, or says why the agent does not use it.
    """
    chosen = _only(found) if wanted is None else _named(found, wanted, sysfs)
    if chosen.why_not:
        raise ConfigError(f"/dev/{chosen.device} {chosen.why_not}", code="device.virtual")
    return chosen


def _named(found: tuple[Candidate, ...], wanted: str, sysfs: Sysfs | None) -> Candidate:
    path = os.path.normpath(os.path.realpath(wanted) if Path(wanted).is_symlink() else wanted)
    names = {path.removeprefix("/dev/"), path.removeprefix(_BY_UUID).lower()}
    if sysfs is not None:
        names.add(node_name(sysfs, path))
    matches = [each for each in found if names & {each.uuid, each.device, each.adaptive}]
    if not matches and sysfs is not None and path.startswith("/"):
        matches = [each for each in found if each.adaptive and path in mounted_at(sysfs, each.adaptive)]
    if not matches:
        text = f"{wanted} is not a registered backing device (registered: {_shown(found)})"
        raise ConfigError(text, code="device.unknown")
    return _one_of(matches)


def _only(found: tuple[Candidate, ...]) -> Candidate:
    used = tuple(candidate for candidate in found if not candidate.why_not) or found
    if not used:
        raise ConfigError(
            "no backing device is registered with bcache: create one with `elastio device create`", code="device.none"
        )
    return _one_of(used)


def _one_of(found: Sequence[Candidate]) -> Candidate:
    if len(found) > 1:
        raise ConfigError(
            f"several backing devices are registered, name one with --device: {_shown(found)}", code="device.ambiguous"
        )
    return found[0]


def _shown(found: Sequence[Candidate]) -> str:
    return "; ".join(map(str, found)) or "none"
