"""How the bandwidth of two disks is shared, byte by byte, in one step of simulated time.

Each flow has one block in flight. Flows take turns of one quantum until nobody can move: a disk's cap is first
come first served, for reads and writes together, as the caps of hypervisors and clouds are.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from elastio.sim.bcache import Bcache, Pace, Route
from elastio.sim.content import CacheContent
from elastio.units import MB

# Turns that the slower disk's budget makes in one step: enough for a fair share, few enough that a simulated hour
# takes seconds.
TURNS = 8
LEAST_QUANTUM_BYTES = 4096


class Load(Protocol):
    """What applications want of the device. Asked for the next block whenever the one before is done."""

    def begin(self, seconds: float) -> None:
        """A step of simulated time starts."""
        ...

    def next_write(self) -> int | None:
        """The number of the block to write now, or None."""
        ...

    def next_read(self) -> int | None:
        """The number of the block to read now, or None."""
        ...

    def wrote(self, block: int) -> None:
        """The write of `block` was acknowledged."""
        ...


@dataclass(slots=True)
class Traffic:
    """Cumulative bytes of one block device."""

    read: int = 0
    written: int = 0


@dataclass(slots=True)
class Traffics:
    """Cumulative bytes of the three devices, as /proc/diskstats counts them."""

    adaptive: Traffic = field(default_factory=Traffic)
    backing: Traffic = field(default_factory=Traffic)
    cache: Traffic = field(default_factory=Traffic)


@dataclass(slots=True)
class Budget:
    """Bytes that each disk can still move in this step."""

    backing: int
    cache: int
    quantum: int = field(init=False)

    def __post_init__(self) -> None:
        slower = min(self.backing, self.cache) if self.cache else self.backing
        self.quantum = max(LEAST_QUANTUM_BYTES, slower // TURNS)


class Disks(NamedTuple):
    """The disks that a flow needs at once."""

    backing: bool
    cache: bool

    def allowed(self, budget: Budget, wanted: int) -> int:
        """How much of `wanted` may move now."""
        if self.backing:
            wanted = min(wanted, budget.backing)
        return min(wanted, budget.cache) if self.cache else wanted

    def take(self, budget: Budget, moved: int) -> None:
        """Use up budget."""
        if self.backing:
            budget.backing -= moved
        if self.cache:
            budget.cache -= moved


BACKING, CACHE, BOTH = Disks(True, False), Disks(False, True), Disks(True, True)
NEEDS = {Route.ABSORB: CACHE, Route.BYPASS: BACKING, Route.OVERFLOW: BOTH, Route.THROUGH: BOTH}


class WriteFlow:
    """The writes of applications."""

    def __init__(self, bcache: Bcache, traffic: Traffics) -> None:
        self._bcache = bcache
        self._traffic = traffic
        self._left = 0
        self._route = Route.BYPASS
        self._version = 0
        self._again: int | None = None
        self.block: int | None = None

    def reset(self) -> None:
        """Drop what is in flight: it was never acknowledged, so the application will write it again."""
        self._again = self.block if self.block is not None else self._again
        self._end()

    def _end(self) -> None:
        self.block = None
        self._bcache.absorbing = False

    def wants_backing(self, load: Load) -> bool:
        """True when an application's write waits for the backing disk."""
        return self._start(load) and self._route is not Route.ABSORB

    def turn(self, load: Load, budget: Budget) -> int:
        """Move at most one quantum; the bytes moved."""
        if not self._start(load) or self.block is None:
            return 0
        disk = NEEDS[self._route]
        moved = disk.allowed(budget, min(budget.quantum, self._left))
        disk.take(budget, moved)
        self._count(moved)
        self._left -= moved
        if self._left == 0:
            block = self.block
            self._end()
            self._bcache.written(block, self._version, self._route)
            load.wrote(block)
        return moved

    def _start(self, load: Load) -> bool:
        if self.block is None:
            self.block, self._again = (load.next_write() if self._again is None else self._again), None
            if self.block is not None:
                self._route = self._bcache.route(self.block)
                self._version += 1
                self._left = self._bcache.block_bytes
                self._bcache.absorbing = self._route is Route.ABSORB
        elif self._route is not Route.BYPASS and self._bcache.cache is None:
            self._route = Route.BYPASS  # the cache left while this waited
        return self.block is not None

    def _count(self, moved: int) -> None:
        self._traffic.adaptive.written += moved
        if self._route is not Route.ABSORB:
            self._traffic.backing.written += moved
        if self._route is not Route.BYPASS:
            self._traffic.cache.written += moved


class ReadFlow:
    """The reads of applications: hits from the cache disk, misses from the backing disk."""

    def __init__(self, bcache: Bcache, traffic: Traffics) -> None:
        self._bcache = bcache
        self._traffic = traffic
        self._left = 0
        self._hit = False
        self.block: int | None = None

    def reset(self) -> None:
        """Drop what is in flight."""
        self.block = None

    def wants_backing(self, load: Load) -> bool:
        """True when an application's read waits for the backing disk."""
        return self._start(load) and not self._hit

    def turn(self, load: Load, budget: Budget) -> int:
        """Move at most one quantum; the bytes moved."""
        if not self._start(load) or self.block is None:
            return 0
        disk = CACHE if self._hit else BACKING
        moved = disk.allowed(budget, min(budget.quantum, self._left))
        disk.take(budget, moved)
        self._traffic.adaptive.read += moved
        (self._traffic.cache if self._hit else self._traffic.backing).read += moved
        self._left -= moved
        if self._left == 0:
            if not self._hit:
                self._bcache.missed(self.block)
            self.block = None
        return moved

    def _start(self, load: Load) -> bool:
        if self.block is None:
            self.block = load.next_read()
            self._left = self._bcache.block_bytes
        if self.block is not None:
            cache = self._bcache.cache
            self._hit = cache is not None and cache.holds(self.block)
        return self.block is not None


class FlushFlow:
    """Dirty blocks on their way back, in the order of their addresses, scan after scan."""

    def __init__(self, bcache: Bcache, traffic: Traffics) -> None:
        self._bcache = bcache
        self._traffic = traffic
        self._scan: list[int] = []
        self._scanned: CacheContent | None = None
        self._left = 0
        self._version = 0
        self._tokens = 0.0

    def reset(self) -> None:
        """Drop what is in flight: the block stays dirty."""
        self._bcache.flushing_block = None

    def begin(self, seconds: float) -> None:
        """A step starts: a flush with a limit may move a little more, and save up one block at the most."""
        rate = (self._bcache.flush_limit_mb_s or 0.0) * MB
        most = max(float(self._bcache.block_bytes), seconds * rate)
        self._tokens = min(self._tokens + seconds * rate, most)

    def ready(self) -> bool:
        """True when there is a block to write back and leave to do it."""
        return self._bcache.flushing_block is not None or self._start()

    def turn(self, budget: Budget, *, yield_backing: bool) -> int:
        """Move at most one quantum; `yield_backing` tells that an application waits for the backing disk."""
        if not self.ready():
            return 0
        pace = self._bcache.flush_class()
        if pace is Pace.IDLE and yield_backing:
            return 0
        wanted = min(budget.quantum, self._left)
        has_limit = pace in (Pace.TRICKLE, Pace.LIMITED)
        if has_limit:
            wanted = min(wanted, int(self._tokens))
        moved = BOTH.allowed(budget, wanted)
        BOTH.take(budget, moved)
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
        self._bcache.flushed_bytes += self._bcache.block_bytes
        cache.flushed(block, self._version)
