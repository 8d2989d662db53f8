"""The lock by which programs tell udev to leave a block device alone: flock(2) on its node.

udev reads a partition table anew with the device's mutex held, and writes out its dirty pages first. A cache that is
attached at that moment hangs both for ever on Linux 6.1: the attach has bcache's locks and wants that mutex, the write
has the mutex and wants bcache's. udev takes the same lock for it, and waits its turn. The protocol is systemd's
("Locking Block Device Access").
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
    """Nobody who asks for the lock works on the device inside.

    Raises DeviceBusyError when somebody else keeps it for LOCK_S, HostError when the node cannot be opened.
    """
    try:
        # Not for writing: closing it would be a reason for udev to look at the device.
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
