"""Waits until something changes in a directory: inotify(7)."""

from __future__ import annotations

import ctypes
import os
import select
from pathlib import Path
from types import TracebackType

from elastio.errors import HostError

# include/uapi/linux/inotify.h
IN_MODIFY, IN_MOVED_TO, IN_CREATE = 0x2, 0x80, 0x100
# Several events, each with a name of at most 255 bytes.
READ_BYTES = 64 * 1024


class DirectoryWatch:
    """Sees every write to a file of the directory, and every new name, from its creation on.

    Raises HostError if the directory cannot be watched.
    """

    def __init__(self, directory: Path) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._fd = libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        if self._fd < 0:
            raise HostError(f"cannot watch {directory}: {os.strerror(ctypes.get_errno())}", code="watch.limit")
        mask = ctypes.c_uint32(IN_MODIFY | IN_MOVED_TO | IN_CREATE)
        if libc.inotify_add_watch(self._fd, os.fsencode(directory), mask) < 0:
            reason = os.strerror(ctypes.get_errno())
            os.close(self._fd)
            raise HostError(f"cannot watch {directory}: {reason}", code="watch.directory")

    def wait(self) -> None:
        """Return when something has changed since the last call, or since the watch began."""
        select.select([self._fd], [], [])
        os.read(self._fd, READ_BYTES)

    def __enter__(self) -> DirectoryWatch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        os.close(self._fd)
