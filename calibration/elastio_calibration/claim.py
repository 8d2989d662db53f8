"""Two calibrations at once would measure each other: one lock on the record, one on the directory, for a whole run."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from elastio_calibration.errors import CalibrationError


@contextmanager
def claimed(path: Path, flags: int = os.O_RDONLY) -> Iterator[None]:
    """Nobody else claims `path` meanwhile; the kernel ends a claim with its process. Raises CalibrationError."""
    try:
        descriptor = os.open(path, flags | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise CalibrationError(f"{path} cannot be opened: {error.strerror}") from error
    try:
        _lock(descriptor, path)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, path: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise CalibrationError(f"another calibration uses {path}: two would measure each other") from error
    except OSError as error:
        raise CalibrationError(f"{path} cannot be locked: {error.strerror}") from error
