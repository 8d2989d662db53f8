"""A second process that removes limits on applications when the process that set them cannot.

Theory of operation. A limit in a cgroup outlives the process that wrote it (the holder). So the holder has a guard: a
child that knows which limit may be in force and for how long, and waits on a socket whose other end only the holder has
open. No limit is written before the guard has acknowledged the order to watch it.

- The holder is done, or dies: the socket is closed, and the guard removes what limits are left, and ends. The kernel
  closes the holder's end however the holder dies.
- The holder hangs, is stopped, or takes longer than HELD_S while requests are held back: the guard kills it, and then
  removes the limits. It is killed first because what it was about to do is safe only while requests are held back. A
  holder that hangs in the kernel dies when its system call returns, and does no more.
- A limit that lasts as long as a flush does not end with a call. The guard needs a heartbeat: the agent's main process
  writes the time to shared memory in each turn of its loop. Without one for STALE_S (it died, hangs or was stopped) the
  guard removes the limit and ends, and after TERM_S it does so in any case. The agent sets it again if it still needs
  it and can still write its journal.
- Limits that share the device last as long as the holder renews them, a few times a second: see `sharer`. Their lease
  is short, so they go too when the holder hangs.
- The guard is killed: the holder removes its limits itself, and starts a guard before it sets the next one. If both are
  killed, as the service manager does with the rest of a unit whose main process died, `elastio free` removes them,
  after the unit has ended and before it starts.

A guard does one thing at a time: one that has begun to remove limits acknowledges no order, but ends. So it never
removes a limit that was set after its own order. Nor does one whose holder was killed remove those of the next holder,
which starts no guard before that one has ended: see `LimitRemovers`.

A guard is locked in memory before the holder goes on: it may have to resume a device on which its own program, or the
system's swap, lies (`recompose`), and locks are not inherited. Pages that it shares with the holder stay shared.

One guard serves all limits of a boost, because the boost waits for its holder: to start and to end a process for each
limit takes some hundredths of a second on a small machine. It closes every descriptor that it inherited, the instance
lock and the pipes of workers too: a new agent need not wait for it.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import select
import signal
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass

from elastio.errors import HostError
from elastio.host.apart import close_all_but
from elastio.host.locks import try_lock
from elastio.host.machine import stay_in_memory
from elastio.host.sysfs import wait_for


class LimitRemovers:
    """Who may still remove limits on applications: nobody sets one before all of them have ended.

    A guard outlives its holder, and so does the process that frees applications after an action was lost. What they
    remove are all limits of this agent: also one that the next holder has set meanwhile, for a moment in which no
    request may pass. So each of them has a lock, shared, from before it is forked until it ends, and a holder starts a
    guard only when nobody has it. The lock is on a pipe: every process that is forked later has it, and no file is
    left behind.
    """

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


HELD_S = 10.0
STALE_S = 8.0
TERM_S = 60.0
POLL_S = 1.0
TRIES = 5
# How long a guard may take to acknowledge an order, or to end: above what it takes to try TRIES times.
ANSWER_S = TRIES * POLL_S + 3.0
# How long it may take until it is there, and locked in memory: milliseconds, but where memory is short.
START_S = 8.0
BEAT, ORDER = struct.Struct("<d"), struct.Struct("<dd")

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
class _Order:
    """What a guard watches: until when (CLOCK_MONOTONIC) the holder may hold requests back, or a limit may last."""

    held_until: float = float("inf")
    lasts_until: float = float("inf")

    def packed(self) -> bytes:
        return ORDER.pack(self.held_until, self.lasts_until)

    def patience_s(self) -> float | None:
        """How long to wait for the next order; None: until it comes."""
        until = min(self.held_until, self.lasts_until)
        return None if until == float("inf") else min(max(0.0, until - time.monotonic()), POLL_S)

    def is_overdue(self) -> bool:
        """Requests are held back for too long."""
        return time.monotonic() >= self.held_until

    def is_over(self, pulse: Pulse) -> bool:
        """A limit has lasted long enough, or nobody is there who would end it."""
        return self.lasts_until < float("inf") and (time.monotonic() >= self.lasts_until or pulse.is_stale())


NOTHING = _Order()


class Guard:
    """The guard of this process. `release` removes all limits, may be repeated, and raises HostError.

    `process` is the ID of the last one that was started, or 0.
    """

    def __init__(self, release: Release) -> None:
        self.pulse = Pulse()
        self.removers = LimitRemovers()
        self.process = 0
        self._release = release
        self._end: socket.socket | None = None

    @contextmanager
    def holding(self, seconds: float = HELD_S) -> Iterator[None]:
        """Requests may be held back inside. The caller removes its limits before the end.

        The guard watches this instead of a lasting limit, which the caller has to replace by its own. This process is
        killed if it is not done in time. Raises HostError when no guard can be started.
        """
        self._order(lambda: _Order(held_until=time.monotonic() + seconds))
        try:
            yield
        except BaseException:
            self.dismiss()  # limits may be left: the guard tries several times
            raise
        self._forget()

    def begin_lease(self, seconds: float | None = None) -> None:
        """A limit may last, for TERM_S unless `seconds` says how long. Call it before the limit is set, or replaced.

        A later call, before they are over, renews the lease. Raises HostError when no guard can be started.
        """
        self._order(lambda: _Order(lasts_until=time.monotonic() + (TERM_S if seconds is None else seconds)))

    def end_lease(self) -> None:
        """Remove all limits. Raises HostError if some may be left; the guard goes on watching those."""
        self._release()
        self._forget()

    def dismiss(self) -> None:
        """The guard has removed what limits were left, and has ended."""
        if self._end is not None:
            self._end.close()
            self._end = None
            os.waitpid(self.process, 0)

    def close(self) -> None:
        """End the guard, and what this process keeps for it. Nothing can be held back afterwards."""
        self.dismiss()
        self.removers.close()

    def _order(self, make: Callable[[], _Order]) -> None:
        """The guard watches. One that does not answer, or has ended, is replaced, and the order's time begins again."""
        if self._end is None or not self._is_acknowledged(self._end, make()):
            self._replace(make)

    def _is_acknowledged(self, end: socket.socket, order: _Order) -> bool:
        try:
            end.send(order.packed())
        except OSError:
            return False
        return _is_answered(end)

    def _replace(self, make: Callable[[], _Order]) -> None:
        if self._end is not None:
            os.kill(self.process, signal.SIGKILL)
            self.dismiss()
        with self.removers.joined_alone(ANSWER_S) as lock:
            self._start(make(), lock)

    def _forget(self) -> None:
        """No limit is left. A guard that cannot be told so has ended; the next order notices that."""
        if self._end is not None:
            with suppress(OSError):
                self._end.send(NOTHING.packed())

    def _start(self, order: _Order, lock: int) -> None:
        holder = os.getpid()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self.process = os.fork()
        except OSError as error:
            ours.close()
            raise HostError(f"cannot start a guard: {error.strerror}; no application was held back") from error
        else:
            if self.process == 0:
                _run_guard(theirs, lock, holder, order, self.pulse, self._release)
        finally:
            theirs.close()
        self._end = ours
        ours.settimeout(START_S)
        if not _is_answered(ours):
            os.kill(self.process, signal.SIGKILL)
            self.dismiss()
            raise HostError("cannot start a guard: it does not answer; no application was held back")
        ours.settimeout(ANSWER_S)


def _is_answered(end: socket.socket) -> bool:
    try:
        return end.recv(1) != b""
    except OSError:
        return False


def _run_guard(end: socket.socket, lock: int, holder: int, order: _Order, pulse: Pulse, release: Release) -> None:
    """What the guard does. Whatever happens, it must not return into the holder's code. It keeps `lock` to its end."""
    try:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        close_all_but(end.fileno(), lock)
        try:
            stay_in_memory()  # if it is not allowed, the daemon has logged so
            end.send(b"-")
            _watch(end, holder, order, pulse)
        finally:  # also where the holder died before it took an answer: its end is broken then
            _remove_limits(release)
    finally:
        os._exit(0)


def _watch(end: socket.socket, holder: int, order: _Order, pulse: Pulse) -> None:
    """Returns when the limits have to be removed."""
    while not order.is_over(pulse):
        if select.select([end], [], [], order.patience_s())[0]:
            message = end.recv(ORDER.size)
            if not message:
                return
            order = _Order(*ORDER.unpack(message))
            if order != NOTHING:
                end.send(b"-")
        elif order.is_overdue():
            if os.getppid() == holder:
                os.kill(holder, signal.SIGKILL)
                select.select([end], [], [], POLL_S)
            return


def _remove_limits(release: Release) -> None:
    for _ in range(TRIES):
        try:
            release()
        except HostError:
            time.sleep(POLL_S)
        else:
            return
