"""The mount table: what is mounted where, and from which devices. Reads /proc and /dev only: no lock of bcache."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

from elastio.host.sysfs import Sysfs

TABLE = "proc/self/mountinfo"
_OCTAL = re.compile(r"\\([0-7]{3})")
# Options of overlay that name directories; since Linux 6.8 each layer may have an option of its own.
LAYERS = ("lowerdir", "lowerdir+", "datadir+", "upperdir", "workdir")
# Separates the layers of `lowerdir`; a colon that belongs to a name is escaped.
_LAYER = re.compile(r"(?<!\\):+")


@dataclass(frozen=True, slots=True)
class Mount:
    """One line of mountinfo (proc(5)).

    `number` is the filesystem's `major:minor`. It is a block device's only where the filesystem has a single one.
    btrfs, bcachefs, ZFS, overlay and NFS have a number of their own with major 0, and only `source` or `options` may
    name devices. `options` are as written, with octal numbers: a comma may be part of a name.
    """

    key: str
    number: str
    place: str
    kind: str = ""
    source: str = ""
    options: str = ""

    @property
    def is_anonymous(self) -> bool:
        return self.number.startswith("0:")

    @property
    def nodes(self) -> tuple[str, ...]:
        """The paths that may name its devices: bcachefs lists them with colons, XFS names its log in an option."""
        named = [value for _, value in self._values() if value.startswith("/dev/")]
        if self.is_anonymous:
            named += [self.source, *self.source.split(":")]
        return tuple(path for path in named if path.startswith("/"))

    @property
    def layers(self) -> tuple[str, ...]:
        """The directories that an overlay consists of; none for another filesystem."""
        if self.kind != "overlay":
            return ()
        paths = (path for name, value in self._values() if name in LAYERS for path in _LAYER.split(value))
        return tuple(path.replace("\\:", ":") for path in paths if path.startswith("/"))

    def _values(self) -> Iterator[tuple[str, str]]:
        for name, _, value in (option.partition("=") for option in self.options.split(",")):
            yield name, unescape(value)


def read(sysfs: Sysfs) -> tuple[Mount, ...]:
    """Every mount of this process's namespace, in mount order.

    Raises HostError if the table cannot be read: nobody may take that for "nothing is mounted".
    """
    rows = []
    for line in sysfs.read(TABLE).splitlines():
        mount, _, filesystem = line.partition(" - ")
        words, (kind, source, options) = mount.split(" "), [*filesystem.split(" "), "", "", ""][:3]
        if len(words) > 4:
            rows.append(Mount(words[0], words[2], unescape(words[4]), kind, unescape(source), options))
    return tuple(rows)


def below(table: Sequence[Mount], path: str) -> Mount | None:
    """The mount that this absolute path lies on: of the longest place, the one mounted last."""
    places = {mount.place: mount for mount in table}
    return next((places[str(p)] for p in (PurePath(path), *PurePath(path).parents) if str(p) in places), None)


def node_name(sysfs: Sysfs, path: str) -> str:
    """The kernel's name of a device node or a link to one: `dm-0` for /dev/mapper/vg-data. Empty outside of /dev."""
    if not path.startswith("/dev/"):
        return ""
    if path.startswith("/dev/mapper/"):
        mapped = path.removeprefix("/dev/mapper/")
        names = (name for name in sysfs.names("sys/block") if name.startswith("dm-"))
        known = next((name for name in names if sysfs.read_or(f"sys/block/{name}/dm/name", "") == mapped), "")
        if known:
            return known
    real = Path(os.path.realpath(sysfs.path(path[1:])))
    return real.name if real.parent == Path(os.path.realpath(sysfs.path("dev"))) else ""


def unescape(text: str) -> str:
    """mountinfo and swaps write spaces, tabs, newlines and backslashes as octal numbers."""
    return _OCTAL.sub(lambda found: chr(int(found[1], 8)), text)


def is_on(sysfs: Sysfs, mount: Mount, numbers: frozenset[str], names: frozenset[str]) -> bool:
    """Whether the filesystem lies on one of these devices, by `major:minor` or by the kernel's names."""
    if not mount.is_anonymous and mount.number in numbers:
        return True
    return any(node_name(sysfs, node) in names for node in mount.nodes)
