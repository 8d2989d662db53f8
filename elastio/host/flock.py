"""flock(2): the kernel releases the lock when the last descriptor of the open file is closed, so also at a crash."""

from __future__ import annotations

import fcntl


def try_lock(descriptor: int) -> bool:
    """Take the exclusive lock at once, or return False: another process has it, or the filesystem has no locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
