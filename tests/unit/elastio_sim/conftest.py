"""A small machine: blocks of 64 KiB, a backing disk of 4 MB/s, cache disks of 16 MB/s and 16 MiB."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest

from elastio.core.model import CacheSetUuid, Serial
from elastio.units import KIB, MB, MIB
from elastio_sim.clock import SimClock
from elastio_sim.disk import SimDisk
from elastio_sim.faults import FaultPlan
from elastio_sim.host import SimHost
from elastio_sim.kernel import KernelSettings, SimKernel
from elastio_sim.world import SimCounters
from tests.fixtures.caches import make_cache

BLOCK = 64 * KIB
STEP_S = 0.05
CACHE_MB_S = 16.0
Traffic = Mapping[str, tuple[int, int]]
CACHE = Serial("vol00000000000000001")


class Queue:
    """An application that writes and reads these blocks as fast as it can."""

    def __init__(self) -> None:
        self.writes: deque[int] = deque()
        self.reads: deque[int] = deque()
        self.acknowledged: list[int] = []

    def begin(self, seconds: float) -> None:
        """Nothing depends on time."""

    def idle_s(self) -> float:
        return 0.0

    def rest(self, steps: int, seconds: float) -> None:
        """Never called: it may always write."""

    def next_write(self) -> int | None:
        return self.writes.popleft() if self.writes else None

    def next_read(self) -> int | None:
        return self.reads.popleft() if self.reads else None

    def wrote(self, block: int) -> None:
        self.acknowledged.append(block)


class Machine:
    """A kernel, its host port, and an application."""

    def __init__(self, faults: str = "nothing", cutoff: float = 0.70, **kernel: Any) -> None:
        self.clock = SimClock()
        usual = {"backing_mb_s": 4.0, "backing_bytes": 512 * MIB, "block_bytes": BLOCK, "cache_efficiency": 1.0}
        settings = KernelSettings(cutoff=cutoff, **{**usual, **kernel})
        self.kernel = SimKernel(self.clock, settings)
        self.host = SimHost(self.kernel, FaultPlan.parse(faults))
        self.counters = SimCounters(self.kernel)
        self.app = Queue()

    @property
    def dirty(self) -> int:
        return self.kernel.bcache.dirty_bytes

    def run(self, seconds: float) -> None:
        """Whatever the test does: no step exceeds a cap, and every byte of the application goes one way."""
        for _ in range(round(seconds / STEP_S)):
            linked, before = self.kernel.bcache.cache_set, self.counters.read()
            self.clock.advance(STEP_S)
            self.kernel.step(STEP_S, self.app)
            self._check_caps(before, same_cache=self.kernel.bcache.cache_set == linked)
            bcache = self.kernel.bcache
            assert bcache.absorbed_bytes + bcache.bypassed_bytes == len(self.app.acknowledged) * BLOCK

    def _check_caps(self, before: Traffic, *, same_cache: bool) -> None:
        after, caps_mb_s = self.counters.read(), {"backing": self.kernel.settings.backing_mb_s}
        if same_cache:  # another disk has another counter
            caps_mb_s["cache"] = CACHE_MB_S
        for disk, mb_s in caps_mb_s.items():
            assert 0 <= sum(after[disk]) - sum(before[disk]) <= mb_s * MB * STEP_S + 1

    def write(self, blocks: Iterable[int], seconds: float = 0.0) -> None:
        self.app.writes.extend(blocks)
        self.run(seconds)

    def plug(self, serial: Serial = CACHE, size_bytes: int = 16 * MIB) -> SimDisk:
        disk = SimDisk(serial, size_bytes, CACHE_MB_S)
        self.kernel.plug(disk)
        return disk

    def made(self) -> CacheSetUuid:
        """A registered cache on a disk that was just plugged."""
        return make_cache(self.host, CACHE, self.plug().size_bytes)

    def attach(self, *, flush_mb_s: float | None = 0.0) -> CacheSetUuid:
        cache_set = self.made()
        self.host.attach_cache_set(cache_set, CACHE, flush_mb_s=flush_mb_s)
        return cache_set

    def boost(self, *, flush_mb_s: float | None = False) -> CacheSetUuid:
        self.host.tune_backing()
        cache_set = self.attach(flush_mb_s=flush_mb_s)
        self.run(1.0)
        return cache_set

    def write_as_fast_as_possible(self) -> None:
        self.write(range(10_000), 5.0)

    def drain(self) -> None:
        self.host.enter_phase2()
        self.run(10.0)
        self.host.bypass_cache()

    def take_off(self, cache_set: CacheSetUuid) -> None:
        self.drain()
        self.host.detach_cache_set(cache_set)
        self.run(1.0)

    def leave(self, cache_set: CacheSetUuid) -> None:
        self.take_off(cache_set)
        self.host.release_cache_disk(CACHE, 16 * MIB, cache_set)


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.fixture
def make_machine() -> Callable[..., Machine]:
    return Machine
