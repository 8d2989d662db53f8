"""One agent per device, and one per state directory."""

from __future__ import annotations

import os
from pathlib import Path

from elastio.errors import HostError, LockedError
from elastio.host.flock import try_lock


def lock_device(directory: Path, backing_uuid: str) -> int:
    """Take the lock for this device; it is held until this process and every child it forked have ended.

    This is intended: a child that hangs in the kernel may still carry out its action, so no other agent may start.
    Raises LockedError while another agent, or such a child of a killed one, has the lock.
    """
    return _lock(directory / f"{backing_uuid}.lock", f"drives the device {backing_uuid}")


def lock_state(state_dir: Path) -> int:
    """Take the lock for this state directory, like `lock_device`: two agents must not share a journal."""
    return _lock(state_dir / "lock", f"uses the state directory {state_dir}")


def _lock(path: Path, what: str) -> int:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise HostError(f"cannot create the lock {path}: {error.strerror}") from error
    if not try_lock(descriptor):
        os.close(descriptor)
        raise LockedError(f"another agent, or a child of one that hangs in the kernel, {what} ({path})")
    return descriptor
