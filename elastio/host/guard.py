"""A second process that removes limits on applications when the process that set them cannot.

Theory of operation. A limit in a cgroup outlives the process that wrote it (the holder). So, before the first limit is
written, the holder forks a guard, which waits on a pipe whose other end only the holder has open.

- The holder is done, or dies: the pipe is closed, and the guard removes what limits are left. The kernel closes the
  holder's end however the holder dies.
- The holder hangs, is stopped, or takes longer than HELD_S: the guard kills it, and then removes the limits. It is
  killed first because what it was about to do is safe only while requests are held back. A holder that hangs in the
  kernel dies when its system call returns, and does no more.
- A limit that lasts as long as a flush does not end with a call. The guard needs a heartbeat: the agent's main process
  writes the time to shared memory in each turn of its loop. Without one for STALE_S (it died, hangs or was stopped) the
  limit ends, and after TERM_S it ends in any case. The agent sets it again if it still needs it and can still write its
  journal.
- The guard is killed: the holder removes its limits itself. If both are killed, as the service manager does with the
  rest of a unit whose main process died, `elastio free` removes them, after the unit has ended and before it starts.

A guard closes every descriptor that it inherited, the instance lock and the pipes of workers too, and does nothing
else: a new agent need not wait for it.
"""

from __future__ import annotations

import mmap
import os
import select
import signal
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from elastio.errors import HostError

HELD_S = 10.0
STALE_S = 8.0
TERM_S = 60.0
POLL_S = 1.0
TRIES = 5
BEAT = struct.Struct("<d")

Release = Callable[[], object]


class Pulse:
    """The agent's heartbeat, visible to every process that is forked later."""

    def __init__(self) -> None:
        self._page = mmap.mmap(-1, BEAT.size)  # shared by default, and aligned: a write of a double is atomic
        self.beat()

    def beat(self, at: float | None = None) -> None:
        BEAT.pack_into(self._page, 0, time.monotonic() if at is None else at)

    def is_stale(self) -> bool:
        (at,) = BEAT.unpack_from(self._page)
        return time.monotonic() - float(at) > STALE_S


@dataclass(frozen=True, slots=True)
class _Watch:
    """When a guard acts although its pipe is still open, and whether it then kills the holder."""

    release: Release
    seconds: float
    is_stale: Callable[[], bool]
    kills: bool


@dataclass(frozen=True, slots=True)
class _Guard:
    process: int
    pipe: int

    def dismiss(self) -> None:
        """Returns when no limit is left and the guard has ended."""
        os.close(self.pipe)
        os.waitpid(self.process, 0)


@contextmanager
def watched(release: Release, seconds: float = HELD_S) -> Iterator[None]:
    """Applications may be held back inside. `release` removes all limits, may be repeated, and raises HostError.

    This process is killed if it is not done in time. Raises HostError when no guard can be started.
    """
    started = _start(_Watch(release, seconds, lambda: False, kills=True))
    try:
        yield
    finally:
        started.dismiss()


class Lease:
    """The guard of a limit that outlasts the call which sets it."""

    def __init__(self, release: Release) -> None:
        self._release = release
        self._guard: _Guard | None = None
        self.pulse = Pulse()

    def begin(self) -> None:
        """Call it before the limit is set, or replaced. Raises HostError when no guard can be started."""
        started = _start(_Watch(self._release, TERM_S, self.pulse.is_stale, kills=False))
        self.hand_over()
        self._guard = started

    def hand_over(self) -> None:
        """Its guard ends and removes no limit: call it where another guard watches that the limits are removed."""
        if self._guard is not None:
            os.kill(self._guard.process, signal.SIGKILL)
            self._guard.dismiss()
            self._guard = None

    def end(self) -> None:
        """No limit is left. Call it before requests are held back for a moment, which this guard would end."""
        if self._guard is not None:
            self._guard.dismiss()
            self._guard = None


def _start(watch: _Watch) -> _Guard:
    holder = os.getpid()
    reader, writer = os.pipe()
    try:
        process = os.fork()
    except OSError as error:
        os.close(writer)
        raise HostError(f"cannot start a guard: {error.strerror}; no application was held back") from error
    else:
        if process == 0:
            _run_guard(watch, holder, reader)
    finally:
        os.close(reader)
    return _Guard(process, writer)


def _run_guard(watch: _Watch, holder: int, reader: int) -> None:
    """What the guard does. Whatever happens, it must not return into the holder's code."""
    try:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        os.closerange(3, reader)
        os.closerange(reader + 1, os.sysconf("SC_OPEN_MAX"))
        if not _is_closed(reader, watch) and watch.kills and os.getppid() == holder:
            os.kill(holder, signal.SIGKILL)
            select.select([reader], [], [], POLL_S)
        _remove_limits(watch.release)
    finally:
        os._exit(0)


def _is_closed(reader: int, watch: _Watch) -> bool:
    """Whether the holder's end of the pipe was closed in time."""
    until = time.monotonic() + watch.seconds
    while (left := until - time.monotonic()) > 0 and not watch.is_stale():
        if select.select([reader], [], [], min(left, POLL_S))[0]:
            return True
    return False


def _remove_limits(release: Release) -> None:
    for _ in range(TRIES):
        try:
            release()
        except HostError:
            time.sleep(POLL_S)
        else:
            return
