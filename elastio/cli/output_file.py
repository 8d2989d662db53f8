"""Writes a file for another program to read: it sees the old text or the new one, never a part."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import tempfile
from pathlib import Path

from elastio.errors import ElastioError

MODE = 0o644  # readable for the exporter, which runs as a user of its own


def write_whole(path: Path, text: str) -> None:
    """Replace the file by a new one in the same directory. Raises ElastioError; the old file is then unchanged.

    Only a regular file is replaced: a rename over a device or a link would remove it. Nor is a directory used that is a
    link: the one above may belong to another user, who could send root anywhere. Nothing is synced to disk: after a
    power failure the text is out of date anyway.
    """
    try:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            _replace(path, Path(f"/proc/self/fd/{folder}"), text)
        finally:
            os.close(folder)
    except OSError as error:
        raise ElastioError(f"{path} cannot be written: {_reason(path, error)}", code="output.unwritable") from error


def _reason(path: Path, error: OSError) -> str:
    if error.errno == errno.ENOTDIR and path.parent.is_symlink():
        return f"{path.parent} is a symbolic link; name the directory itself"
    return error.strerror or str(error)


def _replace(path: Path, folder: Path, text: str) -> None:
    """`folder` is the directory of `path` as it was opened. Raises OSError, ElastioError."""
    target = folder / path.name
    _require_replaceable(path, target)
    # A name that does not end like the file's own: readers take every `*.prom` of the directory.
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".new", dir=folder)
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fchmod(file.fileno(), MODE)
        Path(name).replace(target)
    except BaseException:
        with contextlib.suppress(OSError):  # the first error is the one that matters
            Path(name).unlink()
        raise


def _require_replaceable(path: Path, target: Path) -> None:
    try:
        mode = target.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISREG(mode):
        raise ElastioError(f"{path} is not a regular file and is not replaced: name another", code="output.not_regular")
