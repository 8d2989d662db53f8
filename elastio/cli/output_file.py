"""Writes a file for another program to read: it sees the old text or the new one, never a part."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from pathlib import Path

from elastio.errors import ElastioError

MODE = 0o644  # readable for the exporter, which runs as a user of its own


def write_whole(path: Path, text: str) -> None:
    """Replace the file by a new one in the same directory. Raises ElastioError; the old file is then unchanged.

    Only a regular file is replaced: a rename over a device or a link would remove it. Nothing is synced to disk: after
    a power failure the text is out of date anyway.
    """
    try:
        _require_replaceable(path)
        # A name that does not end like the file's own: readers take every `*.prom` of the directory.
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".new", dir=path.parent)
        try:
            with open(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fchmod(file.fileno(), MODE)
            Path(name).replace(path)
        except BaseException:
            with contextlib.suppress(OSError):  # the first error is the one that matters
                Path(name).unlink()
            raise
    except OSError as error:
        raise ElastioError(f"{path} cannot be written: {error.strerror or error}", code="output.unwritable") from error


def _require_replaceable(path: Path) -> None:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISREG(mode):
        raise ElastioError(f"{path} is not a regular file and is not replaced: name another", code="output.not_regular")
