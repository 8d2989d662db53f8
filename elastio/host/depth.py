"""How many requests may be in flight to a disk. Nobody in the guest can order any more what the provider has queued.

Theory of operation. A cloud serves a volume at a fixed rate, first come, first served. Requests in flight beyond those
that keep it busy only wait: a small one behind large ones, and an attach behind all of them. With too few, a volume
that takes many small requests never reaches its rate. So there are as many as it completes in WAIT_S, at the rate at
which it completes them now (Little's law), and neither a cap nor the size of requests has to be known. While the disk
could be faster, more requests in flight show a higher rate, and that allows more; at its cap the rate stays, and so do
they.

The kernel counts for each hardware queue, of which a virtual disk may have one for each processor. To change the number
takes as long as what is in flight, so more are allowed only where twice as many are needed, and fewer after FEWER_S in
which half would have been enough. Until then a load of large requests may have as many, so there are never more than
complete in MOST_WAIT_S on the backing disk if all are large; and on the cache's disk never more than a small part of
the cache, which has room for no more in flight (`docs/explanation/writeback.md`, the cutoff).

A write that is to be durable waits twice for all that is in flight: for its data, and for the flush of the disk. Fewer
requests than LEAST leave a volume idle between two, so while a cgroup has a latency target, requests are smaller: LEAST
of them take half of the target. Measured beside `tar` on a volume of 16.5 MB/s, with requests of 128 and of 32 KiB: a
99th percentile of 112 and of 40 ms, and not less for `tar`. Smaller ones than LEAST_KB are too many for a cloud that
counts them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from elastio.core.model import Depth
from elastio.host.sysfs import Sysfs
from elastio.units import KIB, MB, SECTOR

# Longer than a volume takes for a request, also under load; an attach waits no longer for small ones.
WAIT_S = 0.02
# As long as a volume may take for a request: with less in flight it is idle between two.
LEAST_WAIT_S = 0.005
# The cap of a backing disk of which nothing is known.
SLOWEST_MB_S = 10.0
# Over all queues: with fewer large requests, of 128 KiB or more, a volume is idle between two.
LEAST = 8
# The kernel accepts no fewer for a queue (block/blk.h: BLKDEV_MIN_RQ), and a virtual disk rarely has more.
LEAST_PER_QUEUE, MOST_PER_QUEUE = 4, 256
# If all requests in flight are as large as they may be: how long they take, and what part of a cache they fill.
MOST_WAIT_S, MOST_OF_CACHE = 0.5, 1 / 16
# In KiB: the largest requests to either disk without a latency target, and the smallest bound with one.
BACKING_REQUEST_KB, CACHE_REQUEST_KB, LEAST_KB = 128, 512, 32
# A bound that is larger than it is to be by this factor stays; so does one that is smaller, by less than four. One that
# is smaller than the largest by this factor counts as the largest.
LARGER, NEARLY = 1.25, 0.75
# A rate needs some time. A load that comes and goes changes the depth once: so long fewer must have been enough.
SPAN_S, FEWER_S = 0.5, 120.0
# With a latency target, what small requests needed must not stay long for large ones. It counts as long without one:
# shares end and begin again with each change of the device.
PROMPT_FEWER_S = KEPT_S = 10.0
# Fields of /sys/block/NAME/stat: completed reads and writes (Documentation/block/stat.rst).
READS, WRITES = 0, 4


@dataclass(frozen=True, slots=True)
class _Seen:
    """The last reading of a disk's counters, and what each span of the last FEWER_S needed, with its end."""

    at: float
    completed: int
    needed: tuple[tuple[float, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Prompt:
    """The least latency target in seconds, of cgroups that share `capacity_mb_s`."""

    target_s: float
    capacity_mb_s: float

    @property
    def queue_s(self) -> float:
        """What LEAST requests may take if all are large."""
        return max(LEAST_WAIT_S, self.target_s / 2)


class Depths:
    """The depths that disks need, by what earlier scans have seen of them. `backing_mb_s`: the backing disk's cap."""

    def __init__(self, backing_mb_s: float) -> None:
        self._backing_mb_s = backing_mb_s
        self._seen: dict[str, _Seen] = {}
        self._prompt: Prompt | None = None
        self._prompt_at = -math.inf

    def change(
        self, sysfs: Sysfs, backing: str, cache: str | None, now: float, prompt: Prompt | None = None
    ) -> Depth | None:
        """What is to be put in force; None: it is. Raises HostError if a disk is gone."""
        needed = self.needed(sysfs, backing, cache, now, prompt)
        bounds = Bound.of(sysfs, backing, BACKING_REQUEST_KB), Bound.of(sysfs, cache, CACHE_REQUEST_KB)
        counts = in_force(sysfs, backing), in_force(sysfs, cache) if cache else None
        return None if needed == Depth(*counts, *(bound.smaller_kb for bound in bounds)) else needed

    def needed(self, sysfs: Sysfs, backing: str, cache: str | None, now: float, prompt: Prompt | None = None) -> Depth:
        """`prompt`: of the shares that are in force. Raises HostError if a disk is gone."""
        self._seen = {disk: seen for disk, seen in self._seen.items() if disk in (backing, cache)}
        if prompt is not None or now - self._prompt_at >= KEPT_S:
            self._prompt, self._prompt_at = prompt, now
        requests = self._of(sysfs, backing, MOST_WAIT_S * self._backing_mb_s * MB, now)
        depth = Depth(requests, None, self._smaller_kb(sysfs, backing, BACKING_REQUEST_KB, self._backing_mb_s))
        if cache is None:
            return depth
        most_bytes = MOST_OF_CACHE * int(sysfs.read(f"sys/block/{cache}/size")) * SECTOR
        shared_mb_s = self._prompt.capacity_mb_s if self._prompt else 0.0
        cache_kb = self._smaller_kb(sysfs, cache, CACHE_REQUEST_KB, shared_mb_s)
        return replace(depth, cache=self._of(sysfs, cache, most_bytes, now), cache_kb=cache_kb)

    def _of(self, sysfs: Sysfs, disk: str, most_bytes: float, now: float) -> int:
        """Requests per queue, which are `most_bytes` at most in all queues together."""
        fields, queues = sysfs.read(f"sys/block/{disk}/stat").split(), queues_of(sysfs, disk)
        completed, last = int(fields[READS]) + int(fields[WRITES]), self._seen.get(disk)
        if last is None or now < last.at or completed < last.completed:
            last = self._seen[disk] = _Seen(now, completed)
        if now - last.at >= SPAN_S:
            most = int(most_bytes / KIB / _largest_kb(sysfs, disk))
            wait_s, fewer_s = (min(WAIT_S, self._prompt.queue_s), PROMPT_FEWER_S) if self._prompt else (WAIT_S, FEWER_S)
            span = per_queue((completed - last.completed) / (now - last.at), queues, most, wait_s)
            recent = tuple((at, needed) for at, needed in last.needed if at > now - fewer_s)
            last = self._seen[disk] = _Seen(now, completed, (*recent, (now, span)))
        return changed(in_force(sysfs, disk), [needed for _, needed in last.needed] or [initial(sysfs, disk)])

    def _smaller_kb(self, sysfs: Sysfs, disk: str, most_kb: int, mb_s: float) -> int | None:
        """The bound of a request to a disk with this bandwidth, if it is to be smaller than `most_kb`."""
        if self._prompt is None:
            return None
        return Bound.of(sysfs, disk, most_kb).fit(self._prompt.queue_s * mb_s * MB).smaller_kb


@dataclass(frozen=True, slots=True)
class Bound:
    """How large a request to a disk may be, in KiB: now, and without a latency target."""

    now_kb: int
    most_kb: int

    @classmethod
    def of(cls, sysfs: Sysfs, disk: str | None, most_kb: int) -> Bound:
        """What is in force; `disk` None: there is none. Raises HostError if it is gone."""
        if disk is None:
            return cls(most_kb, most_kb)
        hardware_kb = int(sysfs.read(f"sys/block/{disk}/queue/max_hw_sectors_kb"))
        return cls(_largest_kb(sysfs, disk), min(most_kb, hardware_kb))

    @property
    def smaller_kb(self) -> int | None:
        """What is in force; None: all that may be without a latency target, or nearly so, as some disks round it."""
        return None if self.now_kb > NEARLY * self.most_kb else self.now_kb

    def fit(self, in_time_bytes: float) -> Bound:
        """The one with which LEAST requests are so many bytes; as it is where that is near enough."""
        wanted = min(self.most_kb, max(LEAST_KB, in_time_bytes / KIB / LEAST))
        if self.now_kb <= self.most_kb and wanted / 4 < self.now_kb <= LARGER * wanted:
            return self
        return replace(self, now_kb=self.most_kb if wanted == self.most_kb else 2 ** int(math.log2(wanted)))


def per_queue(requests_s: float, queues: int, most: int, wait_s: float = WAIT_S) -> int:
    """Requests that each of the queues needs while the disk completes so many a second; `most` in all of them."""
    total = max(LEAST, min(most, math.ceil(requests_s * wait_s)))
    return min(MOST_PER_QUEUE, max(LEAST_PER_QUEUE, math.ceil(total / queues)))


def changed(now: int, needed: Sequence[int]) -> int:
    """What is to be in force after the spans that needed so many; `now` is in force."""
    if needed[-1] >= 2 * now:
        return needed[-1]
    return max(needed) if 2 * max(needed) <= now else now


def in_force(sysfs: Sysfs, disk: str) -> int:
    """Requests per queue."""
    return int(sysfs.read(f"sys/block/{disk}/queue/nr_requests"))


def _largest_kb(sysfs: Sysfs, disk: str) -> int:
    """The bound of a request that is in force."""
    return int(sysfs.read(f"sys/block/{disk}/queue/max_sectors_kb"))


def queues_of(sysfs: Sysfs, disk: str) -> int:
    """Hardware queues of the disk."""
    return max(1, len(sysfs.folders(f"sys/block/{disk}/mq")))


def initial(sysfs: Sysfs, disk: str) -> int:
    """Requests per queue while nothing is known of the load."""
    return per_queue(0.0, queues_of(sysfs, disk), LEAST)
