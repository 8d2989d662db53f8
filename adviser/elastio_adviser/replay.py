"""A recorded trace as an application: it moves what was recorded, no faster, and slower where the device is slower.

Closed loop: a segment ends only when its bytes are moved. On a slower device everything after it comes later, as for an
application that waits for its I/O.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from elastio.units import GB, MB, MIB
from elastio_adviser.rates import Rate
from elastio_sim.workload import Workload

# A recorded device counts as saturated above this share of its bandwidth: the trace then shows what the device could
# do, not what the application wanted.
SATURATED = 0.9


@dataclass(frozen=True, slots=True)
class Demand:
    """Bytes to move, in at least `seconds`; 0: as fast as the device takes them."""

    seconds: float
    write_bytes: float
    read_bytes: float

    @property
    def moved_bytes(self) -> float:
        return self.write_bytes + self.read_bytes


def demands(rates: Sequence[Rate], saturated_mb_s: float | None = None) -> tuple[Demand, ...]:
    """What the application wanted. `saturated_mb_s`: bandwidth of the recorded device; None: it was never the limit."""
    found: list[Demand] = []
    for r in rates:
        written, read = r.write_mb_s * MB * r.seconds, r.read_mb_s * MB * r.seconds
        if saturated_mb_s is None or r.total_mb_s < SATURATED * saturated_mb_s:
            found.append(Demand(r.seconds, written, read))
        elif found and found[-1].seconds == 0:
            found[-1] = Demand(0.0, found[-1].write_bytes + written, found[-1].read_bytes + read)
        else:
            found.append(Demand(0.0, written, read))
    return tuple(found)


class Replay(Workload):
    """Demands in sequence. Parts of a block are carried over to the next demand. A `flows.Load`."""

    def __init__(self, wanted: Sequence[Demand], span_bytes: int = 50 * GB, block_bytes: int = MIB) -> None:
        super().__init__(span_bytes, block_bytes)
        self._wanted = tuple(wanted)
        self._index, self._inside_s = 0, 0.0
        self._write, self._read = _Stream(), _Stream()
        self._in_flight = 0
        self._enter()

    def begin(self, seconds: float) -> None:
        super().begin(seconds)
        self._inside_s += seconds
        while not self.done and self._is_over():
            self._inside_s -= self._wanted[self._index].seconds
            self._index += 1
            if self._index == len(self._wanted):
                self.stats.finished_s = self.elapsed_s
            else:
                # The time that the device cost is not made up for: the next segment begins now.
                self._inside_s = min(self._inside_s, seconds)
                self._enter()

    def idle_s(self) -> float:
        if self.done:
            return math.inf
        return self._wanted[self._index].seconds - self._inside_s if self._is_moved() else 0.0

    def rest(self, steps: int, seconds: float) -> None:
        for _ in range(steps):  # a sum, as `begin` makes it
            self.elapsed_s += seconds
            self._inside_s += seconds

    def _is_over(self) -> bool:
        return self._inside_s >= self._wanted[self._index].seconds and self._is_moved()

    def _is_moved(self) -> bool:
        blocks = self._write.left_blocks(self.block_bytes) + self._read.left_blocks(self.block_bytes)
        return blocks == 0 and self._in_flight == 0

    def _enter(self) -> None:
        wanted = self._wanted[self._index]
        self._write.add(wanted.write_bytes)
        self._read.add(wanted.read_bytes)

    def next_write(self) -> int | None:
        if self.done or not self._write.take(self.block_bytes, self._share()):
            return None
        self._in_flight += 1
        return (self._write.taken - 1) % self.span_blocks

    def next_read(self) -> int | None:
        if self.done or not self._read.take(self.block_bytes, self._share()):
            return None
        self.stats.read_bytes += self.block_bytes
        return (self._read.taken - 1) % self.span_blocks

    def wrote(self, block: int) -> None:
        """A block that a power cut dropped is written again and acknowledged once."""
        super().wrote(block)
        self._in_flight = max(0, self._in_flight - 1)

    def _share(self) -> float:
        """The share of the segment's bytes that may have been requested by now."""
        seconds = self._wanted[self._index].seconds
        return 1.0 if seconds <= 0 else min(1.0, self._inside_s / seconds)


class _Stream:
    """One direction: bytes of this segment, and the number of blocks requested in all."""

    def __init__(self) -> None:
        self.taken = 0
        self._left = self._whole = 0.0

    def add(self, size_bytes: float) -> None:
        self._left += size_bytes
        self._whole = self._left

    def left_blocks(self, block_bytes: int) -> int:
        return int((self._left + 0.5) // block_bytes)

    def take(self, block_bytes: int, share: float) -> bool:
        allowed = self._left - self._whole * (1 - share)
        if allowed + 0.5 < block_bytes:
            return False
        self._left -= block_bytes
        self.taken += 1
        return True
