"""Applications that compute and write dumps in turn, on the simulated machine: the published ones, and others."""

from __future__ import annotations

import math
from dataclasses import dataclass

from elastio.units import GB, MIB, agbs
from elastio_sim.kernel import KernelSettings
from elastio_sim.workload import Dump, Workload
from elastio_sim.world import SimWorld, WorldSettings


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
class StaticRun:
    """An application on one volume, without an agent. `agbs` includes the initial dump, `completion_s` does not."""

    completion_s: float
    agbs: float
    dump_s: tuple[float, ...]


def run_static(profile: Profile, mb_s: float, size_bytes: int, seed: int = 0) -> StaticRun:
    """The application on a single volume of this bandwidth, as for `static-slow` and `static-fast`."""
    kernel = KernelSettings(backing_mb_s=mb_s, backing_bytes=size_bytes)
    world = SimWorld(WorldSettings(kernel=kernel, seed=seed), Checkpointing(profile, size_bytes))
    world.run_until_done()
    stats = world.workload.stats
    spent = agbs(mb_s, size_bytes, stats.finished_s or 0.0)
    return StaticRun(stats.completion_s or math.nan, spent, tuple(d.seconds for d in stats.dumps))
