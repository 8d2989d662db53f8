"""Writes a file for another program to read: it sees the old text or the new one, never a part."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from elastio import whole_file
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
            target = Path(f"/proc/self/fd/{folder}") / path.name
            if not whole_file.is_replaceable(target):
                message = f"{path} is not a regular file and is not replaced: name another"
                raise ElastioError(message, code="output.not_regular")
            whole_file.replace(target, text.encode(), mode=MODE)
        finally:
            os.close(folder)
    except OSError as error:
        raise ElastioError(f"{path} cannot be written: {_reason(path, error)}", code="output.unwritable") from error


def _reason(path: Path, error: OSError) -> str:
    if error.errno == errno.ENOTDIR and path.parent.is_symlink():
        return f"{path.parent} is a symbolic link; name the directory itself"
    return error.strerror or str(error)
