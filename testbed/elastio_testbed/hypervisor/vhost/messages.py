"""The messages of vhost-user that user-mode Linux sends. https://qemu-project.gitlab.io/qemu/interop/vhost-user.html"""

from __future__ import annotations

import array
import enum
import socket
import struct
from dataclasses import dataclass

_HEADER = struct.Struct("<III")
_VERSION, _REPLY = 1, 4
_MAX_FDS = 8
_MAX_PAYLOAD = 4096
# Feature bits: VIRTIO_F_VERSION_1, and the one by which vhost-user negotiates its own features.
VERSION_1, PROTOCOL_FEATURES = 1 << 32, 1 << 30
# Features of the protocol: the configuration space is the server's, and the server has a socket for requests of its
# own. It makes none; but only with that socket does the machine's driver get an interrupt of its own for the disk.
PROTOCOL_CONFIG, PROTOCOL_BACKEND_REQUESTS = 1 << 9, 1 << 5
# In a message about a queue's descriptor: there is none.
NO_FD = 1 << 8
_INDEX_MASK = 0xFF


class Kind(enum.IntEnum):
    """The requests that are answered or obeyed; others are ignored."""

    GET_FEATURES = 1
    SET_FEATURES = 2
    SET_OWNER = 3
    SET_MEM_TABLE = 5
    SET_VRING_NUM = 8
    SET_VRING_ADDR = 9
    SET_VRING_BASE = 10
    GET_VRING_BASE = 11
    SET_VRING_KICK = 12
    SET_VRING_CALL = 13
    GET_PROTOCOL_FEATURES = 15
    SET_PROTOCOL_FEATURES = 16
    GET_QUEUE_NUM = 17
    SET_VRING_ENABLE = 18
    SET_BACKEND_REQ_FD = 21
    GET_CONFIG = 24


@dataclass(slots=True)
class Message:
    """One request. The receiver closes `fds`."""

    kind: int
    payload: bytes
    fds: list[int]

    def integer(self) -> int:
        """The payload of a message that has one 64-bit integer."""
        return int(struct.unpack_from("<Q", self.payload)[0])

    def state(self) -> tuple[int, int]:
        """Index of the queue, and a number."""
        index, number = struct.unpack_from("<II", self.payload)
        return index, number

    def queue_fd(self) -> tuple[int, int | None]:
        """Index of the queue, and its descriptor, if it has one."""
        value = self.integer()
        return value & _INDEX_MASK, None if value & NO_FD or not self.fds else self.fds.pop()

    def address(self) -> tuple[int, int, int, int]:
        """Index of the queue, and the addresses of descriptors, available and used ring in the machine's process."""
        index, _, descriptors, used, available, _ = struct.unpack_from("<IIQQQQ", self.payload)
        return index, descriptors, available, used

    def regions(self) -> list[tuple[int, int, int, int]]:
        """Guest address, size, address in the machine's process and offset in the file, one for each of `fds`."""
        count, _ = struct.unpack_from("<II", self.payload)
        return [struct.unpack_from("<QQQQ", self.payload, 8 + 32 * number) for number in range(count)]

    def config(self) -> tuple[int, int, int]:
        """Offset, size and flags of a piece of the configuration space."""
        offset, size, flags = struct.unpack_from("<III", self.payload)
        return offset, size, flags


def receive(connection: socket.socket) -> Message | None:
    """The next message; None at the end of the connection. Raises OSError, also for what is no message."""
    header, ancillary, _, _ = connection.recvmsg(_HEADER.size, socket.CMSG_SPACE(4 * _MAX_FDS))
    fds = array.array("i")
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
    if not header:
        return None
    header += _exactly(connection, _HEADER.size - len(header))
    request, _, size = _HEADER.unpack(header)
    if size > _MAX_PAYLOAD:
        raise OSError(f"a message of {size} bytes")
    return Message(request, _exactly(connection, size), fds.tolist())


def reply(connection: socket.socket, message: Message, payload: bytes) -> None:
    """Answer a message. Raises OSError."""
    connection.sendall(_HEADER.pack(message.kind, _VERSION | _REPLY, len(payload)) + payload)


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        got = connection.recv(size - len(data))
        if not got:
            raise OSError("the connection ended within a message")
        data += got
    return data
