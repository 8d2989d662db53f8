"""The part of NBD's protocol that QEMU needs: fixed newstyle, one export per socket, read, write, flush.

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
    """`data` of a write, `length` of a read."""

    kind: int
    handle: int
    offset: int
    length: int
    data: bytes = b""


async def negotiate(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, size_bytes: int) -> bool:
    """Offer an export of that size, whatever name it is asked for by. False when the client wants none."""
    writer.write(_GREETING)
    await reader.readexactly(4)  # the client's flags: it is of the fixed newstyle, as QEMU is
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
    """Hand over each request as it comes, until the client takes its leave or is gone."""
    while True:
        try:
            magic, _, kind, handle, offset, length = _REQUEST.unpack(await reader.readexactly(_REQUEST.size))
            data = await reader.readexactly(length) if kind == WRITE else b""
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        if magic != _REQUEST_MAGIC or kind == DISCONNECT:
            return
        await take(Request(kind, handle, offset, length, data))


def answer(writer: asyncio.StreamWriter, request: Request, data: bytes = b"", *, error: int = 0) -> None:
    """Nothing happens when the client is gone."""
    if not writer.is_closing():
        writer.write(_REPLY.pack(_REPLY_MAGIC, error, request.handle) + data)


def refuse(writer: asyncio.StreamWriter, request: Request) -> None:
    """A kind of request that was not offered."""
    answer(writer, request, error=_EINVAL)
