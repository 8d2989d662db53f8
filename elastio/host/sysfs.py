"""Reading and writing /sys. Nothing else in the agent writes there.

The root is a parameter so that a recorded tree can stand in for the kernel in tests.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from elastio.errors import HostError
from elastio.host.apart import ApartWriter, name_of

BLOCK_BYTES = 65536
POLL_S = 0.02

# Returns whether the condition became true within so many seconds: `wait_for`, or a test's stand-in for it.
Wait = Callable[[Callable[[], bool], float], bool]


def wait_for(condition: Callable[[], bool], seconds: float) -> bool:
    """Whether the condition became true in time. It is polled: most files in /sys do not report changes."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(POLL_S)
    return True


class Sysfs:
    """Paths are given relative to the root, without a leading slash: `sys/block/vda/size`.

    Plain strings and descriptors, no `Path`: one scan reads some fifty of these files, every second.
    """

    # The agent that limits applications through this object, by its device's name. Empty: one that shares with nobody.
    owner = ""

    def __init__(self, root: Path = Path("/"), owner: str = "") -> None:
        self.root, self.owner = root, owner
        self._apart = ApartWriter(self.write)
        self._prefix = f"{str(root).rstrip('/')}/"

    def path(self, name: str) -> Path:
        return self.root / name

    def read(self, name: str) -> str:
        """The file's text, stripped. Raises HostError when it cannot be read."""
        try:
            return self._text(name)
        except OSError as error:
            raise HostError(f"cannot read /{name}: {error.strerror}", code=name_of(error)) from error

    def read_or(self, name: str, default: str) -> str:
        """Like `read`, but returns the default where the file cannot be read."""
        try:
            return self._text(name)
        except OSError:
            return default

    def _text(self, name: str) -> str:
        descriptor = os.open(self._prefix + name, os.O_RDONLY | os.O_CLOEXEC)
        try:
            blocks = []
            while block := os.read(descriptor, BLOCK_BYTES):
                blocks.append(block)
        finally:
            os.close(descriptor)
        return b"".join(blocks).decode(errors="replace").strip()

    def write(self, name: str, value: str | int) -> None:
        """One write(2), as sysfs requires. Raises HostError with the kernel's reason."""
        try:
            descriptor = os.open(self._prefix + name, os.O_WRONLY | os.O_CLOEXEC)
            try:
                os.write(descriptor, str(value).encode())
            finally:
                os.close(descriptor)
        except OSError as error:
            text = f"the kernel refused {value!r} in /{name}: {error.strerror}"
            raise HostError(text, code=name_of(error)) from error

    def write_apart(self, name: str, value: str | int, seconds: float) -> None:
        """Like `write`, by a process of its own: see `apart.ApartWriter.write`."""
        self._apart.write(name, value, seconds)

    def expect_apart(self, *, is_expected: bool) -> None:
        """Start the process of the next `write_apart` ahead, or end it. If it cannot be started, that one says why."""
        with suppress(OSError):
            self._apart.prepare() if is_expected else self._apart.dismiss()

    def control(self, name: str, request: int, buffer: bytearray) -> None:
        """One ioctl(2) on a control node; the answer is in the buffer. Raises HostError with the kernel's reason."""
        try:
            descriptor = os.open(self._prefix + name, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.ioctl(descriptor, request, buffer)
            finally:
                os.close(descriptor)
        except OSError as error:
            text = f"the kernel refused request {request:#x} to /{name}: {error.strerror}"
            raise HostError(text, code=name_of(error)) from error

    def ensure(self, name: str, value: str | int) -> None:
        """Write only if the file does not show the value already."""
        if self.shown(name) != str(value):
            self.write(name, value)

    def shown(self, name: str) -> str:
        """The value of a file; where it lists choices, such as `a [b] c`, the selected one."""
        text = self.read(name)
        if "[" in text and "]" in text:
            return text[text.index("[") + 1 : text.index("]")]
        return text

    def link(self, name: str) -> str | None:
        """The last part of a symbolic link's target, or None when there is no such link."""
        target = self.target(name)
        return None if target is None else target.rsplit("/", 1)[-1]

    def target(self, name: str) -> str | None:
        """A symbolic link's target as it is written, or None when there is no such link."""
        try:
            return os.readlink(self._prefix + name)  # noqa: PTH115
        except OSError:
            return None

    def exists(self, name: str) -> bool:
        return os.path.exists(self._prefix + name)  # noqa: PTH110

    def names(self, name: str) -> tuple[str, ...]:
        """Entries of a directory, sorted; none when it does not exist."""
        try:
            return tuple(sorted(os.listdir(self._prefix + name)))  # noqa: PTH208
        except OSError:
            return ()

    def folders(self, name: str) -> tuple[str, ...]:
        """The directories in a directory, sorted, without links; none when it does not exist."""
        try:
            with os.scandir(self._prefix + name) as entries:
                return tuple(sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False)))
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
    except (ValueError, OverflowError) as error:
        raise HostError(f"{text!r} in sysfs is not a size") from error
