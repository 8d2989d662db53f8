"""The part of the NBD protocol that QEMU uses: fixed newstyle, one export per socket, read, write, flush.

https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

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
