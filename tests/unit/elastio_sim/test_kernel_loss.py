"""What is lost, and what survives, when power fails or a cache disk disappears."""

from __future__ import annotations

from typing import Any

import pytest

from elastio.core.model import CacheMode, CacheState
from elastio_sim.bcache import WritebackMode

from .conftest import BLOCK, CACHE


def test_nothing_is_lost_while_a_dirty_cache_exists_and_all_its_blocks_would_be_without(machine: Any) -> None:
    machine.boost()
    machine.write(range(30), 1.0)
    assert machine.kernel.lost() == frozenset()
    assert machine.kernel.lost(without=CACHE) == frozenset(range(30))
    machine.kernel.destroy(CACHE)
    assert machine.kernel.lost() == frozenset(range(30))


def test_flushed_blocks_need_an_fsync_before_the_cache_may_go(machine: Any) -> None:
    machine.boost()
    machine.write(range(30), 1.0)
    machine.host.enter_phase2()
    machine.run(6.0)
    assert machine.kernel.lost(without=CACHE) == frozenset()
    assert machine.kernel.lost(without=CACHE, power_cut=True) == frozenset(range(30))
    machine.kernel.fsync()
    assert machine.kernel.lost(without=CACHE, power_cut=True) == frozenset()


def test_a_power_cut_keeps_dirty_data_and_the_mode_and_forgets_every_other_knob(machine: Any) -> None:
    cache_set = machine.boost()
    machine.write(range(30), 1.0)
    boot_id = machine.kernel.boot_id
    machine.run(10.0)
    machine.kernel.power_cut()
    backing = machine.host.scan(()).backing
    assert machine.kernel.lost() == frozenset()
    assert (backing.running, backing.cache_set, backing.state) == (True, cache_set, CacheState.DIRTY)
    assert (backing.cache_mode, backing.tuned, machine.kernel.bcache.writeback_mode) == (
        CacheMode.WRITEBACK,
        False,
        WritebackMode.TRICKLE,
    )
    assert machine.kernel.boot_id != boot_id


@pytest.mark.parametrize("dirty", [True, False])
def test_an_attached_backing_device_does_not_start_without_its_cache(machine: Any, dirty: bool) -> None:
    cache_set = machine.boost()
    machine.write(range(30), 1.0)
    if not dirty:
        machine.drain()
    machine.run(10.0)
    machine.kernel.disks.pop(CACHE)
    machine.kernel.power_cut()
    backing = machine.host.scan(()).backing
    assert (backing.running, backing.cache_set) == (False, None)
    assert backing.state is (CacheState.DIRTY if dirty else CacheState.CLEAN)
    assert machine.kernel.bcache.sb_set == cache_set


@pytest.mark.parametrize("by_hand", [CacheMode.WRITEBACK, CacheMode.WRITETHROUGH])
def test_a_power_cut_soon_after_the_first_dirty_block_finds_a_superblock_that_says_clean(
    machine: Any, by_hand: CacheMode
) -> None:
    machine.boost()
    machine.write(range(30), 1.0)
    assert machine.kernel.bcache.state is CacheState.DIRTY
    machine.kernel.power_cut()
    backing = machine.host.scan(()).backing
    assert (backing.running, backing.state) == (True, CacheState.CLEAN)
    assert backing.dirty_bytes > 0
    machine.host.enter_phase2()
    machine.kernel.set_mode_by_hand(by_hand)
    machine.run(20.0)
    assert machine.host.scan(()).backing.dirty_bytes == backing.dirty_bytes, "the thread sees no work"
    machine.host.wake_writeback()
    machine.run(20.0)
    assert machine.host.scan(()).backing.dirty_bytes == 0
    assert machine.kernel.lost() == frozenset()


def test_a_detach_flushes_what_only_the_index_calls_dirty(machine: Any) -> None:
    cache_set = machine.boost()
    machine.write(range(30), 1.0)
    machine.kernel.power_cut()
    machine.host.bypass_cache()
    machine.host.detach_cache_set(cache_set)
    machine.run(20.0)
    assert machine.host.scan(()).backing.cache_set is None
    machine.kernel.fsync()
    assert machine.kernel.lost(without=CACHE, power_cut=True) == frozenset()


def test_a_cache_that_is_torn_off_while_only_its_index_is_dirty_leaves_the_device_running(machine: Any) -> None:
    machine.boost()
    machine.write(range(30), 1.0)
    machine.kernel.power_cut()
    machine.kernel.pull(CACHE)
    backing = machine.host.scan(()).backing
    assert (backing.running, backing.state) == (True, CacheState.CLEAN)
    assert machine.kernel.lost() == frozenset(), "the disk still has it"
    assert machine.kernel.lost(without=CACHE) == frozenset(range(30))


def test_the_superblock_of_a_detach_is_safe_only_after_an_fsync(machine: Any) -> None:
    cache_set = machine.boost()
    machine.take_off(cache_set)
    assert machine.kernel.bcache.cache_set is None
    machine.kernel.destroy(CACHE)
    assert machine.kernel.would_wait()
    machine.host.make_durable()
    assert not machine.kernel.would_wait()


def test_a_pulled_dirty_cache_that_returns_brings_all_data_back(machine: Any) -> None:
    cache_set = machine.boost()
    machine.write(range(30), 1.0)
    disk = machine.kernel.disk(CACHE)
    machine.kernel.pull(CACHE)
    machine.write(range(100, 200), 5.0)
    assert machine.host.scan(()).backing.running is False
    assert len(machine.app.acknowledged) == 30, "a device without its cache serves nothing"
    machine.kernel.plug(disk)
    backing = machine.host.scan(()).backing
    assert (backing.running, backing.cache_set, backing.dirty_bytes) == (True, cache_set, 30 * BLOCK)
    machine.drain()
    machine.kernel.fsync()
    assert machine.kernel.lost(without=CACHE, power_cut=True) == frozenset()


def test_a_write_that_was_in_flight_at_a_power_cut_is_made_again(machine: Any) -> None:
    machine.write(range(40), 0.05)
    assert 0 < len(machine.app.acknowledged) < 40
    machine.kernel.power_cut()
    machine.run(5.0)
    assert machine.app.acknowledged == list(range(40))


def test_a_pulled_clean_cache_ends_caching_and_stays_in_the_superblock(machine: Any) -> None:
    cache_set = machine.boost()
    machine.write(range(30), 1.0)
    machine.drain()
    machine.kernel.pull(CACHE)
    backing = machine.host.scan(()).backing
    assert (backing.running, backing.state, backing.cache_set) == (True, CacheState.CLEAN, None)
    assert backing.lost_clean_cache
    assert machine.kernel.bcache.sb_set == cache_set
    machine.write(range(30, 40), 2.0)
    assert len(machine.app.acknowledged) == 40
    machine.kernel.power_cut()
    assert machine.host.scan(()).backing.waits_for_cache


@pytest.mark.parametrize(("written", "stale"), [(True, 1), (False, 0)])
def test_a_clean_cache_that_returns_serves_what_was_there_before(machine: Any, written: bool, stale: int) -> None:
    machine.boost()
    machine.write(range(30), 1.0)
    machine.drain()
    disk = machine.kernel.disk(CACHE)
    machine.kernel.pull(CACHE)
    if written:
        machine.write(range(10), 1.0)
    machine.kernel.plug(disk)
    assert machine.host.scan(()).backing.cache_set is not None
    assert machine.kernel.bcache.stale_links == stale


def test_a_device_that_was_started_without_its_cache_names_it_still_and_takes_it_back_as_a_new_one(
    machine: Any,
) -> None:
    """bch_cached_dev_run only marks the superblock; bch_cached_dev_attach drops what a set holds of a marked device."""
    cache_set = machine.boost()
    machine.write(range(30), 1.0)
    disk = machine.kernel.disk(CACHE)
    machine.kernel.pull(CACHE)
    machine.kernel.power_cut()
    machine.kernel.force_run()
    for _ in range(2):
        backing = machine.host.scan(()).backing
        shown = (backing.running, backing.state, backing.superblock_set, backing.waits_for_cache)
        assert shown == (True, CacheState.INCONSISTENT, cache_set, False)
        machine.kernel.fsync()
        machine.kernel.power_cut()
    assert len(disk.content.dirty) > 0
    machine.kernel.plug(disk)
    backing = machine.host.scan(()).backing
    assert (backing.state, backing.cache_set, backing.dirty_bytes) == (CacheState.CLEAN, cache_set, 0)
