"""Where versions are stored, and what counts as in use."""

from __future__ import annotations

from elastio.core.model import CacheMode, CacheSetUuid
from elastio_sim.disk import LATE_S, BackingContent, CacheContent, Superblock, SuperblockOnDisk


def test_an_older_version_never_replaces_a_newer_one() -> None:
    disk = BackingContent()
    disk.write(1, 7, durable=True)
    disk.write(1, 3, durable=False)
    assert disk.version(1) == 7


def test_a_power_cut_forgets_what_was_not_synced() -> None:
    disk = BackingContent()
    disk.write(1, 1, durable=True)
    disk.write(1, 2, durable=False)
    disk.power_cut(kept=())
    assert disk.version(1) == 1
    disk.write(1, 2, durable=False)
    disk.fsync()
    disk.power_cut(kept=())
    assert disk.version(1) == 2


def test_a_block_that_was_overwritten_while_it_was_flushed_stays_dirty() -> None:
    cache = CacheContent(1000, 10)
    cache.put(1, 5, dirty=True)
    cache.put(1, 6, dirty=True)
    assert cache.flushed(1, 5) is False
    assert cache.dirty == {1: 6}


def test_clean_blocks_are_evicted_oldest_first_and_dirty_ones_never() -> None:
    cache = CacheContent(100, 10)
    cache.put(0, 1, dirty=True)
    for block in range(1, 20):
        cache.put(block, 1, dirty=False)
    assert 0 in cache.dirty
    assert not cache.holds(1)
    assert cache.holds(19)
    assert len(cache.dirty) + len(cache.clean) <= cache.blocks


def test_clean_data_counts_as_in_use_until_the_next_collection() -> None:
    cache = CacheContent(1600, 1)
    before = cache.in_use
    for block in range(50):
        cache.put(block, 1, dirty=False)
    assert cache.in_use > before
    cache.collect()
    assert cache.in_use == before


def test_garbage_is_collected_after_a_sixteenth_of_the_cache_was_written() -> None:
    cache = CacheContent(1600, 1)
    for block in range(99):
        cache.put(block, 1, dirty=False)
    assert cache.in_use > 0.06
    cache.put(99, 1, dirty=False)
    assert cache.in_use < 0.02


def test_a_power_cut_leaves_the_superblock_that_was_flushed_or_has_had_the_time() -> None:
    disk, late_s = SuperblockOnDisk(seed=1), LATE_S[1]
    first, second = CacheSetUuid("first"), CacheSetUuid("second")
    assert disk.found(0.0) == (None, False, False, CacheMode.WRITETHROUGH)
    disk.note(0.0, Superblock(first))
    disk.note(1.0, Superblock(first, is_dirty=True))
    assert disk.found(1.0) == Superblock(first), "the kernel waits for a new set alone"
    disk.note(2.0, Superblock(first, is_dirty=True))
    assert disk.found(2.0 + late_s) == Superblock(first, is_dirty=True)
    disk.note(20.0, Superblock(first))
    disk.note(20.0, Superblock(second))
    assert disk.found(20.0 + late_s) == Superblock(second), "what was under way before a flush comes no more"
