"""Locks: one agent per device and per state directory, and what keeps udev from working on a block device. flock(2).

The kernel releases a lock when the last descriptor of the open file is closed, so also at a crash. Children that an
agent has forked keep its lock. So beside it the agent has a record lock (fcntl(2)) on the same file, which is of one
process and is not inherited: it shows whether the agent itself is there. One that was killed has no limits in force
that somebody still needs, even while a child of it hangs in the kernel.

When udev rereads a partition table it holds the device's mutex, and first writes out its dirty pages. On Linux 6.1 this
deadlocks with an attach of a cache: the attach holds bcache's locks and waits for that mutex, the write holds the mutex
and waits for bcache's locks. udev takes the lock of the node before (`locked`). The protocol is systemd's ("Locking
Block Device Access").
"""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from elastio.errors import DeviceBusyError, HostError, LockedError
from elastio.host.sysfs import Wait

# The code of the error while an agent runs, and the words for what else may have its lock.
AGENT_RUNS = "agent.runs"
CHILD = "a child, hanging in the kernel, of an agent that was killed"
# `struct flock`: type, whence, start, length, pid.
FLOCK = "@hhqqi4x"


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
    Raises LockedError while another agent (AGENT_RUNS), or such a child of a killed one, has the lock.
    """
    return _lock(directory / f"{backing_uuid}.lock", f"drives the device {backing_uuid}")


def require_no_agent(directory: Path, backing_uuid: str) -> None:
    """Raises LockedError, AGENT_RUNS, while the agent of this device runs; not for a child of one that was killed.

    What cannot be found out raises nothing. Not for a process that has the lock: it would lose its record lock.
    """
    path = directory / f"{backing_uuid}.lock"
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            is_there = _has_agent(descriptor)
        finally:
            os.close(descriptor)
        if is_there:
            raise LockedError(f"the agent of backing device {backing_uuid} runs ({path})", code=AGENT_RUNS)


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
        who, code = ("another agent", AGENT_RUNS) if _has_agent(descriptor) else (CHILD, "agent.child")
        os.close(descriptor)
        raise LockedError(f"{who} {what} ({path})", code=code)
    with suppress(OSError):  # it is refused by a filesystem without such locks only
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return descriptor


def _has_agent(descriptor: int) -> bool:
    """Whether another process has the record lock. Takes none: an agent that starts at this instant must get it."""
    asked = struct.pack(FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    kind, *_ = struct.unpack_from("@h", fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))
    return bool(kind != fcntl.F_UNLCK)


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
