"""Whether the kernel has the contiguous memory that the registration of a cache set takes.

A registration that cannot allocate its memory is not refused: the kernel frees the cache device before the cache set
that refers to it, and dies with a null pointer (`cache_set_free`), or lives on with bcache's lock held for ever. So the
agent looks before it registers, and where memory is fragmented it makes a cache with smaller buckets, which take
smaller blocks.

A set takes two blocks as large as a bucket (`disk_buckets`, `uuids`), and 25 as large as a node of its index: 24 nodes
in reserve and one to sort in. A node is as large as a bucket, and at most 256 KiB. Sources: drivers/md/bcache/super.c
(`cache_alloc`, `bch_cache_set_alloc`), btree.c (`mca_reserve`), bset.c (`bch_bset_sort_state_init`) of Linux 6.1.
"""

from __future__ import annotations

import os

from elastio.errors import HostError
from elastio.host.sysfs import Sysfs
from elastio.units import KIB

# Free blocks by zone, kind and order. In `buddyinfo` the kinds are one sum, with what atomic allocations have reserved.
FREE_BLOCKS = "proc/pagetypeinfo"
COMPACT = "proc/sys/vm/compact_memory"
KINDS = ("Unmovable", "Movable", "Reclaimable")
ZONES = ("DMA32", "Normal")  # where the kernel allocates for itself, but for the first 16 MiB
NODES, NODE_BYTES = 25, 256 * KIB
# Something else allocates, too.
MARGIN = 2


def affordable_bucket(sysfs: Sysfs, wanted: tuple[int, ...]) -> int:
    """The first of these bucket sizes, in bytes, for which there is memory, if need be after compaction.

    Raises HostError (`memory.fragmented`) where there is none for any.
    """
    for compacts in (True, False):
        free = free_blocks(sysfs)
        for bucket in wanted:
            if free is None or _is_enough(free, bucket):
                return bucket
        if compacts and sysfs.exists(COMPACT):
            sysfs.write(COMPACT, 1)
    text = f"the kernel has no contiguous memory for a cache with buckets of {wanted[-1] // KIB} KiB"
    raise HostError(f"{text}: free some memory, or use a VM with more", code="memory.fragmented")


def has_memory(sysfs: Sysfs, bucket_bytes: int) -> bool:
    """Whether a cache set with buckets of that size can be registered now; also where this cannot be known."""
    free = free_blocks(sysfs)
    return free is None or _is_enough(free, bucket_bytes)


def free_blocks(sysfs: Sysfs) -> tuple[int, ...] | None:
    """How many blocks of 1, 2, 4 ... pages are free for the kernel's own use; None where it does not show them."""
    rows = [_counts(line) for line in sysfs.read_or(FREE_BLOCKS, "").splitlines()]
    found = [row for row in rows if row]
    return tuple(map(sum, zip(*found, strict=True))) if found else None


def _counts(line: str) -> tuple[int, ...]:
    """`Node 0, zone Normal, type Movable 3 1 0 ...`. The kernel stops counting at `>100000`."""
    place, _, rest = line.partition(", type ")
    kind, *counts = rest.split() or [""]
    if kind not in KINDS or not place.endswith(ZONES):
        return ()
    numbers = [count.removeprefix(">") for count in counts]
    return tuple(map(int, numbers)) if all(n.isdecimal() for n in numbers) else ()


def _is_enough(free: tuple[int, ...], bucket_bytes: int) -> bool:
    """Larger blocks are cut for the nodes, but for those that are as large as a bucket."""
    bucket, node = _order(bucket_bytes), _order(min(bucket_bytes, NODE_BYTES))
    return _blocks(free, bucket) >= MARGIN * 2 and _blocks(free, node) >= MARGIN * (NODES + (2 << (bucket - node)))


def _blocks(free: tuple[int, ...], order: int) -> int:
    """How many blocks of that order the free ones contain."""
    return sum(count << (of - order) for of, count in enumerate(free) if of >= order)


def _order(size_bytes: int) -> int:
    pages = max(1, size_bytes // os.sysconf("SC_PAGE_SIZE"))
    return (pages - 1).bit_length()
