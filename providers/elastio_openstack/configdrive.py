"""Reads one file of a config drive, the small ISO 9660 file system that Nova makes for a server, without mounting it.

Layout from ECMA-119: the primary volume descriptor is in sector 16, with the root directory record at byte 156; a
directory is a sequence of records that do not cross sectors. Names end in `;1` and are case-insensitive.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO

LABEL = Path("/dev/disk/by-label/config-2")
SECTOR = 2048
MAX_BYTES = 1 << 20
_DIRECTORY_FLAG = 0x02
_ROOT_RECORD = slice(156, 190)
_NAME_AT = 33


@dataclass(frozen=True, slots=True)
class _Entry:
    name: str
    sector: int
    size: int
    is_directory: bool


def read_file(device: Path, path: str) -> bytes:
    """The contents of `path` on the drive. Raises OSError, or ValueError for a damaged file system."""
    with device.open("rb") as drive:
        descriptor = _read(drive, 16, SECTOR)
        if descriptor[:6] != b"\x01CD001":
            raise ValueError(f"{device} is not an ISO 9660 file system")
        entry = _entry(descriptor[_ROOT_RECORD])
        for part in PurePosixPath(path).parts:
            found = {e.name: e for e in _entries(_read(drive, entry.sector, entry.size))}
            if not entry.is_directory or part.lower() not in found:
                raise FileNotFoundError(f"{device} has no {path}")
            entry = found[part.lower()]
        return _read(drive, entry.sector, entry.size)


def _read(drive: BinaryIO, sector: int, size: int) -> bytes:
    if size > MAX_BYTES:
        raise ValueError(f"a file of {size} bytes is too large for a config drive")
    drive.seek(sector * SECTOR)
    data = drive.read(size)
    if len(data) < size:
        raise ValueError("the config drive is truncated")
    return data


def _entries(directory: bytes) -> Iterator[_Entry]:
    for start in range(0, len(directory), SECTOR):
        at = start
        while at < min(start + SECTOR, len(directory)) and directory[at]:
            length = directory[at]
            yield _entry(directory[at : at + length])
            at += length


def _entry(record: bytes) -> _Entry:
    if len(record) <= _NAME_AT or len(record) < _NAME_AT + record[_NAME_AT - 1]:
        raise ValueError("the config drive has a damaged directory")
    sector = struct.unpack_from("<I", record, 2)[0]
    size = struct.unpack_from("<I", record, 10)[0]
    name = record[_NAME_AT : _NAME_AT + record[_NAME_AT - 1]].decode("latin-1")
    return _Entry(name.partition(";")[0].rstrip(".").lower(), sector, size, bool(record[25] & _DIRECTORY_FLAG))
