"""device-mapper's tables, read and changed through its control node.

Theory of operation. A device has a live table, and may have a loaded one. A suspended device completes what is in
flight and keeps every later request waiting; when it is resumed, the loaded table becomes the live one. So a device can
be changed under a mounted filesystem: load, suspend, copy what has to move, resume.

While it is suspended no program can be started that lies on it, so this is done by ioctl(2) and not by dmsetup.
Source: include/uapi/linux/dm-ioctl.h, version 4.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from elastio.errors import HostError
from elastio.host.sysfs import Sysfs

CONTROL = "dev/mapper/control"
# struct dm_ioctl: version, sizes, counts, flags, event, device, name, uuid. struct dm_target_spec, then its parameters.
HEADER = struct.Struct("<3I2I2i2I4xQ128s129s7x")
TARGET = struct.Struct("<QQiI16s")
BUFFER_BYTES = 16384
# Numbers of the commands. The request is _IOWR(0xfd, number, struct dm_ioctl).
SUSPEND, LOAD, CLEAR, STATUS = 6, 9, 10, 12
SUSPEND_FLAG, TABLE_FLAG, SKIP_LOCKFS, INACTIVE_FLAG, BUFFER_FULL = 1 << 1, 1 << 4, 1 << 10, 1 << 12, 1 << 8
LINEAR = b"linear"


@dataclass(frozen=True, slots=True)
class Linear:
    """A row of a table: `length` sectors from `begin` on are those of `device` (`major:minor`) from `offset` on."""

    begin: int
    length: int
    device: str
    offset: int

    def __str__(self) -> str:
        return f"{self.begin} {self.length} linear {self.device} {self.offset}"


def request_of(number: int) -> int:
    return 3 << 30 | HEADER.size << 16 | 0xFD << 8 | number


def table(sysfs: Sysfs, name: str, *, is_live: bool = True) -> tuple[Linear, ...]:
    """The live table of the device with this name, or the loaded one; empty if it has none. Raises HostError."""
    buffer = _call(sysfs, STATUS, name, TABLE_FLAG | (0 if is_live else INACTIVE_FLAG))
    _, _, _, _, start, count, _, flags, *_ = HEADER.unpack_from(buffer)
    if flags & BUFFER_FULL:
        raise HostError(f"the table of {name} is too long", code="mapper.table")
    rows = []
    at = start
    for _ in range(count):
        begin, length, _, following, kind = TARGET.unpack_from(buffer, at)
        text = bytes(buffer[at + TARGET.size : start + following]).split(b"\0", 1)[0].decode(errors="replace").split()
        if kind.rstrip(b"\0") != LINEAR or len(text) != 2 or not text[1].isdecimal():
            raise HostError(f"the table of {name} has a row that is not linear", code="mapper.table")
        rows.append(Linear(begin, length, text[0], int(text[1])))
        at = start + following
    return tuple(rows)


def load(sysfs: Sysfs, name: str, rows: tuple[Linear, ...]) -> None:
    """Load a table, in place of one that was loaded and is not live. Raises HostError."""
    body = b""
    for row in rows:
        parameters = f"{row.device} {row.offset}".encode() + b"\0"
        padded = parameters.ljust(-(-len(parameters) // 8) * 8, b"\0")
        body += TARGET.pack(row.begin, row.length, 0, TARGET.size + len(padded), LINEAR) + padded
    _call(sysfs, LOAD, name, 0, len(rows), body)


def clear(sysfs: Sysfs, name: str) -> None:
    """Forget a loaded table that is not live. Raises HostError."""
    _call(sysfs, CLEAR, name, 0)


def suspend(sysfs: Sysfs, name: str) -> None:
    """Returns when no request is in flight; later ones wait. bcache has the device, so no filesystem is frozen."""
    _call(sysfs, SUSPEND, name, SUSPEND_FLAG | SKIP_LOCKFS)


def resume(sysfs: Sysfs, name: str) -> None:
    """A loaded table becomes the live one. Raises HostError."""
    _call(sysfs, SUSPEND, name, 0)


def _call(sysfs: Sysfs, number: int, name: str, flags: int, rows: int = 0, body: bytes = b"") -> bytearray:
    buffer = bytearray(BUFFER_BYTES)
    head = HEADER.pack(4, 0, 0, len(buffer), HEADER.size, rows, 0, flags, 0, 0, name.encode(), b"")
    buffer[: len(head) + len(body)] = head + body
    sysfs.control(CONTROL, request_of(number), buffer)
    return buffer
