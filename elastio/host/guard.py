"""Let applications go when whoever holds them back does not.

The theory of operation. A limit in a cgroup outlives the process that wrote it, so someone else has to take it back:
before the first limit is written a process is forked that waits on a pipe whose other end only the holder has.

- The holder is done, or dies: the pipe ends, and the guard takes back what is left. The kernel closes the holder's end
  however the holder dies.
- The holder hangs, is stopped, or takes longer than HELD_S: the guard kills it, and takes the limits back then. It is
  killed first because what it was about to do is safe only while requests are held back. One that hangs in the kernel
  dies as soon as it is let out, and does nothing of it any more.
- A limit that lasts as long as a flush has no call to end with. Its guard wants signs of life: the agent's main process
  leaves the time in shared memory whenever it comes round. Without one for STALE_S (it died, hangs or was stopped) the
  limit ends, and after TERM_S it ends in any case. Who still wants it asks for it again, which takes a working journal.
- The guard is killed: the holder lives and lets go by itself. All of them are killed, as the service manager does with
  the rest of a unit whose main process died: `elastio free` runs when the unit has ended, and before it starts.

A guard keeps nothing of what it inherited open, neither the device's lock nor a worker's pipe, and carries out nothing
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

Free = Callable[[], object]


class Pulse:
    """When the agent last came round; seen by every process that is forked later."""

    def __init__(self) -> None:
        self._page = mmap.mmap(-1, BEAT.size)  # shared by default, and aligned: a double is written at once
        self.beat()

    def beat(self, at: float | None = None) -> None:
        BEAT.pack_into(self._page, 0, time.monotonic() if at is None else at)

    def is_stale(self) -> bool:
        (at,) = BEAT.unpack_from(self._page)
        return time.monotonic() - float(at) > STALE_S


@dataclass(frozen=True, slots=True)
class _Watch:
    """What a guard waits for besides the end of its pipe, and whether it kills the holder then."""

    free: Free
    seconds: float
    is_stale: Callable[[], bool]
    kills: bool


@dataclass(frozen=True, slots=True)
class _Guard:
    process: int
    pipe: int

    def dismiss(self) -> None:
        """Returns when nothing is limited any more and the guard has ended."""
        os.close(self.pipe)
        os.waitpid(self.process, 0)


@contextmanager
def watched(free: Free, seconds: float = HELD_S) -> Iterator[None]:
    """Applications may be held back inside. `free` takes everything back, may be repeated, and raises HostError.

    This process is killed if it is not done in time. Raises HostError when nobody can watch: hold nothing back then.
    """
    started = _start(_Watch(free, seconds, lambda: False, kills=True))
    try:
        yield
    finally:
        started.dismiss()


class Lease:
    """Of a limit that outlasts the call which sets it."""

    def __init__(self, free: Free) -> None:
        self._free = free
        self._guard: _Guard | None = None
        self.pulse = Pulse()

    def begin(self) -> None:
        """Raises HostError when nobody can watch: set no limit then."""
        self.end()
        self._guard = _start(_Watch(self._free, TERM_S, self.pulse.is_stale, kills=False))

    def end(self) -> None:
        """Nothing is limited any more. Before applications are held back for a moment: its guard would let them go."""
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
        raise HostError(f"no process that lets applications go again: {error.strerror}; none was held back") from error
    else:
        if process == 0:
            _live(watch, holder, reader)
    finally:
        os.close(reader)
    return _Guard(process, writer)


def _live(watch: _Watch, holder: int, reader: int) -> None:
    """The guard's life. It must not run into the holder's code after the fork, whatever happens."""
    try:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        os.closerange(3, reader)
        os.closerange(reader + 1, os.sysconf("SC_OPEN_MAX"))
        if not _ends(reader, watch) and watch.kills and os.getppid() == holder:
            os.kill(holder, signal.SIGKILL)
            select.select([reader], [], [], POLL_S)
        _let_go(watch.free)
    finally:
        os._exit(0)


def _ends(reader: int, watch: _Watch) -> bool:
    """Whether the holder's end of the pipe was closed before the time was over."""
    until = time.monotonic() + watch.seconds
    while (left := until - time.monotonic()) > 0 and not watch.is_stale():
        if select.select([reader], [], [], min(left, POLL_S))[0]:
            return True
    return False


def _let_go(free: Free) -> None:
    for _ in range(TRIES):
        try:
            free()
        except HostError:
            time.sleep(POLL_S)
        else:
            return
