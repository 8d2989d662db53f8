"""The memory of the machine, mapped into the server."""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from dataclasses import dataclass


class BadAddress(Exception):
    """The machine named an address that it has not shared: its driver is broken."""


@dataclass(frozen=True, slots=True)
class Region:
    """A part of the machine's memory: `size` bytes from `guest` on, which its own process has at `user`."""

    guest: int
    user: int
    size: int
    view: memoryview


def map_region(guest: int, user: int, size: int, offset: int, fd: int) -> Region:
    """Map `size` bytes at `offset` of the shared file. Raises OSError or ValueError."""
    mapped = mmap.mmap(fd, offset + size)
    return Region(guest, user, size, memoryview(mapped)[offset:])


class Memory:
    """All regions. Addresses in queues are the guest's; those of the queues themselves are the process's."""

    def __init__(self, regions: Sequence[Region]) -> None:
        self._regions = tuple(regions)

    def view(self, address: int, length: int) -> memoryview:
        """The bytes at a guest address. Raises BadAddress."""
        for region in self._regions:
            at = address - region.guest
            if at >= 0 and at + length <= region.size:
                return region.view[at : at + length]
        raise BadAddress(f"{length} bytes at {address:#x} are not shared")

    def user_view(self, address: int, length: int) -> memoryview:
        """The bytes at an address of the machine's process. Raises BadAddress."""
        for region in self._regions:
            at = address - region.user
            if at >= 0 and at + length <= region.size:
                return region.view[at : at + length]
        raise BadAddress(f"{length} bytes at {address:#x} are not shared")
