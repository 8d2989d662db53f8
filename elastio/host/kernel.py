"""Whether the running kernel's bcache is safe to use: its version, and the contiguous memory that a cache set takes.

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
import re
from contextlib import suppress

from elastio.errors import HostError
from elastio.host.commands import Run
from elastio.host.sysfs import Sysfs
from elastio.units import KIB

Version = tuple[int, ...]

# Before, `cached_dev_detach_finish` cleared the set's UUID when a cache failed, and dirty data was lost silently.
# Fixed by df4ad53242158 in 5.11.
FIRST_SAFE: Version = (5, 11)


def version(sysfs: Sysfs) -> Version:
    """The running kernel's version; empty where it cannot be read."""
    release = sysfs.read_or("proc/sys/kernel/osrelease", "")
    return version_of(release, sysfs.read_or("proc/sys/kernel/version", ""))


def version_of(release: str, built: str) -> Version:
    """For a Debian kernel from its build string (`6.1.192`; its release is `6.1.0-42`), otherwise from the release."""
    found = re.search(r"Debian (\d+\.\d+\.\d+)", built) or re.match(r"(\d+\.\d+(?:\.\d+)?)", release)
    return tuple(int(n) for n in found[1].split(".")) if found else ()


def why_unsupported(sysfs: Sysfs) -> str:
    """Why a cache may not be attached on this kernel; empty where it may."""
    shown = version(sysfs)
    if not shown or shown >= FIRST_SAFE:
        return ""
    return f"Linux {'.'.join(map(str, shown))} loses dirty data when a cache fails: use Linux 5.11 or newer"


# The defaults of the module, in percent.
CUTOFF = "bch_cutoff_writeback"
DEFAULT_CUTOFFS = {CUTOFF: "40", "bch_cutoff_writeback_sync": "70"}


def configured_cutoffs(run: Run) -> dict[str, str]:
    """The cutoffs that the module uses when it is loaded next, by parameter: its options, else its defaults.

    The module that is loaded shows them only with a cache set. Raises HostError.
    """
    options = dict(DEFAULT_CUTOFFS)
    for line in run(["modprobe", "--showconfig"], timeout_s=10).splitlines():
        words = line.split()
        if words[:2] == ["options", "bcache"]:
            options.update((key, value) for key, _, value in (word.partition("=") for word in words[2:]))
    return options


def configured_cutoff_percent(run: Run) -> int | None:
    """How full a cache may become before the kernel has shown it; None: not known."""
    try:
        value = configured_cutoffs(run)[CUTOFF]
    except HostError:
        return None
    return int(value) if value.isdecimal() and 0 < int(value) <= 90 else None


# Free blocks by zone, kind and order. The sum of all kinds takes no look at every block of memory to show, and contains
# what atomic allocations have reserved.
FREE_BLOCKS, FREE_SUMS = "proc/pagetypeinfo", "proc/buddyinfo"
COMPACT = "proc/sys/vm/compact_memory"
KINDS = ("Unmovable", "Movable", "Reclaimable")
# Where the kernel allocates for itself. DMA counts only where it is all that is below 4 GiB, as on arm64: on x86 it is
# the first 16 MiB, which others do not get.
DMA, DMA32, ZONES = "DMA", "DMA32", ("DMA", "DMA32", "Normal")
ROW = re.compile(r"Node +\d+, zone +(\w+)(?:, type +(\w+))?((?: +>?\d+)+) *")
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
        if compacts:
            with suppress(HostError):  # a kernel without compaction, or one that does not allow it
                sysfs.write(COMPACT, 1)
    text = f"the kernel has no contiguous memory for a cache with buckets of {wanted[-1] // KIB} KiB"
    raise HostError(f"{text}: free some memory, or use a VM with more", code="memory.fragmented")


def has_memory(sysfs: Sysfs, bucket_bytes: int, shown: str = FREE_BLOCKS) -> bool:
    """Whether a cache set with buckets of that size can be registered now; also where this cannot be known."""
    free = free_blocks(sysfs, shown)
    return free is None or _is_enough(free, bucket_bytes)


def free_blocks(sysfs: Sysfs, shown: str = FREE_BLOCKS) -> tuple[int, ...] | None:
    """How many blocks of 1, 2, 4 ... pages are free for the kernel's own use; None where it does not show them."""
    rows = [found for line in sysfs.read_or(shown, "").splitlines() if (found := ROW.fullmatch(line.strip()))]
    kinds = KINDS if shown == FREE_BLOCKS else (None,)
    zones = {row[1] for row in rows if row[2] in kinds and row[1] in ZONES}
    if DMA32 in zones:
        zones.discard(DMA)
    counts = [_counts(row[3]) for row in rows if row[2] in kinds and row[1] in zones]
    return tuple(map(sum, zip(*counts, strict=True))) if counts and len({*map(len, counts)}) == 1 else None


def _counts(text: str) -> list[int]:
    """The kernel stops counting at `>100000`."""
    return [int(count.removeprefix(">")) for count in text.split()]


def _is_enough(free: tuple[int, ...], bucket_bytes: int) -> bool:
    """Two blocks as large as a bucket; and those and the nodes together, in blocks as large as a node."""
    bucket, node = _order(bucket_bytes), _order(min(bucket_bytes, NODE_BYTES))
    return _blocks(free, bucket) >= MARGIN * 2 and _blocks(free, node) >= MARGIN * (NODES + (2 << (bucket - node)))


def _blocks(free: tuple[int, ...], order: int) -> int:
    """How many blocks of that order the free ones contain."""
    return sum(count << (of - order) for of, count in enumerate(free) if of >= order)


def _order(size_bytes: int) -> int:
    pages = max(1, size_bytes // os.sysconf("SC_PAGE_SIZE"))
    return (pages - 1).bit_length()
