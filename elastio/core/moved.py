"""What a cgroup has moved of a device, what of it since an earlier reading, and in which direction. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Moved:
    """Bytes that a cgroup, with all below it, has read and written of one device: in all, or in some time.

    `requests`: in so many requests, where that is known.
    """

    read_bytes: int = 0
    written_bytes: int = 0
    requests: int = 0

    @property
    def total_bytes(self) -> int:
        return self.read_bytes + self.written_bytes

    def plus(self, other: Moved) -> Moved:
        read, written = self.read_bytes + other.read_bytes, self.written_bytes + other.written_bytes
        return Moved(read, written, self.requests + other.requests)

    def since(self, before: Moved) -> Moved:
        """What was moved since the reading `before`.

        A counter that has decreased belongs to a new cgroup of the same name, which began at 0.
        """
        read, written = self.read_bytes - before.read_bytes, self.written_bytes - before.written_bytes
        return self if min(read, written) < 0 else Moved(read, written, max(0, self.requests - before.requests))


# The weight of the last reading in a mix: buffered writes come in bursts, and reads between them.
WEIGHT = 0.2
# A mix so near to even counts as even. Requests drawn at random are never quite even within some turns, so the larger
# direction is always found to have more than half: by that much, limits would allow too much. The fewer requests a mix
# is of, the further it strays: so many standard deviations of as many draws are no evidence either, up to a bound, as
# buffered writes are few requests.
EVEN, SURE, MOST_EVEN = 0.05, 2.0, 0.2


@dataclass(frozen=True, slots=True)
class Mix:
    """Bytes read and written between two readings: a mean in which each reading weighs less than the next.

    `requests`: as many draws would stray as far.
    """

    read_bytes: float = 0.0
    written_bytes: float = 0.0
    requests: float = 0.0

    def after(self, moved: Moved) -> Mix:
        """With what was moved since the last reading."""
        weight = WEIGHT if self.read_bytes + self.written_bytes else 1.0
        return Mix(
            (1 - weight) * self.read_bytes + weight * moved.read_bytes,
            (1 - weight) * self.written_bytes + weight * moved.written_bytes,
            (1 - weight) * self.requests + (2 - weight) * moved.requests,
        )

    @property
    def larger(self) -> float:
        """The share of the direction that moves more, 0.5 to 1; 1 where nothing was moved."""
        total = self.read_bytes + self.written_bytes
        share = max(self.read_bytes, self.written_bytes) / total if total else 1.0
        strays = SURE * 0.5 / math.sqrt(self.requests) if self.requests else 0.0
        return share if share >= 0.5 + min(MOST_EVEN, max(EVEN, strays)) else 0.5
