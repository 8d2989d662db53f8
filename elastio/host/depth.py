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
# The cap of a backing disk of which nothing is known.
SLOWEST_MB_S = 10.0
# Over all queues: with fewer large requests, of 128 KiB or more, a volume is idle between two.
LEAST = 8
# The kernel accepts no fewer for a queue (block/blk.h: BLKDEV_MIN_RQ), and a virtual disk rarely has more.
LEAST_PER_QUEUE, MOST_PER_QUEUE = 4, 256
# If all requests in flight are as large as they may be: how long they take, and what part of a cache they fill.
MOST_WAIT_S, MOST_OF_CACHE = 0.5, 1 / 16
# A rate needs some time. A load that comes and goes changes the depth once: so long fewer must have been enough.
SPAN_S, FEWER_S = 0.5, 120.0
# Fields of /sys/block/NAME/stat: completed reads and writes (Documentation/block/stat.rst).
READS, WRITES = 0, 4


@dataclass(frozen=True, slots=True)
class _Seen:
    """The last reading of a disk's counters, and what each span of the last FEWER_S needed, with its end."""

    at: float
    completed: int
    needed: tuple[tuple[float, int], ...] = ()


class Depths:
    """The depths that disks need, by what earlier scans have seen of them. `backing_mb_s`: the backing disk's cap."""

    def __init__(self, backing_mb_s: float) -> None:
        self._backing_bytes = MOST_WAIT_S * backing_mb_s * MB
        self._seen: dict[str, _Seen] = {}

    def change(self, sysfs: Sysfs, backing: str, cache: str | None, now: float) -> Depth | None:
        """What is to be put in force; None: it is. Raises HostError if a disk is gone."""
        needed = self.needed(sysfs, backing, cache, now)
        now_in_force = Depth(in_force(sysfs, backing), in_force(sysfs, cache) if cache else None)
        return None if needed == now_in_force else needed

    def needed(self, sysfs: Sysfs, backing: str, cache: str | None, now: float) -> Depth:
        """Raises HostError if a disk is gone."""
        self._seen = {disk: seen for disk, seen in self._seen.items() if disk in (backing, cache)}
        depth = Depth(self._of(sysfs, backing, self._backing_bytes, now))
        if cache is None:
            return depth
        size_bytes = int(sysfs.read(f"sys/block/{cache}/size")) * SECTOR
        return replace(depth, cache=self._of(sysfs, cache, MOST_OF_CACHE * size_bytes, now))

    def _of(self, sysfs: Sysfs, disk: str, most_bytes: float, now: float) -> int:
        """Requests per queue, which are `most_bytes` at most in all queues together."""
        fields, queues = sysfs.read(f"sys/block/{disk}/stat").split(), queues_of(sysfs, disk)
        completed, last = int(fields[READS]) + int(fields[WRITES]), self._seen.get(disk)
        if last is None or now < last.at or completed < last.completed:
            last = self._seen[disk] = _Seen(now, completed)
        if now - last.at >= SPAN_S:
            most = int(most_bytes / KIB / int(sysfs.read(f"sys/block/{disk}/queue/max_sectors_kb")))
            span = per_queue((completed - last.completed) / (now - last.at), queues, most)
            recent = tuple((at, needed) for at, needed in last.needed if at > now - FEWER_S)
            last = self._seen[disk] = _Seen(now, completed, (*recent, (now, span)))
        return changed(in_force(sysfs, disk), [needed for _, needed in last.needed] or [initial(sysfs, disk)])


def per_queue(requests_s: float, queues: int, most: int) -> int:
    """Requests that each of the queues needs while the disk completes so many a second; `most` in all of them."""
    total = max(LEAST, min(most, math.ceil(requests_s * WAIT_S)))
    return min(MOST_PER_QUEUE, max(LEAST_PER_QUEUE, math.ceil(total / queues)))


def changed(now: int, needed: Sequence[int]) -> int:
    """What is to be in force after the spans that needed so many; `now` is in force."""
    if needed[-1] >= 2 * now:
        return needed[-1]
    return max(needed) if 2 * max(needed) <= now else now


def in_force(sysfs: Sysfs, disk: str) -> int:
    """Requests per queue."""
    return int(sysfs.read(f"sys/block/{disk}/queue/nr_requests"))


def queues_of(sysfs: Sysfs, disk: str) -> int:
    """Hardware queues of the disk."""
    return max(1, len(sysfs.folders(f"sys/block/{disk}/mq")))


def initial(sysfs: Sysfs, disk: str) -> int:
    """Requests per queue while nothing is known of the load."""
    return per_queue(0.0, queues_of(sysfs, disk), LEAST)
