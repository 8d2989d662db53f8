"""Locks: one agent per device and per state directory, and what keeps udev from working on a block device. flock(2).

The kernel releases a lock when the last descriptor of the open file is closed, so also at a crash.

When udev rereads a partition table it holds the device's mutex, and first writes out its dirty pages. On Linux 6.1 this
deadlocks with an attach of a cache: the attach holds bcache's locks and waits for that mutex, the write holds the mutex
and waits for bcache's locks. udev takes the lock of the node before (`locked`). The protocol is systemd's ("Locking
Block Device Access").
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from elastio.errors import DeviceBusyError, HostError, LockedError
from elastio.host.sysfs import Wait


def try_lock(descriptor: int) -> bool:
    """Take the exclusive lock at once, or return False: another process has it, or the filesystem has no locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


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


# udev's own work on a device takes tenths of a second.
LOCK_S = 3.0


@contextmanager
def locked(node: Path, wait: Wait) -> Iterator[None]:
    """The lock is held inside. Raises DeviceBusyError when it is not free within LOCK_S, HostError when the node cannot
    be opened.
    """
    try:
        # Not for writing: udev processes a device again when a descriptor that was open for writing is closed.
        descriptor = os.open(node, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise HostError(f"cannot open {node}: {error.strerror}") from error
    try:
        if not wait(lambda: try_lock(descriptor), LOCK_S):
            raise DeviceBusyError(f"another program has {node} locked (flock): nothing was changed", code="node.locked")
        yield
    finally:
        os.close(descriptor)
