"""How the bandwidth of two disks is shared in one step of simulated time.

Theory of operation. There are three flows: writes of applications, reads of applications, and writeback. Each has one
block in flight. Every step gives each disk a budget: the bytes that its cap allows in that time, for reads and writes
together. Caps of hypervisors and clouds work this way, first come, first served.

Flows take turns until none can move. A turn moves one quantum, at most an eighth of the slower disk's budget, and is
paid from every disk that the flow needs at once: an absorbed write only from the cache, a bypassing write and a read
miss only from the backing disk, a write to both disks and writeback from both. A flow that needs both disks therefore
moves at the speed of the slower one. A flow that is alone takes all it can in one turn.

Limits are token buckets. The writes of applications have one while the agent limits them, writes and reads have one
each while cgroups share the device (`shares`); a request that began before the limit is completed. Writeback has one
in modes LIMITED and TRICKLE. A bucket holds at most one step, or one block. In mode IDLE writeback makes no turn while
an application waits for the backing disk.

A block counts when its last byte has moved: then a write is acknowledged, a read may fill the cache, and a flushed
block is clean unless a newer version was written meanwhile. A power cut, or a disk that is pulled, drops what is in
flight. The application then writes that block again, because it was never acknowledged.

The route of a write is decided when it begins, not when it ends. Errors that the agent must avoid depend on this; see
`bcache`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from elastio.core.model import CacheMode
from elastio.units import MB
from elastio_sim.bcache import Bcache, Route, WritebackMode
from elastio_sim.disk import CacheContent, Traffics
from elastio_sim.shares import READERS, WRITERS, SimShares

# How many turns the budget of the slower disk is divided into: enough for a fair share, few enough that a simulated
# hour takes seconds.
TURNS = 8
LEAST_QUANTUM_BYTES = 4096


class Load(Protocol):
    """The application. It is asked for the next block whenever the previous one is done."""

    def begin(self, seconds: float) -> None:
        """A step of `seconds` begins."""

    def idle_s(self) -> float:
        """Seconds from the last `begin` on in which it will ask for nothing; 0 or less: it may ask at any time."""

    def rest(self, steps: int, seconds: float) -> None:
        """Equivalent to `steps` calls of `begin`, all within `idle_s`."""

    def next_write(self) -> int | None:
        """The block to write now, or None."""

    def next_read(self) -> int | None:
        """The block to read now, or None."""

    def wrote(self, block: int) -> None:
        """The write of `block` was acknowledged."""


@dataclass(slots=True)
class Budget:
    """The bytes that each disk can still move in this step."""

    backing: int
    cache: int
    quantum: int = field(init=False)

    def __post_init__(self) -> None:
        slower = min(self.backing, self.cache) if self.cache else self.backing
        self.quantum = max(LEAST_QUANTUM_BYTES, slower // TURNS)

    def spend(self, disks: Disks, wanted: int) -> int:
        """Take at most `wanted` bytes and at most one quantum from every disk in `disks`. Returns the bytes taken."""
        uses_backing, uses_cache = disks
        moved = wanted if wanted < self.quantum else self.quantum
        if uses_backing and moved > self.backing:
            moved = self.backing
        if uses_cache:
            moved = min(moved, self.cache)
            self.cache -= moved
        if uses_backing:
            self.backing -= moved
        return moved


class Disks(NamedTuple):
    """The disks that a flow uses at the same time."""

    backing: bool
    cache: bool


BACKING, CACHE, BOTH = Disks(True, False), Disks(False, True), Disks(True, True)
NEEDS = {Route.ABSORB: CACHE, Route.BYPASS: BACKING, Route.OVERFLOW: BOTH, Route.THROUGH: BOTH}


def _filled(tokens: float, seconds: float, limit_mb_s: float | None, block_bytes: int) -> float:
    """The bytes that may move in this step: what was saved, and what the limit adds; infinite without one."""
    if limit_mb_s is None:
        return math.inf
    saved = 0.0 if math.isinf(tokens) else tokens
    return min(saved + seconds * limit_mb_s * MB, max(float(block_bytes), seconds * limit_mb_s * MB))


class WriteFlow:
    """The writes of applications."""

    def __init__(self, bcache: Bcache, traffic: Traffics, shares: SimShares) -> None:
        self._bcache, self._shares = bcache, shares
        self._traffic = traffic
        self._left = 0
        self._route, self._disks = Route.BYPASS, BACKING
        self._version = 0
        self._again: int | None = None
        self._tokens = math.inf
        self._step_s = self._took_s = 0.0
        self.block: int | None = None

    def begin(self, seconds: float, *, held: bool) -> None:
        """A step begins. Writes may be limited or held back; a write in flight is completed even then."""
        self._step_s = seconds
        self._took_s += seconds
        limit, share = self._bcache.write_limit_mb_s, self._shares.limits.get(WRITERS)
        limit = share if limit is None else limit if share is None else min(limit, share)
        if held:
            self._tokens = float(self._left) if self.block is not None else 0.0
        else:
            self._tokens = _filled(self._tokens, seconds, limit, self._bcache.block_bytes)

    def reset(self) -> None:
        """Drop the block in flight. It was never acknowledged, so the application will write it again."""
        self._again = self.block if self.block is not None else self._again
        self._end()

    def _end(self) -> None:
        self.block = None
        self._bcache.absorbing = False

    @property
    def is_idle(self) -> bool:
        """True if nothing is in flight and nothing has to be written again."""
        return self.block is None and self._again is None

    def wants_backing(self, load: Load) -> bool:
        """True if a write of an application waits for the backing disk."""
        return self.start(load) and self._route is not Route.ABSORB

    def turn(self, load: Load, budget: Budget) -> int:
        """Move at most one quantum; the bytes moved."""
        if not self.start(load) or self.block is None:
            return 0
        may = self._left if self._tokens >= self._left else int(self._tokens)
        moved = budget.spend(self._disks, may)
        self._count(moved)
        self._left -= moved
        self._tokens -= moved
        if self._left == 0:
            block = self.block
            self._end()
            self._shares.took(WRITERS, self._took_s)
            self._bcache.written(block, self._version, self._route)
            load.wrote(block)
        return moved

    def start(self, load: Load) -> bool:
        """Ask for the next block unless one is in flight. False if there is none, or writes are held back."""
        if self.block is not None:
            if self._route is not Route.BYPASS and self._bcache.cache is None:
                self._route, self._disks = Route.BYPASS, BACKING  # the cache was removed while this waited
            return True
        if self._tokens < 1:
            return False
        block, self._again = (load.next_write() if self._again is None else self._again), None
        if block is None:
            return False
        self.block, self._took_s = block, self._step_s
        self._route = self._bcache.route(block)
        self._disks = NEEDS[self._route]
        self._version += 1
        self._left = self._bcache.block_bytes
        self._bcache.absorbing = self._route is Route.ABSORB
        if self._route is Route.BYPASS:
            self._bcache.begin_bypass(block)
        return True

    def _count(self, moved: int) -> None:
        uses_backing, uses_cache = self._disks
        self._traffic.adaptive.written += moved
        if uses_backing:
            self._traffic.backing.written += moved
        if uses_cache:
            self._traffic.cache.written += moved


class ReadFlow:
    """The reads of applications: hits from the cache disk, misses from the backing disk."""

    def __init__(self, bcache: Bcache, traffic: Traffics, shares: SimShares) -> None:
        self._bcache, self._shares = bcache, shares
        self._traffic = traffic
        self._tokens = math.inf
        self._left = 0
        self._hit = self._held = False
        self._version = 0
        self._step_s = self._took_s = 0.0
        self.block: int | None = None

    def begin(self, seconds: float, *, held: bool) -> None:
        """A step begins; reads may be limited or held back, and one in flight is completed even then."""
        self._step_s = seconds
        self._took_s += seconds
        self._held = held
        limit = None if held else self._shares.limits.get(READERS)
        self._tokens = _filled(self._tokens, seconds, limit, self._bcache.block_bytes)

    def reset(self) -> None:
        """Drop what is in flight."""
        self.block = None

    def wants_backing(self, load: Load) -> bool:
        """True if a read of an application waits for the backing disk."""
        return self.start(load) and not self._hit

    def turn(self, load: Load, budget: Budget) -> int:
        """Move at most one quantum; the bytes moved."""
        if not self.start(load) or self.block is None:
            return 0
        may = self._left if self._tokens >= self._left else int(self._tokens)
        moved = budget.spend(CACHE if self._hit else BACKING, may)
        self._tokens -= moved
        self._traffic.adaptive.read += moved
        (self._traffic.cache if self._hit else self._traffic.backing).read += moved
        self._left -= moved
        if self._left == 0:
            if not self._hit:
                self._bcache.missed(self.block, self._version)
            self._shares.took(READERS, self._took_s)
            self.block = None
        return moved

    def start(self, load: Load) -> bool:
        """Ask for the next block unless one is in flight. False if there is none."""
        if self.block is not None:
            if self._hit and self._bcache.cache is None:
                self._hit = False  # the cache was removed while this waited
            return True
        if self._held or self._tokens < 1:
            return False
        block = load.next_read()
        if block is None:
            return False
        self.block, self._took_s = block, self._step_s
        self._left = self._bcache.block_bytes
        self._hit, self._version = self._bcache.read(block)
        return True


class FlushFlow:
    """Writeback: dirty blocks in the order of their addresses, scan after scan."""

    def __init__(self, bcache: Bcache, traffic: Traffics) -> None:
        self._bcache = bcache
        self._traffic = traffic
        self._scan: list[int] = []
        self._scanned: CacheContent | None = None
        self._left = 0
        self._version = 0
        self._tokens = 0.0

    def reset(self) -> None:
        """Drop the block in flight; it stays dirty."""
        self._bcache.flushing_block = None

    def begin(self, seconds: float) -> None:
        """A step begins. Adds its tokens to a limited flush, which saves at most one block."""
        rate = (self._bcache.flush_limit_mb_s or 0.0) * MB
        most = max(float(self._bcache.block_bytes), seconds * rate)
        self._tokens = min(self._tokens + seconds * rate, most)

    @property
    def is_idle(self) -> bool:
        """True if nothing is in flight and writeback has nothing to do."""
        return self._bcache.flushing_block is None and not self._bcache.may_flush()

    @property
    def may_run(self) -> bool:
        """True if a block is in flight, or would be as soon as one is dirty."""
        bcache = self._bcache
        cache = bcache.cache
        if cache is None or bcache.flushing_block is not None:
            return cache is not None
        return (bool(cache.dirty) or bcache.mode is CacheMode.WRITEBACK) and (
            bcache.detaching or bcache.writeback_running
        )

    def rest(self, steps: int, seconds: float) -> None:
        """Equivalent to `steps` calls of `begin`."""
        for _ in range(steps):
            before = self._tokens
            self.begin(seconds)
            if self._tokens == before:
                return

    def ready(self) -> bool:
        """True if there is a block to write back and writeback may run."""
        return self._bcache.flushing_block is not None or self._start()

    def turn(self, budget: Budget, *, yield_backing: bool) -> int:
        """Move at most one quantum; the bytes moved. Call it only when `ready`.

        `yield_backing`: an application waits for the backing disk.
        """
        writeback_mode = self._bcache.flush_class()
        if writeback_mode is WritebackMode.IDLE and yield_backing:
            return 0
        has_limit = writeback_mode is WritebackMode.LIMITED or writeback_mode is WritebackMode.TRICKLE
        moved = budget.spend(BOTH, min(self._left, int(self._tokens)) if has_limit else self._left)
        self._tokens -= moved if has_limit else 0
        self._traffic.cache.read += moved
        self._traffic.backing.written += moved
        self._left -= moved
        if self._left == 0:
            self._finish()
        return moved

    def _start(self) -> bool:
        cache = self._bcache.cache
        if cache is None or not self._bcache.may_flush():
            return False
        if cache is not self._scanned or not self._scan:
            self._scanned, self._scan = cache, sorted(cache.dirty, reverse=True)
        while self._scan:
            block = self._scan.pop()
            if block in cache.dirty:
                self._bcache.flushing_block, self._version = block, cache.dirty[block]
                self._left = self._bcache.block_bytes
                return True
        return False

    def _finish(self) -> None:
        block, cache = self._bcache.flushing_block, self._bcache.cache
        self._bcache.flushing_block = None
        if block is None or cache is None:
            return
        self._bcache.backing.write(block, self._version, durable=False)
        cache.flushed(block, self._version)
