"""The simulated host refuses what the real one refuses, and its faults are those of the real one."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from elastio.core.model import CacheMode, CacheSetUuid, Serial
from elastio.errors import DeviceBusyError, HostError, NotOursError
from elastio.units import MIB
from elastio_sim.disk import SimDisk
from elastio_sim.faults import FaultMode
from tests.fixtures.errors import refused
from tests.values import present

from .conftest import CACHE, Machine

SIZE = 16 * MIB
SECOND = Serial("vol00000000000000002")
ANOTHER = CacheSetUuid("another")


def test_formatting_twice_gives_the_same_set_once_it_is_registered(machine: Any) -> None:
    machine.plug()
    first, second = (machine.host.format_cache(CACHE, SIZE) for _ in range(2))
    assert first != second, "what nobody has registered is taken for what somebody left there"
    machine.run(1.3)  # udev registers what was written
    assert machine.host.format_cache(CACHE, SIZE) == second


def test_an_adopted_volume_has_a_tombstone_before_and_while_it_has_a_cache() -> None:
    machine = Machine(is_adopted=True)
    machine.plug()
    with refused(DeviceBusyError, "tombstone.missing"):
        machine.host.format_cache(CACHE, SIZE)
    machine.host.write_tombstone()
    machine.kernel.disks.clear()
    machine.boost()
    assert not machine.kernel.could_be_mounted_alone()
    with refused(DeviceBusyError, "tombstone.cache"):
        machine.host.remove_tombstone()
    machine.kernel.power_cut()
    assert present(machine.host.scan(()).backing).has_tombstone is True
    with refused(DeviceBusyError, "tombstone.cache"):
        machine.host.remove_tombstone()
    machine.kernel.has_tombstone = False
    assert machine.kernel.could_be_mounted_alone(), "a raw mount would be older than the cache"


def test_only_an_adopted_volume_has_a_tombstone(machine: Machine) -> None:
    for call in (machine.host.write_tombstone, machine.host.remove_tombstone):
        with refused(NotOursError, "tombstone.none"):
            call()
    assert present(machine.host.scan(()).backing).has_tombstone is None


def dirty(machine: Machine) -> None:
    machine.boost()
    machine.write(range(10), 1.0)


def drained(machine: Machine) -> None:
    machine.boost()
    machine.drain()


def detaching(machine: Machine) -> None:
    drained(machine)
    machine.kernel.always_busy = True
    detach(machine)
    machine.run(2.0)


def attaching(machine: Machine) -> None:
    machine.kernel.attach(machine.made(), flush_mb_s=0.0)


def torn_off(machine: Machine) -> None:
    """The backing device waits for a cache that is still plugged."""
    dirty(machine)
    machine.kernel.bcache.unlink()


def pulled(machine: Machine) -> None:
    """The backing device waits for its cache, and another disk is there."""
    dirty(machine)
    machine.kernel.pull(CACHE)
    machine.plug(SECOND)


def detach(machine: Machine) -> None:
    machine.host.detach_cache_set(present(machine.kernel.bcache.cache_set))


def release(machine: Machine) -> None:
    machine.host.release_cache_disk(CACHE, SIZE, machine.kernel.disk(CACHE).superblock)


def formats(machine: Machine) -> None:
    machine.host.format_cache(CACHE, SIZE)


def standing(machine: Machine) -> object:
    bcache, disks = machine.kernel.bcache, machine.kernel.disks.values()
    on_disks = [(disk.serial, disk.superblock, disk.registered) for disk in disks]
    return bcache.cache_set, bcache.mode, bcache.writeback_mode, bcache.detaching, machine.dirty, on_disks


@pytest.mark.parametrize(
    ("prepare", "change", "error"),
    [
        (Machine.made, lambda machine: machine.host.attach_cache_set(ANOTHER, CACHE, flush_mb_s=0.0), NotOursError),
        (Machine.made, lambda machine: machine.host.register_cache(CACHE, ANOTHER), HostError),
        (dirty, formats, DeviceBusyError),
        (pulled, lambda machine: machine.host.format_cache(SECOND, SIZE), NotOursError),
        (drained, lambda machine: machine.host.enter_phase1(flush_mb_s=None), DeviceBusyError),
        (dirty, detach, DeviceBusyError),
        (Machine.boost, detach, DeviceBusyError),
        (drained, lambda machine: machine.host.detach_cache_set(ANOTHER), NotOursError),
        (drained, release, DeviceBusyError),
        (detaching, release, DeviceBusyError),
        (attaching, release, DeviceBusyError),
        (torn_off, release, NotOursError),
    ],
)
def test_refuses_and_changes_nothing(
    machine: Machine, prepare: Callable[[Machine], object], change: Callable[[Machine], object], error: type[Exception]
) -> None:
    prepare(machine)
    before = standing(machine)
    with pytest.raises(error):
        change(machine)
    assert standing(machine) == before


@pytest.mark.parametrize("change", [formats, release])
@pytest.mark.parametrize(
    ("disk", "error"),
    [
        ({"signature": "ext4"}, NotOursError),
        ({"size_bytes": SIZE * 2}, NotOursError),
        ({"holder": "mount"}, DeviceBusyError),
    ],
    ids=["foreign signature", "wrong size", "in use"],
)
def test_a_disk_that_may_be_somebody_elses_is_not_touched(
    machine: Machine, disk: dict[str, Any], error: type[Exception], change: Callable[[Machine], object]
) -> None:
    machine.kernel.plug(SimDisk(**{"serial": CACHE, "size_bytes": SIZE, "mb_s": 16.0, **disk}))
    with pytest.raises(error):
        change(machine)
    assert machine.kernel.disk(CACHE).superblock is None


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


def test_phases_ask_for_an_attached_cache(machine: Any) -> None:
    for change in (
        machine.host.enter_phase2,
        machine.host.bypass_cache,
        lambda: machine.host.enter_phase1(flush_mb_s=None),
        lambda: machine.host.set_flush(None),
    ):
        with refused(HostError, "set.none"):
            change()


def test_after_a_cycle_the_device_asks_to_be_tuned_for_the_next_one(machine: Any) -> None:
    machine.leave(machine.boost())
    assert machine.host.scan(()).backing.tuned is False
    machine.host.tune_backing()
    backing = machine.host.scan(()).backing
    assert (backing.tuned, backing.cache_mode) == (True, CacheMode.WRITEBACK)


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
    with refused(HostError, "backing.unregistered"):
        machine.host.tune_backing()


def test_looking_lists_only_asked_for_disks_and_the_cache_in_use(machine: Any) -> None:
    machine.boost()
    machine.kernel.plug(SimDisk(Serial("other"), SIZE, 16.0))
    assert [d.serial for d in machine.host.scan(()).disks] == [CACHE]
    assert {d.serial for d in machine.host.scan((Serial("other"),)).disks} == {CACHE, "other"}


@pytest.mark.parametrize(
    ("kind", "mode"),
    [
        (FaultMode.REFUSE, CacheMode.WRITEBACK),
        (FaultMode.HANG, CacheMode.WRITEBACK),
        (FaultMode.LOSE_REPLY, CacheMode.NONE),
    ],
)
def test_only_a_call_whose_answer_is_lost_has_an_effect(
    make_machine: Callable[..., Any], kind: FaultMode, mode: CacheMode
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


def test_a_release_killed_half_way_leaves_a_superblock_that_the_next_one_wipes(
    make_machine: Callable[..., Any],
) -> None:
    machine = make_machine("release_cache_disk#1=half")
    cache_set = machine.boost()
    with refused(HostError, FaultMode.HALF):
        machine.leave(cache_set)
    assert machine.host.scan((CACHE,)).disk(CACHE).superblock == cache_set
    machine.host.release_cache_disk(CACHE, SIZE, cache_set)
    assert machine.host.scan((CACHE,)).disk(CACHE).superblock is None


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
