"""The simulated host refuses what the real one refuses, and its faults are those of the real one."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from elastio.core.model import CacheMode, CacheSetUuid, CacheState, Serial
from elastio.errors import DeviceBusyError, HostError, NotOursError
from elastio.sim.disk import SimDisk
from elastio.sim.faults import Kind
from elastio.units import MIB
from tests.fixtures.errors import refused

SIZE = 16 * MIB
CACHE = Serial("vol00000000000000001")


def test_formatting_twice_gives_the_same_set_once_it_is_registered(machine: Any) -> None:
    machine.plug()
    first, second = (machine.host.format_cache(CACHE, SIZE) for _ in range(2))
    assert first != second, "what nobody has registered is taken for what somebody left there"
    machine.run(1.3)  # udev registers what was written
    assert machine.host.format_cache(CACHE, SIZE) == second


@pytest.mark.parametrize(
    ("disk", "error"),
    [
        (SimDisk(CACHE, SIZE, 16.0, signature="ext4"), NotOursError),
        (SimDisk(CACHE, SIZE * 2, 16.0), NotOursError),
        (SimDisk(CACHE, SIZE, 16.0, holder="mount"), DeviceBusyError),
    ],
    ids=["foreign signature", "wrong size", "in use"],
)
def test_a_disk_that_may_be_somebody_elses_is_not_touched(machine: Any, disk: SimDisk, error: type[Exception]) -> None:
    machine.kernel.plug(disk)
    with pytest.raises(error):
        machine.host.format_cache(CACHE, SIZE)
    with pytest.raises(error):
        machine.host.release_cache_disk(CACHE, SIZE, None)
    assert disk.superblock is None


def test_attaching_asks_that_the_set_is_the_one_on_the_disk(machine: Any) -> None:
    machine.plug()
    machine.host.format_cache(CACHE, SIZE)
    with pytest.raises(NotOursError):
        machine.host.attach_cache_set(CacheSetUuid("another"), CACHE, flush_mb_s=0.0)


def test_attaching_twice_changes_nothing(machine: Any) -> None:
    cache_set = machine.boost()
    machine.write(range(10), 1.0)
    dirty = machine.dirty
    machine.host.attach_cache_set(cache_set, CACHE, flush_mb_s=0.0)
    machine.run(1.0)
    assert machine.dirty == dirty > 0


def test_phases_show_in_the_view_and_can_be_reversed(machine: Any) -> None:
    machine.boost()
    machine.host.enter_phase2()
    backing = machine.host.scan(()).backing
    assert (backing.cache_mode, backing.flush_full_speed) == (CacheMode.WRITEBACK, True)
    machine.host.enter_phase1(flush_mb_s=None)
    backing = machine.host.scan(()).backing
    assert (backing.cache_mode, backing.flush_full_speed) == (CacheMode.WRITEBACK, False)
    assert backing.writeback_running


def test_writes_are_never_led_back_into_a_cache_that_they_bypassed(machine: Any) -> None:
    machine.boost()
    machine.host.enter_phase2()
    machine.host.bypass_cache()
    with pytest.raises(DeviceBusyError):
        machine.host.enter_phase1(flush_mb_s=None)
    backing = machine.host.scan(()).backing
    assert (backing.cache_mode, backing.flush_full_speed) == (CacheMode.NONE, True)


@pytest.mark.parametrize("blocks", [10, 0], ids=["dirty", "clean and in writeback mode"])
def test_a_cache_that_is_not_drained_is_not_detached(machine: Any, blocks: int) -> None:
    cache_set = machine.boost()
    machine.write(range(blocks), 1.0)
    with pytest.raises(DeviceBusyError):
        machine.host.detach_cache_set(cache_set)
    assert not machine.kernel.bcache.detaching


def test_phases_ask_for_an_attached_cache(machine: Any) -> None:
    for change in (
        machine.host.enter_phase2,
        machine.host.bypass_cache,
        lambda: machine.host.enter_phase1(flush_mb_s=None),
        lambda: machine.host.set_flush(None),
    ):
        with refused(HostError, "cache.missing"):
            change()


def test_after_a_cycle_the_device_asks_to_be_tuned_for_the_next_one(machine: Any) -> None:
    machine.leave(machine.boost())
    assert machine.host.scan(()).backing.tuned is False
    machine.host.tune_backing()
    backing = machine.host.scan(()).backing
    assert (backing.tuned, backing.cache_mode) == (True, CacheMode.WRITEBACK)


def test_a_serving_cache_is_not_formatted(machine: Any) -> None:
    machine.boost()
    machine.write(range(10), 1.0)
    with pytest.raises(DeviceBusyError):
        machine.host.format_cache(CACHE, SIZE)
    assert machine.dirty > 0


def test_nothing_is_formatted_while_the_backing_device_waits_for_its_cache(machine: Any) -> None:
    machine.boost()
    machine.write(range(10), 1.0)
    machine.kernel.pull(CACHE)
    other = machine.plug(Serial("vol00000000000000002"))
    with pytest.raises(NotOursError):
        machine.host.format_cache(other.serial, SIZE)
    assert other.superblock is None


def test_another_cache_set_is_not_detached(machine: Any) -> None:
    machine.boost()
    machine.drain()
    with pytest.raises(NotOursError):
        machine.host.detach_cache_set(CacheSetUuid("another"))


@pytest.mark.parametrize("detaching", [False, True])
def test_a_cache_that_is_attached_or_still_detaching_is_not_released(machine: Any, *, detaching: bool) -> None:
    cache_set = machine.boost()
    machine.drain()
    machine.kernel.always_busy = True
    if detaching:
        machine.host.detach_cache_set(cache_set)
        machine.run(2.0)
    with pytest.raises(DeviceBusyError):
        machine.host.release_cache_disk(CACHE, SIZE, cache_set)
    assert machine.kernel.disk(CACHE).superblock == cache_set


def test_a_disk_that_an_attachment_waits_for_is_not_released(machine: Any) -> None:
    cache_set = machine.made()
    machine.kernel.attach(cache_set, flush_mb_s=0.0)
    with pytest.raises(DeviceBusyError):
        machine.host.release_cache_disk(CACHE, SIZE, cache_set)


def test_the_whole_cycle_leaves_a_blank_disk_and_durable_data(machine: Any) -> None:
    cache_set = machine.boost()
    disk = machine.host.scan((CACHE,)).disk(CACHE)
    assert (disk.superblock, disk.cache_set, disk.held) == (cache_set, cache_set, True)
    machine.write(range(100), 3.0)
    machine.leave(cache_set)
    disk = machine.host.scan((CACHE,)).disk(CACHE)
    assert (disk.superblock, disk.cache_set, disk.held) == (None, None, False)
    assert machine.kernel.lost(without=CACHE, power_cut=True) == frozenset()
    machine.kernel.unplug(CACHE)
    machine.host.release_cache_disk(CACHE, SIZE, cache_set)  # again, without the disk: nothing to do


def test_a_backing_device_that_is_not_registered_shows_as_none(machine: Any) -> None:
    machine.kernel.registered = False
    assert machine.host.scan(()).backing is None
    with refused(HostError, "backing.missing"):
        machine.host.tune_backing()


def test_looking_lists_only_asked_for_disks_and_the_cache_in_use(machine: Any) -> None:
    cache_set = machine.boost()
    machine.kernel.plug(SimDisk(Serial("other"), SIZE, 16.0))
    assert [d.serial for d in machine.host.scan(()).disks] == [CACHE]
    assert {d.serial for d in machine.host.scan((Serial("other"),)).disks} == {CACHE, "other"}
    assert machine.host.scan(()).cache_sets == (cache_set,)


@pytest.mark.parametrize(
    ("kind", "mode"),
    [(Kind.REFUSE, CacheMode.WRITEBACK), (Kind.HANG, CacheMode.WRITEBACK), (Kind.LOSE_REPLY, CacheMode.NONE)],
)
def test_only_a_call_whose_answer_is_lost_has_an_effect(
    make_machine: Callable[..., Any], kind: Kind, mode: CacheMode
) -> None:
    machine = make_machine(f"bypass_cache#1={kind}")
    machine.boost()
    with refused(HostError, kind):
        machine.host.bypass_cache()
    assert machine.host.scan(()).backing.cache_mode is mode


def test_a_late_success_happens_seconds_after_the_answer_was_given_up(make_machine: Callable[..., Any]) -> None:
    machine = make_machine("bypass_cache#1=late_success:3")
    machine.boost()
    with pytest.raises(HostError):
        machine.host.bypass_cache()
    assert machine.host.calls.seconds == math.inf
    machine.run(2.9)
    assert machine.host.scan(()).backing.cache_mode is CacheMode.WRITEBACK
    machine.run(0.2)
    assert machine.host.scan(()).backing.cache_mode is CacheMode.NONE


def test_a_late_effect_does_not_change_what_another_call_took(make_machine: Callable[..., Any]) -> None:
    machine = make_machine("attach_cache_set#1=late_success:3")
    cache_set = machine.made()
    with pytest.raises(HostError):
        machine.host.attach_cache_set(cache_set, CACHE, flush_mb_s=0.0)
    machine.clock.advance(4.0)
    machine.host.scan(())
    assert machine.host.calls.seconds == pytest.approx(0.02)
    machine.run(1.0)
    assert machine.host.scan(()).backing.cache_set == cache_set


def test_a_release_syncs_the_backing_disk_once_more(machine: Any) -> None:
    cache_set = machine.boost()
    machine.drain()
    machine.host.detach_cache_set(cache_set)
    machine.run(1.0)
    machine.kernel.bcache.backing.write(7, 1, durable=False)
    machine.host.release_cache_disk(CACHE, SIZE, cache_set)
    assert machine.kernel.bcache.backing.durable[7] == 1


def test_a_late_call_that_fails_is_remembered_and_harms_nobody(make_machine: Callable[..., Any]) -> None:
    machine = make_machine("format_cache#1=late_success:3")
    machine.plug()
    with pytest.raises(HostError):
        machine.host.format_cache(CACHE, SIZE)
    machine.kernel.unplug(CACHE)
    machine.run(4.0)
    assert [e.code for e in machine.host.calls.late_errors] == ["disk.missing"]


def test_a_disk_is_registered_only_as_the_set_it_carries(machine: Any) -> None:
    machine.plug()
    machine.host.format_cache(CACHE, SIZE)
    with refused(HostError, "disk.other_set"):
        machine.host.register_cache(CACHE, CacheSetUuid("another"))
    assert machine.host.scan((CACHE,)).disk(CACHE).cache_set is None


def test_a_release_killed_half_way_leaves_a_superblock_that_the_next_one_wipes(
    make_machine: Callable[..., Any],
) -> None:
    machine = make_machine("release_cache_disk#1=half")
    cache_set = machine.boost()
    with refused(HostError, Kind.HALF):
        machine.leave(cache_set)
    assert machine.host.scan((CACHE,)).disk(CACHE).superblock == cache_set
    machine.host.release_cache_disk(CACHE, SIZE, cache_set)
    assert machine.host.scan((CACHE,)).disk(CACHE).superblock is None


def test_the_disk_of_a_cache_the_backing_device_waits_for_is_not_released(machine: Any) -> None:
    cache_set = machine.boost()
    machine.write(range(10), 1.0)
    machine.kernel.bcache.unlink()
    assert machine.host.scan(()).backing.state is CacheState.DIRTY
    with pytest.raises(NotOursError):
        machine.host.release_cache_disk(CACHE, SIZE, cache_set)


def test_counters_of_the_cache_are_zero_without_one(machine: Any) -> None:
    machine.write(range(10), 1.0)
    assert machine.counters.read()["cache"] == (0, 0)
    assert machine.counters.read()["adaptive"] == machine.counters.read()["backing"]


def test_writes_do_not_bypass_the_cache_while_a_request_is_in_flight(machine: Any) -> None:
    machine.boost()
    machine.app.reads.extend(range(400))
    machine.run(0.5)
    assert not machine.kernel.is_quiet
    with pytest.raises(DeviceBusyError):
        machine.host.bypass_cache()
    machine.run(0.5)
    assert machine.kernel.is_quiet, "it holds requests back, so that the next try finds none"
    machine.host.bypass_cache()
    assert machine.kernel.bcache.mode is CacheMode.NONE
