"""Simulated applications. Each is a `flows.Load` and is asked for one block after the other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from elastio.units import GB, MB, MIB


@dataclass(frozen=True, slots=True)
class Dump:
    """One dump: when it began, how long it took, what it wrote. `initial` comes before the first iteration."""

    started_s: float
    seconds: float
    size_bytes: int
    initial: bool = False

    @property
    def mb_s(self) -> float:
        return self.size_bytes / MB / self.seconds if self.seconds else 0.0


@dataclass(slots=True)
class Stats:
    """Seconds count from the start of the workload. `completion_s` excludes the initial dump, as published."""

    dumps: list[Dump] = field(default_factory=list)
    finished_s: float | None = None
    written_bytes: int = 0
    read_bytes: int = 0

    @property
    def initial_s(self) -> float:
        return sum(d.seconds for d in self.dumps if d.initial)

    @property
    def completion_s(self) -> float | None:
        return None if self.finished_s is None else self.finished_s - self.initial_s


class Workload:
    """Base class: an application that does nothing and never ends."""

    def __init__(self, span_bytes: int = 50 * GB, block_bytes: int = MIB) -> None:
        self.stats = Stats()
        self.elapsed_s = 0.0
        self.block_bytes = block_bytes
        self.span_blocks = max(1, span_bytes // block_bytes)

    @property
    def done(self) -> bool:
        """True once the application has ended."""
        return self.stats.finished_s is not None

    def begin(self, seconds: float) -> None:
        """Not called while the device does not run: the application waits."""
        self.elapsed_s += seconds

    def idle_s(self) -> float:
        return math.inf

    def rest(self, steps: int, seconds: float) -> None:
        for _ in range(steps):  # a sum as in `begin`: a product would be rounded differently
            self.elapsed_s += seconds

    def next_write(self) -> int | None:
        return None

    def next_read(self) -> int | None:
        return None

    def wrote(self, block: int) -> None:
        self.stats.written_bytes += self.block_bytes


@dataclass(frozen=True, slots=True)
class Segment:
    """A time with constant rates."""

    seconds: float
    write_mb_s: float
    read_mb_s: float = 0.0


class Trace(Workload):
    """Segments in sequence. What the device cannot take within a second is dropped."""

    def __init__(self, segments: Sequence[Segment], span_bytes: int = 50 * GB, block_bytes: int = MIB) -> None:
        super().__init__(span_bytes, block_bytes)
        self._segments = tuple(segments)
        self._write_tokens = self._read_tokens = 0.0
        self._write_position = self._read_position = 0

    def begin(self, seconds: float) -> None:
        super().begin(seconds)
        now = self._now()
        if now is None:
            self.stats.finished_s = self.stats.finished_s or self.elapsed_s
            self._write_tokens = self._read_tokens = 0.0
            return
        self._write_tokens = self._more(self._write_tokens, now.write_mb_s, seconds)
        self._read_tokens = self._more(self._read_tokens, now.read_mb_s, seconds)

    def idle_s(self) -> float:
        left = self.elapsed_s
        for segment in self._segments:
            if left <= segment.seconds:
                return 0.0 if segment.write_mb_s or segment.read_mb_s else segment.seconds - left
            left -= segment.seconds
        return math.inf if self.done else 0.0

    def next_write(self) -> int | None:
        if self._write_tokens < self.block_bytes:
            return None
        self._write_tokens -= self.block_bytes
        self._write_position += 1
        return (self._write_position - 1) % self.span_blocks

    def next_read(self) -> int | None:
        if self._read_tokens < self.block_bytes:
            return None
        self._read_tokens -= self.block_bytes
        self.stats.read_bytes += self.block_bytes
        self._read_position += 1
        return (self._read_position - 1) % self.span_blocks

    def _now(self) -> Segment | None:
        left = self.elapsed_s
        for segment in self._segments:
            if left <= segment.seconds:
                return segment
            left -= segment.seconds
        return None

    def _more(self, tokens: float, mb_s: float, seconds: float) -> float:
        most = max(mb_s * MB, float(2 * self.block_bytes)) if mb_s else 0.0
        return min(tokens + mb_s * MB * seconds, most)


def constant(write_mb_s: float, read_mb_s: float = 0.0, seconds: float = math.inf) -> Trace:
    """The same rates all the time."""
    return Trace((Segment(seconds, write_mb_s, read_mb_s),))
