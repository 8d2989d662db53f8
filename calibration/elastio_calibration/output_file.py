"""Write a result as a whole file or not at all, and never over a file that must be kept."""

from __future__ import annotations

import os
from pathlib import Path

from elastio import whole_file
from elastio_calibration.errors import CalibrationError


def require_replaceable(path: Path, kept: Path | None = None) -> None:
    """Raises CalibrationError where `path` is not a regular file, or is the file `kept`."""
    if kept is not None and os.path.realpath(path) == os.path.realpath(kept):
        raise CalibrationError(f"{path} would replace {kept}, which must be kept: name another file", code="kept")
    try:
        is_replaceable = whole_file.is_replaceable(Path(os.path.realpath(path)))
    except OSError as error:
        raise CalibrationError(f"{path} cannot be written: {error.strerror or error}") from error
    if not is_replaceable:
        raise CalibrationError(f"{path} is not a regular file and is not replaced: name another", code="not_regular")


def write_atomic(path: Path, text: str) -> None:
    """Replace the file, following a symbolic link, and sync it to disk. Raises CalibrationError."""
    require_replaceable(path)
    real = Path(os.path.realpath(path))
    try:
        whole_file.replace(real, text.encode(), sync=True)
    except OSError as error:
        raise CalibrationError(f"{path} cannot be written: {error.strerror or error}") from error
