"""Reading and writing /sys. Nothing else in the agent writes there.

The root is a parameter so that a recorded tree can stand in for the kernel in tests.
"""

from __future__ import annotations

import os
from pathlib import Path

from elastio.errors import HostError


class Sysfs:
    """Paths are given relative to the root, without a leading slash: `sys/block/vda/size`."""

    def __init__(self, root: Path = Path("/")) -> None:
        self.root = root

    def path(self, name: str) -> Path:
        return self.root / name

    def read(self, name: str) -> str:
        """The file's text, stripped. Raises HostError when it cannot be read."""
        try:
            return self.path(name).read_text(errors="replace").strip()
        except OSError as error:
            raise HostError(f"cannot read /{name}: {error.strerror}") from error

    def read_or(self, name: str, default: str) -> str:
        """Like `read`, but a missing file gives the default."""
        try:
            return self.path(name).read_text(errors="replace").strip()
        except OSError:
            return default

    def write(self, name: str, value: str | int) -> None:
        """One write(2), as sysfs wants it. Raises HostError with the kernel's reason."""
        try:
            descriptor = os.open(self.path(name), os.O_WRONLY)
            try:
                os.write(descriptor, str(value).encode())
            finally:
                os.close(descriptor)
        except OSError as error:
            raise HostError(f"the kernel refused {value!r} in /{name}: {error.strerror}") from error

    def ensure(self, name: str, value: str | int) -> bool:
        """Write only if the file does not show the value already. Returns whether it was written."""
        if self.shown(name) == str(value):
            return False
        self.write(name, value)
        return True

    def shown(self, name: str) -> str:
        """The value of a file; of a choice such as `a [b] c` the selected one."""
        text = self.read(name)
        if "[" in text and "]" in text:
            return text[text.index("[") + 1 : text.index("]")]
        return text

    def link(self, name: str) -> str | None:
        """The last part of a symbolic link's target, or None when there is no such link."""
        try:
            return self.path(name).readlink().name
        except OSError:
            return None

    def exists(self, name: str) -> bool:
        return self.path(name).exists()

    def names(self, name: str) -> tuple[str, ...]:
        """Entries of a directory, sorted; none when it does not exist."""
        try:
            return tuple(sorted(entry.name for entry in self.path(name).iterdir()))
        except OSError:
            return ()


UNITS = {"k": 2**10, "M": 2**20, "G": 2**30, "T": 2**40, "P": 2**50, "E": 2**60}


def parse_size(text: str) -> int:
    """bcache's rounded sizes (`0.0k`, `711.0M`, `1.1G`, may be negative) in bytes. Source: bch_hprint."""
    text = text.strip()
    if not text:
        raise HostError("an empty size in sysfs")
    unit = UNITS.get(text[-1])
    number = text[:-1] if unit else text
    try:
        return int(float(number) * (unit or 1))
    except ValueError as error:
        raise HostError(f"{text!r} in sysfs is not a size") from error
