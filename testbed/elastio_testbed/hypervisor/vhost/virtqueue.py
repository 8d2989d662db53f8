"""A split virtqueue, seen from the device.

Three tables in the machine's memory: descriptors (address, length, flags, next), the ring of chains that the driver has
made available, and the ring of those that the device has used. Virtual I/O Device (VIRTIO) 1.2, section 2.7.

The machine reads and writes the indexes meanwhile. Each is one 16-bit access here (a cast view, unlike `struct` with an
explicit byte order), and x86 keeps the order of stores, so an entry is complete before its index shows it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from elastio_testbed.hypervisor.vhost.memory import BadAddress, Memory

MAX_SIZE = 256
_DESCRIPTOR = struct.Struct("<QIHH")
_USED = struct.Struct("<II")
_NEXT, _WRITABLE, _INDIRECT = 1, 2, 4
# Flags and index precede the entries of both rings.
_RING_HEADER = 4
_WRAP = 1 << 16


@dataclass(frozen=True, slots=True)
class Chain:
    """A request: what the device reads, and what it writes. `head` names it in the ring."""

    head: int
    readable: list[memoryview]
    writable: list[memoryview]


class Virtqueue:
    """The queue of `size` entries whose tables are at these addresses of the machine's process; `next` is the index
    of the first chain to take. Raises BadAddress."""

    def __init__(self, memory: Memory, size: int, descriptors: int, available: int, used: int, next: int) -> None:
        if not 0 < size <= MAX_SIZE or size & (size - 1):
            raise BadAddress(f"a queue of {size} entries")
        self._memory, self._size = memory, size
        self._descriptors = memory.user_view(descriptors, size * _DESCRIPTOR.size)
        self._available = memory.user_view(available, _RING_HEADER + 2 * size).cast("H")
        self._used = memory.user_view(used, _RING_HEADER + _USED.size * size)
        self._used_indexes = self._used[:_RING_HEADER].cast("H")
        self.next = next

    def pop(self) -> Chain | None:
        """Take the next chain, if there is one. Raises BadAddress for one that is malformed."""
        if self._available[1] == self.next:
            return None
        head = self._available[2 + self.next % self._size]
        self.next = (self.next + 1) % _WRAP
        return self._chain(head)

    def push(self, head: int, written: int) -> None:
        """Answer a chain, of which the device has written so many bytes."""
        index = self._used_indexes[1]
        _USED.pack_into(self._used, _RING_HEADER + _USED.size * (index % self._size), head, written)
        self._used_indexes[1] = (index + 1) % _WRAP

    def _chain(self, head: int) -> Chain:
        chain = Chain(head, [], [])
        table, at, count = self._descriptors, head, self._size
        address, length, flags, following = _descriptor(table, at)
        if flags & _INDIRECT:
            table, at, count = self._memory.view(address, length), 0, length // _DESCRIPTOR.size
            address, length, flags, following = _descriptor(table, at)
        for _ in range(count):
            view = self._memory.view(address, length)
            (chain.writable if flags & _WRITABLE else chain.readable).append(view)
            if not flags & _NEXT:
                return chain
            address, length, flags, following = _descriptor(table, following)
        raise BadAddress("a chain of descriptors that does not end")


def _descriptor(table: memoryview, at: int) -> tuple[int, int, int, int]:
    try:
        return _DESCRIPTOR.unpack_from(table, at * _DESCRIPTOR.size)
    except struct.error as error:
        raise BadAddress(f"descriptor {at} is outside its table") from error
