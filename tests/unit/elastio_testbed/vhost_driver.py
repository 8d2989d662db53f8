"""The driver's side of a disk of the disk server, as user-mode Linux has it: memory, one queue, and the protocol."""

from __future__ import annotations

import mmap
import os
import select
import socket
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from elastio_testbed.hypervisor.vhost.messages import Kind

READ, WRITE, FLUSH, GET_ID, DISCARD, WRITE_ZEROES = 0, 1, 4, 8, 11, 13
OK, IOERR, UNSUPPORTED = 0, 1, 2
SIZE = 8  # of the queue
MEMORY = 1 << 20
# Where the guest has its memory, and where its process has it.
GUEST, USER = 0x10_0000, 0x6000_0000
_DESCRIPTORS, _AVAILABLE, _USED, _INDIRECT_TABLE, _DATA = 0, 0x1000, 0x2000, 0x3000, 0x4000
_NEXT, _WRITABLE, _INDIRECT = 1, 2, 4
_TIMEOUT_S = 10.0


class Driver:
    """Connected to the socket of a slot; `capacity` is in sectors."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(_TIMEOUT_S)
        self.socket.connect(str(path))
        self._fd = os.memfd_create("guest")
        os.ftruncate(self._fd, MEMORY)
        self.memory = memoryview(mmap.mmap(self._fd, MEMORY))
        self._kick, self._made, self._taken = os.eventfd(0), 0, 0
        self.call, theirs = socket.socketpair()
        self.features = self._ask(Kind.GET_FEATURES)
        self.tell(Kind.SET_FEATURES, struct.pack("<Q", self.features))
        config = self._exchange(Kind.GET_CONFIG, struct.pack("<III", 0, 60, 0) + bytes(60))[12:]
        self.capacity, self.optimal_io_size = struct.unpack_from("<Q20xI", config)
        self.tell(Kind.SET_MEM_TABLE, struct.pack("<IIQQQQ", 1, 0, GUEST, MEMORY, USER, 0), self._fd)
        self.tell(Kind.SET_VRING_NUM, struct.pack("<II", 0, SIZE))
        self.tell(Kind.SET_VRING_BASE, struct.pack("<II", 0, 0))
        rings = (USER + _DESCRIPTORS, USER + _USED, USER + _AVAILABLE, 0)
        self.tell(Kind.SET_VRING_ADDR, struct.pack("<IIQQQQ", 0, 0, *rings))
        self.tell(Kind.SET_VRING_KICK, struct.pack("<Q", 0), self._kick)
        self.tell(Kind.SET_VRING_CALL, struct.pack("<Q", 0), theirs.fileno())
        theirs.close()
        self.tell(Kind.SET_VRING_ENABLE, struct.pack("<II", 0, 1))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()
        self.call.close()
        os.close(self._kick)
        os.close(self._fd)

    def tell(self, kind: Kind, payload: bytes, *fds: int) -> None:
        socket.send_fds(self.socket, [struct.pack("<III", kind, 1, len(payload)) + payload], list(fds))

    def _exchange(self, kind: Kind, payload: bytes = b"") -> bytes:
        self.tell(kind, payload)
        answered, flags, size = struct.unpack("<III", self.socket.recv(12, socket.MSG_WAITALL))
        assert (answered, flags) == (kind, 5)
        return self.socket.recv(size, socket.MSG_WAITALL)

    def _ask(self, kind: Kind) -> int:
        return int(struct.unpack("<Q", self._exchange(kind))[0])

    # --- requests ----------------------------------------------------------------------------------------

    def send(
        self, kind: int, offset: int = 0, data: bytes = b"", room: int = 0, *, indirect: bool = False, at: int = 0
    ) -> None:
        """Queue a request; `at` keeps the data of several apart. Data and room are in two pieces each."""
        place = _DATA + at
        header = struct.pack("<IIQ", kind, 0, offset // 512)
        half = len(data) // 2
        parts = [(header, 0, 0), (data[:half], 0, 0), (data[half:], 0, 0)]
        parts += [(b"", room // 2, _WRITABLE), (b"", room - room // 2, _WRITABLE), (b"", 1, _WRITABLE)]
        descriptors = []
        for given, length, flags in parts:
            if given or length:
                self.memory[place : place + len(given)] = given
                descriptors.append((GUEST + place, len(given) or length, flags))
                place += len(given) or length
        self.memory[place - 1] = 0xFF  # the status
        self.status_at, self.data_at = place - 1, place - 1 - room
        self.offer(descriptors, indirect=indirect)

    def offer(self, descriptors: Sequence[tuple[int, int, int]], *, indirect: bool = False) -> None:
        """Make a chain of (address, length, flags) available and signal it."""
        table = _INDIRECT_TABLE if indirect else _DESCRIPTORS
        for number, (address, length, flags) in enumerate(descriptors):
            last = number == len(descriptors) - 1
            entry = struct.pack("<QIHH", address, length, flags | (0 if last else _NEXT), number + 1)
            self.memory[table + 16 * number : table + 16 * number + 16] = entry
        if indirect:
            entry = struct.pack("<QIHH", GUEST + table, 16 * len(descriptors), _INDIRECT, 0)
            self.memory[_DESCRIPTORS : _DESCRIPTORS + 16] = entry
        struct.pack_into("<H", self.memory, _AVAILABLE + 4 + 2 * (self._made % SIZE), 0)
        self._made += 1
        struct.pack_into("<H", self.memory, _AVAILABLE + 2, self._made % (1 << 16))
        os.eventfd_write(self._kick, 1)

    def is_answered(self, within_s: float = _TIMEOUT_S) -> bool:
        """Whether the next answer comes in time; it is taken then."""
        if not select.select([self.call], [], [], within_s)[0]:
            return False
        assert self.call.recv(8), "the server has closed the connection"
        self._taken += 1
        (index,) = struct.unpack_from("<H", self.memory, _USED + 2)
        return bool(index == self._taken % (1 << 16))

    def status(self) -> int:
        """Wait for the answer of the last request, and return its status."""
        assert self.is_answered(), "no answer"
        return self.memory[self.status_at]

    def read(self, offset: int, length: int) -> bytes:
        self.send(READ, offset, room=length)
        assert self.status() == OK
        return bytes(self.memory[self.data_at : self.data_at + length])

    def has_ended(self) -> bool:
        """Whether the server ends the connection."""
        return self.socket.recv(1) == b""
