"""The part of the NBD protocol that the laboratory uses: fixed newstyle, one export per socket, read, write, flush.

The server's side serves QEMU and the disk server, whose side, the client's, is at the end.

https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

_GREETING = struct.pack(">8s8sH", b"NBDMAGIC", b"IHAVEOPT", 0b01)  # fixed newstyle
_OPTION = struct.Struct(">8sII")
_OPTION_REPLY = struct.Struct(">QIII")
_OPTION_REPLY_MAGIC = 0x3E889045565A9
_GO, _ABORT = 7, 2
_ACK, _INFO, _UNSUPPORTED = 1, 3, 2**31 + 1
_INFO_EXPORT = struct.Struct(">HQH")
_HAS_FLAGS, _SENDS_FLUSH = 1, 4
_REQUEST = struct.Struct(">IHHQQI")
_REPLY = struct.Struct(">IIQ")
_REQUEST_MAGIC, _REPLY_MAGIC = 0x25609513, 0x67446698
READ, WRITE, DISCONNECT, FLUSH = 0, 1, 2, 3
_EINVAL = 22


@dataclass(frozen=True, slots=True)
class Request:
    """`data` is that of a write, `length` that of a read."""

    kind: int
    handle: int
    offset: int
    length: int
    data: bytes = b""


async def negotiate(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, size_bytes: int) -> bool:
    """Offer an export of that size under any name. Returns False if the client aborts."""
    writer.write(_GREETING)
    await reader.readexactly(4)  # the client's flags: QEMU uses fixed newstyle
    while True:
        _, option, length = _OPTION.unpack(await reader.readexactly(_OPTION.size))
        await reader.readexactly(length)
        if option == _GO:
            export = _INFO_EXPORT.pack(0, size_bytes, _HAS_FLAGS | _SENDS_FLUSH)
            _answer_option(writer, option, _INFO, export)
            _answer_option(writer, option, _ACK)
            return True
        _answer_option(writer, option, _ACK if option == _ABORT else _UNSUPPORTED)
        if option == _ABORT:
            return False


def _answer_option(writer: asyncio.StreamWriter, option: int, kind: int, data: bytes = b"") -> None:
    writer.write(_OPTION_REPLY.pack(_OPTION_REPLY_MAGIC, option, kind, len(data)) + data)


async def requests(reader: asyncio.StreamReader, take: Callable[[Request], Awaitable[None]]) -> None:
    """Pass each request to `take` until the client disconnects."""
    while True:
        try:
            magic, _, kind, handle, offset, length = _REQUEST.unpack(await reader.readexactly(_REQUEST.size))
            data = await reader.readexactly(length) if kind == WRITE else b""
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        if magic != _REQUEST_MAGIC or kind == DISCONNECT:
            return
        await take(Request(kind, handle, offset, length, data))


def reply(writer: asyncio.StreamWriter, request: Request, data: bytes = b"", *, error: int = 0) -> None:
    """Send a reply, unless the client is gone."""
    if not writer.is_closing():
        writer.write(_REPLY.pack(_REPLY_MAGIC, error, request.handle) + data)


def refuse(writer: asyncio.StreamWriter, request: Request) -> None:
    """Reject a kind of request that was not offered."""
    reply(writer, request, error=_EINVAL)


# --- the client ----------------------------------------------------------------------------------------------


def connect(path: Path, timeout_s: float) -> tuple[socket.socket, int]:
    """Connect to the export of a Unix socket; returns the connection and the export's size in bytes.

    Raises OSError, also when the server offers none.
    """
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(timeout_s)
        connection.connect(str(path))
        return connection, _choose_export(connection)
    except OSError:
        connection.close()
        raise


def _choose_export(connection: socket.socket) -> int:
    receive_exactly(connection, len(_GREETING))
    # The empty name, and no wishes for more information.
    wish = struct.pack(">IH", 0, 0)
    connection.sendall(struct.pack(">I", 1) + _OPTION.pack(b"IHAVEOPT", _GO, len(wish)) + wish)
    size_bytes = 0
    while True:
        _, _, kind, length = _OPTION_REPLY.unpack(receive_exactly(connection, _OPTION_REPLY.size))
        data = receive_exactly(connection, length)
        if kind == _ACK:
            return size_bytes
        if kind != _INFO:
            raise OSError(f"the NBD server refuses its export: reply {kind:#x}")
        _, size_bytes, _ = _INFO_EXPORT.unpack(data)


def packed(request: Request) -> bytes:
    """A request as it is sent."""
    header = _REQUEST.pack(_REQUEST_MAGIC, 0, request.kind, request.handle, request.offset, request.length)
    return header + request.data


def receive(connection: socket.socket) -> tuple[int, int]:
    """Handle and error number of the next reply; the data of a read follows it. Raises OSError."""
    magic, error, handle = _REPLY.unpack(receive_exactly(connection, _REPLY.size))
    if magic != _REPLY_MAGIC:
        raise OSError("no NBD reply")
    return handle, error


def receive_exactly(connection: socket.socket, length: int) -> bytes:
    """The next `length` bytes. Raises OSError if the connection ends before."""
    data = bytearray()
    while len(data) < length:
        got = connection.recv(length - len(data))
        if not got:
            raise OSError("the NBD connection has ended")
        data += got
    return bytes(data)
