"""The lock that keeps udev from working on a block device: flock(2) on its node.

When udev rereads a partition table it holds the device's mutex, and first writes out its dirty pages. On Linux 6.1 this
deadlocks with an attach of a cache: the attach holds bcache's locks and waits for that mutex, the write holds the mutex
and waits for bcache's locks. udev takes this lock before. The protocol is systemd's ("Locking Block Device Access").
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from elastio.errors import DeviceBusyError, HostError
from elastio.host.flock import try_lock
from elastio.host.sysfs import Wait

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
            raise DeviceBusyError(
                f"another program has {node} locked (flock): no cache was attached", code="node.locked"
            )
        yield
    finally:
        os.close(descriptor)
