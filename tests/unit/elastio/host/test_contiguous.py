"""A cache set is registered only where the kernel has the memory for it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from elastio.errors import HostError
from elastio.host.bcache import BcacheHost
from elastio.host.kernel import COMPACT, FREE_BLOCKS, FREE_SUMS, affordable_bucket, free_blocks
from elastio.host.superblock import buckets_bytes, read
from elastio.host.sysfs import Sysfs
from elastio.units import GIB, KIB
from tests.fixtures.errors import refused
from tests.fixtures.sysfs_tree import CACHE_BYTES, SERIAL, Kernel, Tree
from tests.values import present

LARGE, SMALL = 512 * KIB, 64 * KIB
ORDERS = 11


def shown(*rows: str) -> str:
    """The file as the kernel prints it, with what stands around its counts."""
    head = ["Page block order: 9", "Pages per block:  512", "", "Free pages count per migrate type at order  0 1 2 3"]
    tail = ["", "Number of blocks type  Unmovable  Movable", "Node 0, zone   Normal  12  34"]
    return "\n".join([*head, *rows, *tail])


def row(kind: str, blocks: Mapping[int, int | str], *, zone: str = "Normal", node: int = 0) -> str:
    """`blocks`: how many there are, by order."""
    counts = [str(blocks.get(order, 0)) for order in range(ORDERS)]
    return f"Node {node:>4}, zone {zone:>8}, type {kind:>12} {' '.join(counts)}"


def lay(root: Path, *rows: str) -> Sysfs:
    for name, text in ((FREE_BLOCKS, shown(*rows)), (COMPACT, "0")):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Sysfs(root)


def test_only_blocks_that_the_kernel_may_have_are_counted(tmp_path: Path) -> None:
    rows = [row(kind, {5: 1}) for kind in ("Unmovable", "Movable", "Reclaimable", "HighAtomic", "CMA", "Isolate")]
    rows += [row("Movable", {5: 10}, zone=zone) for zone in ("DMA", "Movable", "DMA32")]
    rows += [row("Movable", {5: 100, 0: ">100000"}, node=1)]
    free = present(free_blocks(lay(tmp_path, *rows)))
    assert (len(free), free[0], free[5]) == (ORDERS, 100000, 3 + 10 + 100)


@pytest.mark.parametrize(
    ("zones", "counted"), [(("DMA", "DMA32", "Normal"), 2), (("DMA", "Normal"), 2), (("DMA",), 1), (("Movable",), None)]
)
def test_the_first_zone_counts_where_it_is_all_that_is_low(
    tmp_path: Path, zones: tuple[str, ...], counted: int | None
) -> None:
    free = free_blocks(lay(tmp_path, *(row("Movable", {10: 1}, zone=zone) for zone in zones)))
    assert (None if free is None else free[10]) == counted


def test_the_sums_of_all_kinds_say_whether_to_buy(tree: Tree, host: BcacheHost) -> None:
    assert host.scan(()).unsupported == ""
    for order, is_enough in ((4, True), (3, False)):
        counts = " ".join("54" if each == order else "0" for each in range(ORDERS))
        tree.kernel.lay(FREE_SUMS, f"Node 0, zone      DMA {counts}\nNode 0, zone   Normal {counts}")
        assert (host.scan(()).unsupported == "") is is_enough


def test_nothing_is_known_without_the_file(tmp_path: Path) -> None:
    assert free_blocks(Sysfs(tmp_path)) is None
    assert affordable_bucket(Sysfs(tmp_path), (LARGE, SMALL)) == LARGE
    assert free_blocks(lay(tmp_path, "Node 0, zone Normal, type Movable many")) is None


@pytest.mark.parametrize(
    ("blocks", "bucket"),
    [
        # 27 blocks as large as a bucket of 64 KiB, and as many again.
        ({4: 54}, SMALL),
        ({4: 52, 5: 1}, SMALL),
        ({10: 1}, SMALL),
        ({5: 54}, 128 * KIB),
        ({5: 53}, SMALL),
        ({10: 2}, 128 * KIB),
        # Two of 512 KiB, 25 nodes of 256 KiB, and as many again.
        ({6: 50, 7: 4}, LARGE),
        ({6: 54, 7: 3}, 256 * KIB),
        ({7: 29}, LARGE),
        ({7: 28}, 256 * KIB),
    ],
)
def test_fragmented_memory_has_smaller_buckets(tmp_path: Path, blocks: dict[int, int], bucket: int) -> None:
    kernel = lay(tmp_path, row("Movable", blocks))
    assert affordable_bucket(kernel, (LARGE, 256 * KIB, 128 * KIB, SMALL)) == bucket
    assert kernel.read(COMPACT) == "0", "compaction takes seconds on a large machine"


def test_memory_is_compacted_before_a_cache_is_refused(tmp_path: Path) -> None:
    kernel = lay(tmp_path, row("Movable", {4: 53, 0: 100000}))
    with refused(HostError, "memory.fragmented"):
        affordable_bucket(kernel, (LARGE, SMALL))
    assert kernel.read(COMPACT) == "1"


def test_a_kernel_that_does_not_compact_is_a_kernel_without_memory(tmp_path: Path) -> None:
    kernel = lay(tmp_path, row("Movable", {0: 100000}))
    (tmp_path / COMPACT).unlink()
    (tmp_path / COMPACT).mkdir()
    with refused(HostError, "memory.fragmented"):
        affordable_bucket(kernel, (SMALL,))


class Compacting(Kernel):
    """Compaction finds room."""

    def _take(self, name: str, value: str) -> None:
        if name == COMPACT:
            lay(self.root, row("Movable", {10: 20}))


def test_what_compaction_found_is_used(tmp_path: Path) -> None:
    lay(tmp_path, row("Movable", {0: 100000}))
    assert affordable_bucket(Compacting(tmp_path), (LARGE, SMALL)) == LARGE


@pytest.mark.parametrize(
    ("size_gib", "least_kib"), [(1, 64), (10, 64), (100, 64), (200, 128), (1000, 512), (16384, 512)]
)
def test_the_tables_of_a_large_cache_stay_small(size_gib: int, least_kib: int) -> None:
    assert buckets_bytes(size_gib * GIB)[-1] == least_kib * KIB


def test_a_cache_is_made_for_the_memory_there_is(tree: Tree, host: BcacheHost) -> None:
    tree.kernel.lay(FREE_BLOCKS, shown(row("Movable", {5: 60})))
    tree.cache_disk()
    host.install_cache(SERIAL, CACHE_BYTES, flush_mb_s=None)
    assert present(read(tree.kernel.path("dev/vdc"))).bucket_size_bytes == 128 * KIB


def test_without_memory_nothing_is_written_and_nothing_registered(tree: Tree, host: BcacheHost) -> None:
    tree.kernel.lay(FREE_BLOCKS, shown(row("Movable", {3: 1000})))
    tree.cache_disk()
    with refused(HostError, "memory.fragmented"):
        host.install_cache(SERIAL, CACHE_BYTES, flush_mb_s=None)
    assert read(tree.kernel.path("dev/vdc")) is None
    assert tree.kernel.writes == []


def test_a_set_that_comes_back_waits_for_its_memory(tree: Tree, host: BcacheHost) -> None:
    tree.cache_disk()
    cache_set = host._format_cache(host._require_disk(SERIAL), host._backing(), CACHE_BYTES)
    tree.kernel.lay(FREE_BLOCKS, shown(row("Movable", {5: 60})))
    with refused(HostError, "memory.fragmented"):
        host.register_cache(SERIAL, cache_set)
    assert tree.kernel.writes == []
    tree.kernel.lay(FREE_BLOCKS, shown(row("Movable", {10: 20})))
    host.register_cache(SERIAL, cache_set)
    assert tree.kernel.link("sys/block/vdc/bcache/set") == cache_set
