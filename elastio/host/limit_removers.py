"""Who may still remove limits on applications: nobody sets one before all of them have ended.

A guard outlives its holder, and so does the process that frees applications after an action was lost. What they remove
are all limits of this agent: also one that the next holder has set meanwhile, for a moment in which no request may
pass. So each of them has a lock, shared, from before it is forked until it ends, and a holder starts a guard only when
nobody has it.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from elastio.errors import HostError
from elastio.host.locks import try_lock
from elastio.host.sysfs import wait_for


class LimitRemovers:
    """The lock is on a pipe: every process that is forked later has it, and no file is left behind."""

    def __init__(self) -> None:
        self._pipe, writer = os.pipe()
        os.close(writer)

    def close(self) -> None:
        """Nobody joins any more."""
        os.close(self._pipe)

    @contextmanager
    def joined(self) -> Iterator[int]:
        """A descriptor with the lock: whoever is forked inside has it until it ends, or closes the descriptor.

        Never waits. Raises OSError where a holder has just begun to start a guard.
        """
        with self._opened() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            yield lock

    @contextmanager
    def joined_alone(self, seconds: float) -> Iterator[int]:
        """Like `joined`, once nobody else has the lock. Raises HostError if somebody has it for so long."""
        with ExitStack() as stack:
            try:
                lock = stack.enter_context(self._opened())
                is_alone = wait_for(lambda: try_lock(lock), seconds)
                if is_alone:
                    fcntl.flock(lock, fcntl.LOCK_SH)
            except OSError as error:
                raise HostError(f"cannot start a guard: {error.strerror}", code="limit.removers") from error
            if not is_alone:
                text = "an earlier process of the agent still removes limits on applications; none was held back"
                raise HostError(text, code="limit.removers")
            yield lock

    @contextmanager
    def _opened(self) -> Iterator[int]:
        """Another open file each time, because a lock belongs to one."""
        lock = os.open(f"/proc/self/fd/{self._pipe}", os.O_RDWR | os.O_CLOEXEC)
        try:
            yield lock
        finally:
            os.close(lock)
