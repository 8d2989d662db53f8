"""Where a disk's bytes are: a raw file, or an NBD export that may lose what was not flushed."""

from __future__ import annotations

import ctypes
import errno
import os
import select
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from elastio_testbed.hypervisor import nbd

# Called with the error number of a request that is done, 0 for none.
Done = Callable[[int], None]
_KEEP_SIZE, _PUNCH_HOLE = 1, 2
# While the power of a strip is being cut it serves nobody, for up to five minutes.
_NBD_S = 320.0
_libc = ctypes.CDLL(None, use_errno=True)


class Store(Protocol):
    """Requests are answered through `done`, at once or later, in any order."""

    size_bytes: int
    discards: bool

    def read(self, offset: int, buffers: Sequence[memoryview], done: Done) -> None: ...

    def write(self, offset: int, buffers: Sequence[memoryview], done: Done) -> None: ...

    def flush(self, done: Done) -> None: ...

    def discard(self, offset: int, length: int, done: Done) -> None:
        """Forget a range, which reads as zeros then."""

    def fileno(self) -> int | None:
        """The descriptor on which answers arrive; None if all are given at once."""

    def on_readable(self) -> None:
        """Take an answer that has arrived."""

    def close(self) -> None:
        """Close it, and fail what is under way. It may be closed again, and is not used otherwise then."""


class FileStore:
    """A raw file. Its writes are in the host's page cache, which a power cut of the machine does not touch."""

    discards = True

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self.size_bytes = os.fstat(self._fd).st_size

    def read(self, offset: int, buffers: Sequence[memoryview], done: Done) -> None:
        done(_outcome(lambda: os.preadv(self._fd, buffers, offset), _total(buffers)))

    def write(self, offset: int, buffers: Sequence[memoryview], done: Done) -> None:
        done(_outcome(lambda: os.pwritev(self._fd, buffers, offset), _total(buffers)))

    def flush(self, done: Done) -> None:
        done(0)

    def discard(self, offset: int, length: int, done: Done) -> None:
        failed = _libc.fallocate(self._fd, _KEEP_SIZE | _PUNCH_HOLE, ctypes.c_int64(offset), ctypes.c_int64(length))
        done(ctypes.get_errno() if failed else 0)

    def fileno(self) -> None:
        return None

    def on_readable(self) -> None:
        raise AssertionError("unreachable: a file has no descriptor to wait for, as it answers at once")

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _total(buffers: Sequence[memoryview]) -> int:
    return sum(len(buffer) for buffer in buffers)


def _outcome(move: Callable[[], int], expected: int) -> int:
    """The error number of a transfer; a file that ends early is an error, too."""
    try:
        return 0 if move() == expected else errno.EIO
    except OSError as error:
        return error.errno or errno.EIO


@dataclass(slots=True)
class _Pending:
    done: Done
    buffers: Sequence[memoryview] = ()


class NbdStore:
    """An NBD export on a Unix socket; it offers no discard. Raises OSError."""

    discards = False

    def __init__(self, path: Path) -> None:
        self._connection, self.size_bytes = nbd.connect(path, _NBD_S)
        self._pending: dict[int, _Pending] = {}
        self._handle = 0

    def read(self, offset: int, buffers: Sequence[memoryview], done: Done) -> None:
        self._send(nbd.READ, offset, _total(buffers), b"", _Pending(done, buffers))

    def write(self, offset: int, buffers: Sequence[memoryview], done: Done) -> None:
        data = b"".join(buffers)
        self._send(nbd.WRITE, offset, len(data), data, _Pending(done))

    def flush(self, done: Done) -> None:
        self._send(nbd.FLUSH, 0, 0, b"", _Pending(done))

    def discard(self, offset: int, length: int, done: Done) -> None:
        done(errno.EOPNOTSUPP)

    def fileno(self) -> int | None:
        return None if self._connection.fileno() < 0 else self._connection.fileno()

    def on_readable(self) -> None:
        try:
            self._take_answer()
        except OSError:
            self._fail_all()
            raise

    def _take_answer(self) -> None:
        handle, error = nbd.receive(self._connection)
        pending = self._pending.pop(handle)
        if not error:
            for buffer in pending.buffers:
                buffer[:] = nbd.receive_exactly(self._connection, len(buffer))
        pending.done(error)

    def close(self) -> None:
        self._connection.close()
        self._fail_all()

    def _send(self, kind: int, offset: int, length: int, data: bytes, pending: _Pending) -> None:
        self._handle += 1
        self._pending[self._handle] = pending
        try:
            self._transmit(memoryview(nbd.packed(nbd.Request(kind, self._handle, offset, length, data))))
        except OSError:
            self._fail_all()

    def _transmit(self, left: memoryview) -> None:
        """Send, and take answers meanwhile: the other side reads no request before its answer has been taken."""
        while left:
            readable, writable, _ = select.select([self._connection], [self._connection], [], _NBD_S)
            if not readable and not writable:
                raise TimeoutError("the NBD server takes no request")
            if readable:
                self._take_answer()
            if writable:
                left = left[self._connection.send(left, socket.MSG_DONTWAIT) :]

    def _fail_all(self) -> None:
        pending, self._pending = list(self._pending.values()), {}
        for request in pending:
            request.done(errno.EIO)
