"""What one adaptive device does with bytes, caps, plugs and power."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from elastio.core.model import CacheMode, CacheState, Serial
from elastio.errors import DeviceBusyError, HostError
from elastio.sim.bcache import WritebackMode
from elastio.sim.kernel import KernelSettings
from elastio.units import KIB, MB, MIB
from tests.fixtures.caches import make_cache

BLOCK = 64 * KIB
CACHE = Serial("vol00000000000000001")


def rates(machine: Any, seconds: float = 2.0) -> dict[str, float]:
    """MB/s of the next `seconds`: read and write together, by device, and the application's writes alone."""
    before = machine.counters.read()
    machine.run(seconds)
    after = machine.counters.read()
    total = {n: (sum(after[n]) - sum(before[n])) / MB / seconds for n in after}
    return total | {"app_write": (after["adaptive"][1] - before["adaptive"][1]) / MB / seconds}


def test_without_cache_writes_run_at_the_backing_disks_cap(machine: Any) -> None:
    machine.app.writes.extend(range(1000))
    seen = rates(machine)
    assert seen["adaptive"] == pytest.approx(4.0, rel=0.01)
    assert seen["cache"] == 0


def test_reads_and_writes_share_one_cap(machine: Any) -> None:
    machine.app.writes.extend(range(1000))
    machine.app.reads.extend(range(1000))
    seen = rates(machine)
    assert seen["adaptive"] == pytest.approx(4.0, rel=0.01)
    assert seen["app_write"] == pytest.approx(2.0, rel=0.15)


def test_writes_run_at_the_cache_disks_cap_while_it_absorbs(machine: Any) -> None:
    machine.boost()
    machine.app.writes.extend(range(1000))
    seen = rates(machine, 0.5)
    assert seen["app_write"] == pytest.approx(16.0, rel=0.01)
    assert seen["backing"] == 0


def test_a_full_cache_lets_writes_through_to_the_slow_disk_and_counts_them_as_overflow(machine: Any) -> None:
    machine.boost()
    machine.write(range(4000), 10.0)
    capacity = 16 * MIB
    assert machine.dirty == pytest.approx(0.70 * capacity, rel=0.05)
    assert machine.host.scan((CACHE,)).backing.overflow_bytes > 0
    assert rates(machine)["app_write"] == pytest.approx(4.0, rel=0.01)


def test_a_higher_cutoff_absorbs_more(make_machine: Callable[..., Any]) -> None:
    machine = make_machine(cutoff=0.90)
    machine.boost()
    machine.write(range(4000), 10.0)
    assert machine.dirty == pytest.approx(0.90 * 16 * MIB, rel=0.03)


def test_the_kernel_takes_no_cutoff_above_90_percent() -> None:
    with pytest.raises(ValueError, match=r"0\.90"):
        KernelSettings(cutoff=0.95)


def test_a_flushed_cache_still_looks_in_use_until_garbage_is_collected(machine: Any) -> None:
    machine.boost()
    machine.write(range(200), 3.0)
    machine.drain()
    assert machine.dirty == 0
    assert machine.kernel.bcache.cache.in_use > 0.5
    machine.kernel.bcache.cache.collect()
    assert machine.kernel.bcache.cache.in_use < 0.05


def test_a_stopped_writeback_moves_nothing(machine: Any) -> None:
    machine.boost(flush_mb_s=0.0)
    machine.write(range(100), 2.0)
    assert machine.dirty == 100 * BLOCK
    machine.run(5.0)
    assert machine.dirty == 100 * BLOCK
    machine.host.set_flush(None)
    machine.run(5.0)
    assert machine.dirty == 0


def test_flushing_during_a_burst_takes_the_cache_disks_bandwidth(machine: Any) -> None:
    machine.boost(flush_mb_s=None)
    machine.write(range(200), 0.3)
    seen = rates(machine, 0.5)
    assert seen["app_write"] == pytest.approx(12.0, rel=0.05)
    assert seen["cache"] == pytest.approx(16.0, rel=0.01)


def test_an_idle_flush_yields_the_backing_disk_to_applications(machine: Any) -> None:
    machine.boost(flush_mb_s=0.0)
    machine.write(range(100), 2.0)
    machine.host.set_flush(None)
    machine.app.reads.extend(range(1000, 2000))
    seen = rates(machine)
    assert seen["adaptive"] == pytest.approx(4.0, rel=0.02)
    assert machine.dirty >= 99 * BLOCK


def test_phase_2_flushes_at_parity_with_applications(machine: Any) -> None:
    machine.boost()
    machine.write(range(160), 2.0)
    machine.host.enter_phase2()
    machine.kernel.set_mode(CacheMode.NONE)
    machine.app.writes.extend(range(1000, 2000))
    seen = rates(machine)
    assert seen["app_write"] == pytest.approx(2.0, rel=0.15)
    assert seen["backing"] == pytest.approx(4.0, rel=0.01)


def test_phase_2_serves_reads_from_the_cache(machine: Any) -> None:
    machine.boost()
    machine.write(range(100), 2.0)
    machine.host.enter_phase2()
    machine.run(0.5)
    machine.app.reads.extend(range(100))
    before = machine.counters.read()["backing"][0]
    machine.run(3.0)
    assert not machine.app.reads
    assert machine.counters.read()["backing"][0] == before


def test_a_bypassed_write_over_a_dirty_block_wins(machine: Any) -> None:
    machine.boost()
    machine.write(range(50), 1.0)
    machine.host.enter_phase2()
    machine.kernel.set_mode(CacheMode.NONE)
    machine.write(range(50), 10.0)
    bcache = machine.kernel.bcache
    assert machine.dirty == 0
    assert all(bcache.backing.version(b) == bcache.acked[b] for b in range(50))


def test_attaching_behind_a_full_untuned_queue_takes_12_seconds(machine: Any) -> None:
    machine.kernel.set_mode(CacheMode.WRITEBACK)
    machine.run(1.0)
    machine.app.writes.extend(range(10_000))
    machine.run(5.0)
    disk = machine.plug()
    cache_set = make_cache(machine.host, CACHE, disk.size_bytes)
    machine.host.attach_cache_set(cache_set, CACHE, flush_mb_s=0.0)
    assert machine.host.calls.seconds == pytest.approx(12.0)
    machine.run(11.9)
    assert machine.host.scan(()).backing.cache_set is None
    machine.run(0.2)
    assert machine.host.scan(()).backing.cache_set == cache_set


def test_attaching_under_load_with_a_bounded_queue_takes_under_half_a_second(machine: Any) -> None:
    machine.host.tune_backing()
    machine.app.writes.extend(range(10_000))
    machine.run(5.0)
    disk = machine.plug()
    cache_set = make_cache(machine.host, CACHE, disk.size_bytes)
    machine.host.attach_cache_set(cache_set, CACHE, flush_mb_s=0.0)
    assert 0.3 <= machine.host.calls.seconds <= 0.5


def test_a_change_of_cache_mode_delays_the_attachment_behind_it(machine: Any) -> None:
    machine.host.tune_backing()
    machine.app.writes.extend(range(10_000))
    machine.run(5.0)
    machine.kernel.set_mode(CacheMode.NONE)
    disk = machine.plug()
    cache_set = make_cache(machine.host, CACHE, disk.size_bytes)
    machine.host.attach_cache_set(cache_set, CACHE, flush_mb_s=0.0)
    assert machine.host.calls.seconds == pytest.approx(1.2)


def test_a_busy_device_starves_the_detach_after_its_state_says_no_cache(machine: Any) -> None:
    cache_set = machine.boost()
    machine.write(range(20), 1.0)
    machine.drain()
    machine.kernel.always_busy = True
    machine.host.detach_cache_set(cache_set)
    machine.run(37.0)
    view = machine.host.scan(())
    assert view.backing.state is CacheState.NO_CACHE
    assert view.backing.cache_set == cache_set
    machine.kernel.always_busy = False
    machine.run(0.1)
    assert machine.host.scan(()).backing.cache_set is None


def test_a_detach_takes_longer_than_its_state_says(machine: Any) -> None:
    cache_set = machine.boost()
    machine.drain()
    machine.host.detach_cache_set(cache_set)
    machine.run(0.1)
    view = machine.host.scan(())
    assert (view.backing.state, view.backing.cache_set) == (CacheState.NO_CACHE, cache_set)


def test_nothing_is_lost_while_a_dirty_cache_exists_and_all_its_blocks_would_be_without(machine: Any) -> None:
    machine.boost()
    machine.write(range(30), 1.0)
    assert machine.kernel.lost() == frozenset()
    assert machine.kernel.lost(without=CACHE) == frozenset(range(30))


def test_deleting_a_dirty_volume_loses_its_blocks(machine: Any) -> None:
    machine.boost()
    machine.write(range(30), 1.0)
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


def test_a_power_cut_soon_after_the_first_dirty_block_finds_a_superblock_that_says_clean(machine: Any) -> None:
    machine.boost()
    machine.write(range(30), 1.0)
    assert machine.kernel.bcache.state is CacheState.DIRTY
    machine.kernel.power_cut()
    backing = machine.host.scan(()).backing
    assert (backing.running, backing.state) == (True, CacheState.CLEAN)
    assert backing.dirty_bytes > 0
    machine.host.enter_phase2()
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


def test_a_write_that_was_in_flight_when_a_cache_came_leaves_an_older_block_in_it_unless_it_is_waited_for(
    make_machine: Any,
) -> None:
    harm = {}
    for holds_back in (True, False):
        machine = make_machine(holds_back=holds_back, backing_mb_s=0.05)
        machine.host.tune_backing()
        machine.plug()
        cache_set = make_cache(machine.host, CACHE, machine.kernel.disk(CACHE).size_bytes)
        machine.run(2.0)
        machine.write([0], 0.2)
        machine.host.attach_cache_set(cache_set, CACHE, flush_mb_s=0.0)
        machine.run(0.5)
        assert (machine.kernel.bcache.cache_set is None) is holds_back
        machine.app.reads.extend([0] * 4)
        machine.run(20.0)
        assert machine.kernel.bcache.cache_set == cache_set
        harm[holds_back] = machine.kernel.bcache.harm()
    assert harm[True] == ""
    assert "older" in harm[False]


def test_a_device_without_its_cache_serves_nothing(machine: Any) -> None:
    machine.boost()
    machine.write(range(30), 1.0)
    machine.kernel.pull(CACHE)
    machine.write(range(100, 200), 5.0)
    assert machine.host.scan(()).backing.running is False
    assert len(machine.app.acknowledged) == 30


def test_a_pulled_dirty_cache_that_returns_brings_all_data_back(machine: Any) -> None:
    cache_set = machine.boost()
    machine.write(range(30), 1.0)
    disk = machine.kernel.disk(CACHE)
    machine.kernel.pull(CACHE)
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


def test_a_disk_in_use_is_not_unplugged(machine: Any) -> None:
    machine.boost()
    with pytest.raises(DeviceBusyError):
        machine.kernel.unplug(CACHE)
    assert CACHE in machine.kernel.disks


def test_no_second_cache_set_is_attached(machine: Any) -> None:
    machine.boost()
    other = machine.plug(Serial("vol00000000000000002"))
    cache_set = make_cache(machine.host, other.serial, other.size_bytes)
    with pytest.raises(HostError, match="attached already"):
        machine.kernel.attach(cache_set, flush_mb_s=0.0)


def test_a_set_that_is_attached_anew_starts_empty(machine: Any) -> None:
    cache_set = machine.boost()
    machine.write(range(30), 1.0)
    machine.drain()
    machine.host.detach_cache_set(cache_set)
    machine.run(1.0)
    machine.write(range(30), 2.0)
    machine.host.attach_cache_set(cache_set, CACHE, flush_mb_s=0.0)
    machine.run(1.0)
    assert not machine.kernel.bcache.cache.holds(5)
    assert machine.kernel.lost() == frozenset()


def test_without_tuning_the_kernel_flushes_almost_nothing_below_a_tenth(machine: Any) -> None:
    machine.boost()
    machine.write(range(20), 1.0)
    machine.kernel.power_cut()
    machine.run(10.0)
    assert machine.dirty >= 19 * BLOCK
