"""Heads of adopted volumes on disk: found, written, erased. Their format: `core/head.py`."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from elastio.core import head as formats
from elastio.core.head import BLOCK_BYTES, LEAST_BYTES, SLOTS, Head
from elastio.errors import HostError, NotOursError
from elastio.host import superblock
from elastio.units import SECTOR

Verify = Callable[[int], None]


def read(node: Path) -> Head | None:
    """The head on a device; None if there is none, or the device cannot be read. Raises NotOursError for a damaged one.

    Opens read-only, as `superblock.read`.
    """
    try:
        descriptor = os.open(node, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        return formats.valid(os.pread(descriptor, BLOCK_BYTES, slot) for slot in SLOTS)
    except OSError:
        return None
    finally:
        os.close(descriptor)


def require_none(node: Path, shown: str, code: str) -> None:
    """Raises NotOursError if the device has the head of an adopted volume, sound or damaged."""
    try:
        found = read(node)
    except NotOursError as error:
        raise NotOursError(f"{shown} has the head of an adopted volume: {error}", code=code) from error
    if found is not None:
        text = f"{shown} has the head of the adopted volume with UUID {found.volume.uuid}: nothing was changed"
        raise NotOursError(text, code=code)


def superblock_of(node: Path, head: Head) -> bytes:
    """The block with bcache's superblock. Raises HostError."""
    try:
        descriptor = os.open(node, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            return os.pread(descriptor, BLOCK_BYTES, head.content_sector * SECTOR + superblock.OFFSET)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise HostError(f"{node} cannot be read: {error.strerror}", code="head.unreadable") from error


def write(node: Path, head: Head, block: bytes, verify: Verify) -> None:
    """Make the device the head, durably: zeros and bcache's superblock first, the label last. Raises HostError.

    The caller has proven that nothing is on the device. `verify` as in `superblock`.
    """

    def write_all(descriptor: int) -> None:
        _put(descriptor, bytes(LEAST_BYTES), 0)
        _put(descriptor, block, head.content_sector * SECTOR + superblock.OFFSET)
        os.fsync(descriptor)
        _put(descriptor, formats.serialize(head), formats.slot_of(head))

    _exclusively(node, verify, write_all)


def erase(node: Path, verify: Verify) -> None:
    """Overwrite the whole head with zeros, durably: the labels first. Raises HostError."""

    def erase_all(descriptor: int) -> None:
        for slot in SLOTS:
            _put(descriptor, bytes(BLOCK_BYTES), slot)
        os.fsync(descriptor)
        _put(descriptor, bytes(LEAST_BYTES), 0)

    _exclusively(node, verify, erase_all)


def _exclusively(node: Path, verify: Verify, work: Callable[[int], None]) -> None:
    try:
        descriptor = os.open(node, os.O_RDWR | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            verify(descriptor)
            work(descriptor)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise HostError(f"the head on {node} cannot be written: {error.strerror}", code="head.write") from error


def _put(descriptor: int, data: bytes, at: int) -> None:
    """All of the data: one write may take only a part of it."""
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, at)
        view, at = view[written:], at + written
