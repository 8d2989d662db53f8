"""A burst on the slow volume or on a cache, in closed form: what the optimum computes with. Pure.

Theory of operation. Amounts are MB and flow evenly. A part of a load takes its own time, or longer where a disk cannot
keep up: reads come from the backing volume, writes go to the cache as long as it has room, else to the backing volume.
Flushing takes what the governor of the agent gives it: the drain while applications saturate the cache, what both disks
have left while they work, and the whole backing volume while they are quiet. A cache that is full adds nothing.

Left out: block sizes, samples, the seconds in which requests are held back, garbage collection. Reads count as misses,
although a cache serves what it still holds. Against the simulator, for loads that write, the model is right to 6 % and
3 s, in the time of a burst and in that of its volume; a test compares them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from elastio.strategy.governor import TARGET
from elastio.units import MB
from elastio_adviser.replay import Demand
from elastio_sim.kernel import KernelSettings

EFFICIENCY = KernelSettings().cache_efficiency
WORKING = 0.30  # of the backing volume: above it the load counts as high


@dataclass(frozen=True, slots=True)
class Cache:
    """What was bought: the volume's bandwidth, the part of it that is for the drain, and the room for dirty MB."""

    mb_s: float
    drain_mb_s: float
    room_mb: float = math.inf

    @property
    def app_mb_s(self) -> float:
        """What applications get while the drain takes its part."""
        return self.mb_s * EFFICIENCY - self.drain_mb_s


class Passed(NamedTuple):
    """After a part of a load: how long it took, how much is dirty then, and the most that was dirty meanwhile."""

    seconds: float
    dirty_mb: float
    peak_mb: float


def slow(part: Demand, backing_mb_s: float) -> float:
    """Seconds that this part takes without a cache."""
    return max(part.seconds, part.moved_bytes / MB / backing_mb_s)


def passed(part: Demand, backing_mb_s: float, cache: Cache, dirty_mb: float) -> Passed:
    """This part on a cache that holds `dirty_mb` at its begin."""
    written, read = part.write_bytes / MB, part.read_bytes / MB
    seconds = max(part.seconds, written / cache.app_mb_s, read / backing_mb_s)
    if seconds <= 0:
        return Passed(0.0, dirty_mb, dirty_mb)
    flush = _flush_mb_s(written / seconds, read / seconds, backing_mb_s, cache)
    growth = written / seconds - flush
    after = dirty_mb + growth * seconds
    if after <= cache.room_mb or growth <= 0:
        return Passed(seconds, max(0.0, after), max(dirty_mb, after, 0.0))
    absorbing = max(0.0, cache.room_mb - dirty_mb) / growth
    left = written * (1 - absorbing / seconds)
    rest = max(seconds - absorbing, left / max(1e-9, backing_mb_s - read / seconds))
    return Passed(absorbing + rest, cache.room_mb, cache.room_mb)


def _flush_mb_s(write: float, read: float, backing_mb_s: float, cache: Cache) -> float:
    """MB/s that are flushed while applications write and read this much."""
    left = max(0.0, backing_mb_s - read)
    if write + read < WORKING * backing_mb_s:
        return left
    drain = min(cache.drain_mb_s, backing_mb_s)
    if write >= cache.app_mb_s * (1 - 1e-9):
        return min(drain, left)
    return min(left, max(drain, TARGET * cache.mb_s - write))


def is_burst(part: Demand, backing_mb_s: float) -> bool:
    """The slow volume would be waited for: only here can a cache gain anything."""
    return part.moved_bytes / MB / backing_mb_s > part.seconds * (1 + 1e-9)


class Stretch(NamedTuple):
    """A burst and the pause after it."""

    burst: tuple[Demand, ...]
    pause: tuple[Demand, ...]


def stretches(
    wanted: Sequence[Demand], backing_mb_s: float, joined_s: float = 5.0
) -> tuple[tuple[Demand, ...], tuple[Stretch, ...]]:
    """What comes before the first burst, and the bursts with their pauses; pauses up to `joined_s` belong to bursts."""
    before: list[Demand] = []
    found: list[tuple[list[Demand], list[Demand]]] = []
    for part in wanted:
        if is_burst(part, backing_mb_s):
            pause = found[-1][1] if found else []
            if found and sum(p.seconds for p in pause) <= joined_s:
                found[-1][0].extend((*pause, part))
                pause.clear()
            else:
                found.append(([part], []))
        elif found:
            found[-1][1].append(part)
        else:
            before.append(part)
    return tuple(before), tuple(Stretch(tuple(b), tuple(p)) for b, p in found)
