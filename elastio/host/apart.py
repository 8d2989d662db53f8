"""Writes to /sys by a process of its own.

Theory of operation. What makes the kernel start a thread must not be written by a process that may be killed: with a
SIGKILL pending that fails, and not every driver survives it. So a child writes, in a session and a cgroup of its own,
because the service manager kills what is left in a unit whose main process died. It lives on if its parent is killed or
gives up waiting. It takes one order from a socket, and ends.

To fork and to leave the cgroup takes up to a tenth of a second on a small machine, and a boost waits for its
registration. So the child may be started ahead (`prepare`), and waits for as long as it takes. If its parent ends
before there is an order, or dismisses it, it ends, too, and has written nothing.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

from elastio.errors import HostError

TIMED_OUT = errno.errorcode[errno.ETIMEDOUT]
LOST = 255  # how a process ends whose error cannot be named
ORDER_BYTES = 8192  # more than two names of files

Write = Callable[[str, str | int], None]


def close_all_but(*descriptors: int) -> None:
    """In a child that was forked: what it inherited, but standard input and output, is its parent's business."""
    first = 3
    for kept in sorted(descriptors):
        os.closerange(first, kept)
        first = kept + 1
    os.closerange(first, os.sysconf("SC_OPEN_MAX"))


class ApartWriter:
    """`write` writes a value to a file, by its name, and raises HostError."""

    def __init__(self, write: Write) -> None:
        self._write = write
        self._waiting: tuple[int, socket.socket] | None = None  # a process without an order, and our end
        self._hanging: list[int] = []  # those that had not ended when their time was over
        self._leaving: list[int] = []  # those that end without an order

    def prepare(self) -> None:
        """Start the process that the next write needs, unless it waits already. Raises OSError."""
        self._ready()

    def dismiss(self) -> None:
        """No write is to come: the process that waits for one ends."""
        if self._waiting is not None:
            (child, end), self._waiting = self._waiting, None
            end.close()
            self._leaving.append(child)
        self._leaving = [child for child in self._leaving if _runs(child)]

    def _ready(self) -> tuple[int, socket.socket]:
        if self._waiting is None:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                try:
                    child = os.fork()
                except OSError:
                    ours.close()
                    raise
                if child == 0:
                    self._serve(theirs)
            self._waiting = child, ours
        return self._waiting

    def write(self, name: str, value: str | int, seconds: float) -> None:
        """Raises HostError with the kernel's reason, or `ETIMEDOUT` after that time.

        The write may still take effect then, and until its process has ended no other is started.
        """
        late = f"the kernel has not taken {value!r} in /{name} for {seconds:g} s"
        self._hanging = [child for child in self._hanging if _runs(child)]
        if self._hanging:
            raise HostError(f"an earlier write still hangs in the kernel: {late}", code=TIMED_OUT)
        try:
            child = self._ordered(f"{name}\0{value}".encode())
            self._hanging.append(child)
            descriptor = os.pidfd_open(child)
        except OSError as error:
            raise HostError(f"cannot start a process: {error.strerror}", code=name_of(error)) from error
        try:
            has_ended = select.select([descriptor], [], [], seconds)[0]
        finally:
            os.close(descriptor)
        if not has_ended:
            raise HostError(late, code=TIMED_OUT)
        self._hanging.remove(child)
        number = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if number:
            reason = os.strerror(number) if 0 < number < LOST else "the process that wrote it was killed"
            text = f"the kernel refused {value!r} in /{name}: {reason}"
            raise HostError(text, code=errno.errorcode.get(number, ""))

    def _ordered(self, order: bytes) -> int:
        """The process that has the order. One that was killed while it waited is replaced. Raises OSError."""
        with suppress(ConnectionError):
            return self._order(order)
        self.dismiss()
        return self._order(order)

    def _order(self, order: bytes) -> int:
        child, end = self._ready()
        end.send(order)
        end.close()
        self._waiting = None
        return child

    def _serve(self, end: socket.socket) -> NoReturn:
        """The child's side. Whatever happens, it must not return into its parent's code."""
        number = LOST
        try:
            for sent in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(sent, signal.SIG_IGN)
            os.setsid()
            close_all_but(end.fileno())
            with suppress(HostError):
                self._write("sys/fs/cgroup/cgroup.procs", os.getpid())
            if order := end.recv(ORDER_BYTES):
                self._write(*order.decode().split("\0"))
            number = 0
        except HostError as error:
            cause = error.__cause__
            number = (cause.errno if isinstance(cause, OSError) else None) or LOST
        finally:
            os._exit(number)


def _runs(child: int) -> bool:
    try:
        return os.waitpid(child, os.WNOHANG)[0] == 0
    except ChildProcessError:
        return False


def name_of(error: OSError) -> str:
    """`ENOENT` and the like."""
    return errno.errorcode.get(error.errno or 0, "")
