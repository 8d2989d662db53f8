"""The lock of a run, on its record and on its directory: two calibrations at once would measure each other."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from elastio.host.locks import try_lock
from elastio_calibration.errors import CalibrationError


@contextmanager
def run_lock(path: Path, flags: int = os.O_RDONLY) -> Iterator[None]:
    """Hold the lock on `path`; the kernel releases it when the process ends. Raises CalibrationError."""
    try:
        descriptor = os.open(path, flags | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise CalibrationError(f"{path} cannot be opened: {error.strerror}") from error
    try:
        if not try_lock(descriptor):
            text = f"another calibration uses {path}: two would measure each other"
            raise CalibrationError(text, code="locked")
        yield
    finally:
        os.close(descriptor)
