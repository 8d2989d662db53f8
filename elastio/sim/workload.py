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


@dataclass(frozen=True, slots=True)
class Profile:
    """A bulk-synchronous application: an initial dump, then `iterations` of compute and dump, then `tail_s`."""

    compute_s: float
    dump_bytes: int
    iterations: int
    initial_bytes: int = 0
    tail_s: float = 0.0

    def scaled(self, factor: float) -> Profile:
        """The same profile with time and data multiplied by `factor`."""
        return Profile(
            self.compute_s * factor,
            round(self.dump_bytes * factor),
            self.iterations,
            round(self.initial_bytes * factor),
            self.tail_s * factor,
        )


# The published runs: CM1 (5 GB, then 3 x 4 GB, 1100 s of compute) and LAMMPS (4 GB, then 3 x 3 GB, 1380 s).
CM1 = Profile(compute_s=1100 / 3, dump_bytes=4 * GB, iterations=3, initial_bytes=5 * GB)
LAMMPS = Profile(compute_s=1380 / 3, dump_bytes=3 * GB, iterations=3, initial_bytes=4 * GB)


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


class Checkpointing(Workload):
    """A `Profile` in a closed loop: a dump lasts as long as the device needs, and compute waits for it."""

    def __init__(self, profile: Profile, span_bytes: int = 50 * GB, block_bytes: int = MIB) -> None:
        super().__init__(span_bytes, block_bytes)
        self.profile = profile
        self._iteration = 0 if profile.initial_bytes else 1
        self._position = 0
        self._asked = self._written = 0
        self._dump_at = 0.0 if profile.initial_bytes else profile.compute_s
        self._end_at: float | None = None if profile.initial_bytes or profile.iterations else profile.tail_s

    @property
    def dumping(self) -> bool:
        """True while a dump is being written."""
        return self._end_at is None and self.elapsed_s >= self._dump_at

    def begin(self, seconds: float) -> None:
        super().begin(seconds)
        if self._end_at is not None and not self.done and self.elapsed_s >= self._end_at:
            self.stats.finished_s = self.elapsed_s

    def idle_s(self) -> float:
        if self.done:
            return math.inf
        return (self._dump_at if self._end_at is None else self._end_at) - self.elapsed_s

    def next_write(self) -> int | None:
        if not self.dumping or self._asked >= self._blocks():
            return None
        self._asked += 1
        block = self._position % self.span_blocks
        self._position += 1
        return block

    def wrote(self, block: int) -> None:
        super().wrote(block)
        self._written += 1
        if self._written == self._blocks():
            self._end_dump()

    def _size(self) -> int:
        return self.profile.dump_bytes if self._iteration else self.profile.initial_bytes

    def _blocks(self) -> int:
        return math.ceil(self._size() / self.block_bytes)

    def _end_dump(self) -> None:
        now, initial = self.elapsed_s, self._iteration == 0
        self.stats.dumps.append(Dump(self._dump_at, now - self._dump_at, self._size(), initial))
        self._iteration += 1
        self._asked = self._written = 0
        if self._iteration > self.profile.iterations:
            self._end_at = now + self.profile.tail_s
            if self.profile.tail_s == 0:
                self.stats.finished_s = now
        else:
            self._dump_at = now + self.profile.compute_s


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
