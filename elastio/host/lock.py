"""One agent per device."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from elastio.errors import HostError, LockedError


def lock_device(directory: Path, backing_uuid: str) -> int:
    """Take the lock for this device; it is held until the returned descriptor is closed or the process ends.

    Raises LockedError when another agent has it.
    """
    path = directory / f"{backing_uuid}.lock"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise HostError(f"cannot make the lock {path}: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise LockedError(f"another agent drives the device {backing_uuid} already ({path} is locked)") from error
    return descriptor
