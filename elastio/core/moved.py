"""What a cgroup has moved of a device, and what of it since an earlier reading. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Moved:
    """Bytes that a cgroup, with all below it, has read and written of one device: in all, or in some time."""

    read_bytes: int = 0
    written_bytes: int = 0

    @property
    def total_bytes(self) -> int:
        return self.read_bytes + self.written_bytes

    def plus(self, other: Moved) -> Moved:
        return Moved(self.read_bytes + other.read_bytes, self.written_bytes + other.written_bytes)

    def since(self, before: Moved) -> Moved:
        """What was moved since the reading `before`.

        A counter that has decreased belongs to a new cgroup of the same name, which began at 0.
        """
        read, written = self.read_bytes - before.read_bytes, self.written_bytes - before.written_bytes
        return self if min(read, written) < 0 else Moved(read, written)
