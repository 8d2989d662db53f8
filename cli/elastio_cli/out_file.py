"""Files that a command was asked to write: what cannot be written is said before long work begins."""

from __future__ import annotations

import os
from pathlib import Path

from elastio.errors import ElastioError


def require_directory(path: Path | None) -> None:
    """Raises ElastioError if the directory of the file is missing: a mistyped path makes no directories."""
    if path is None:
        return
    directory = Path(os.path.realpath(path)).parent
    if not directory.is_dir():
        raise ElastioError(f"{path} cannot be written: there is no directory {directory}", code="out.unwritable")
