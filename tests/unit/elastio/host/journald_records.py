"""A stand-in for systemd's journal: a real datagram socket, and the records that came."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Journald:
    """The receiving end of the native protocol."""

    def __init__(self, sock: socket.socket, path: Path) -> None:
        self._sock, self.path = sock, path

    def records(self) -> list[dict[str, str]]:
        """The records since the last call."""
        found = []
        while True:
            try:
                found.append(parsed(self._sock.recv(1024 * 1024)))
            except BlockingIOError:
                return found


@contextmanager
def journald_at(path: Path) -> Iterator[Journald]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(path))
        sock.setblocking(False)
        yield Journald(sock, path)


def parsed(datagram: bytes) -> dict[str, str]:
    """The fields of one record, read as https://systemd.io/JOURNAL_NATIVE_PROTOCOL/ describes them."""
    fields = {}
    while datagram:
        head, _, rest = datagram.partition(b"\n")
        name, is_short, value = head.partition(b"=")
        if is_short:
            datagram = rest
        else:
            (length,) = struct.unpack("<Q", rest[:8])
            value, datagram = rest[8 : 8 + length], rest[8 + length + 1 :]
        fields[name.decode()] = value.decode(errors="replace")
    return fields
