"""The line of /etc/fstab for the adaptive device's filesystem: found, judged, and added once.

Theory of operation. The line names the filesystem by its UUID, because bcache numbers its devices in the order in which
they appear. It has `nofail`: the device does not appear while its cache is missing, and the machine must boot without
it. It has a longer time-out than systemd's 90 s, because a cloud may show the cache's disk minutes after the boot; with
`nofail` nothing waits for it. Sources: fstab(5), systemd.mount(5).
"""

from __future__ import annotations

import re
import stat
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from elastio import whole_file
from elastio.errors import ConfigError
from elastio.host.mounts import unescape

OPTIONS = ("defaults", "nofail", "x-systemd.device-timeout=5min")
# Order of fsck(8) at boot: after the root filesystem; XFS repairs itself when it is mounted.
PASS_NUMBERS = {"ext4": 2, "xfs": 0}
BY_UUID = ("UUID=", "/dev/disk/by-uuid/")
_ESCAPED = re.compile(r"[ \t\n\\#]")


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of fstab: what is mounted, where, and how."""

    source: str
    place: str
    kind: str
    options: tuple[str, ...]

    def is_of(self, uuid: str, adaptive: str) -> bool:
        """Whether it names this filesystem."""
        source = self.source.replace('"', "")
        return source == f"/dev/{adaptive}" or any(source.lower() == f"{by}{uuid}".lower() for by in BY_UUID)

    def needs(self, place: str) -> bool:
        """Whether it can be mounted only when something is mounted there."""
        named = [part for option in self.options for part in option.partition("=")[2].split(":")]
        paths = (path for path in (self.place, self.source, *named) if path.startswith("/"))
        return any(Path(path).is_relative_to(place) for path in paths)


def entries(text: str) -> tuple[Entry, ...]:
    """Every entry; comments, and lines without a place, are left out. As getmntent(3), which systemd reads it with."""
    lines = (line.split() for line in text.splitlines() if not line.lstrip().startswith("#"))
    rows = ([*words, "", ""] for words in lines if len(words) >= 2)
    return tuple(
        Entry(unescape(row[0]), unescape(row[1]).rstrip("/") or "/", row[2], tuple(row[3].split(","))) for row in rows
    )


def dependents(found: tuple[Entry, ...], first: Collection[Entry]) -> tuple[Entry, ...]:
    """Of all entries those that systemd mounts only after one of the first (systemd.mount(5)), without these.

    They lie below it, are mounted from a file or directory on it, or have one in their options.
    """
    known, places = list(first), {entry.place for entry in first}
    while more := [entry for entry in found if entry not in known and any(entry.needs(place) for place in places)]:
        known += more
        places = {entry.place for entry in more}
    return tuple(entry for entry in known if entry not in first)


def crypt_entries(text: str) -> tuple[Entry, ...]:
    """Every entry of crypttab(5); the place is the name of the device that is opened."""
    rows = ([*line.split(), "", ""] for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#"))
    return tuple(Entry(row[1], row[0], "", tuple(row[3].split(","))) for row in rows)


def line_for(uuid: str, place: Path, kind: str) -> str:
    """The line to add, without its end."""
    shown = _ESCAPED.sub(lambda found: f"\\{ord(found[0]):03o}", str(place))
    return f"UUID={uuid} {shown} {kind} {','.join(OPTIONS)} 0 {PASS_NUMBERS[kind]}"


def has_line(text: str, uuid: str, adaptive: str, place: Path) -> bool:
    """Whether a line mounts this filesystem there. Raises ConfigError for a line that contradicts it."""
    require_free(text, place, uuid, adaptive)
    found = [entry for entry in entries(text) if entry.is_of(uuid, adaptive)]
    for entry in found:
        if entry.place != str(place):
            raise ConfigError(
                f"/etc/fstab mounts this filesystem at {entry.place}, not at {place}: name that place, or correct it",
                code="fstab.elsewhere",
            )
        if "nofail" not in entry.options:
            raise ConfigError(
                f"the line for {place} in /etc/fstab lacks nofail, and without its cache the machine would not boot: "
                "add it",
                code="fstab.nofail",
            )
    return bool(found)


def require_free(text: str, place: Path, uuid: str = "", adaptive: str = "") -> None:
    """Raises ConfigError if something else is to be mounted there."""
    for entry in entries(text):
        if entry.place == str(place) and not (uuid and entry.is_of(uuid, adaptive)):
            raise ConfigError(
                f"/etc/fstab mounts {entry.source} at {place}: choose another place", code="fstab.mountpoint"
            )


def with_line(text: str, line: str) -> str:
    """The text with the line at its end."""
    return f"{text}{'' if not text or text.endswith(chr(10)) else chr(10)}{line}\n"


def write(path: Path, text: str, code: str = "fstab.unwritable") -> None:
    """Replace the file, with its owner and mode, or leave it as it is. Raises ConfigError, with the code if it cannot.

    Durable when it returns: the machine may be rebooted to try it.
    """
    path = path.resolve()
    try:
        before = path.stat() if path.exists() else None
        if not whole_file.is_replaceable(path):
            raise ConfigError(f"{path} is not a regular file and was not changed", code="fstab.not_regular")
        mode, owner = (stat.S_IMODE(before.st_mode), (before.st_uid, before.st_gid)) if before else (0o644, (0, 0))
        whole_file.replace(path, text.encode(errors="surrogateescape"), mode=mode, owner=owner, sync=True)
        whole_file.sync_directory(path.parent)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror or error}", code=code) from error


def read(path: Path) -> str:
    """The text; empty if there is no file. Raises ConfigError."""
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape")
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}", code="fstab.unreadable") from error
