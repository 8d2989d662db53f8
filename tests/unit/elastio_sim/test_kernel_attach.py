"""How a cache set is attached and detached, how long that takes, and what prevents it."""

from __future__ import annotations

from typing import Any

import pytest

from elastio.core.actions import HELD_MB_S
from elastio.core.model import CacheMode, CacheState, Serial
from elastio.errors import DeviceBusyError, HostError
from tests.fixtures.caches import make_cache
from tests.fixtures.errors import refused

from .conftest import CACHE


def test_attaching_behind_a_full_untuned_queue_takes_12_seconds(machine: Any) -> None:
    machine.kernel.set_mode(CacheMode.WRITEBACK)
    machine.run(1.0)
    machine.write_as_fast_as_possible()
    cache_set = machine.attach()
    assert machine.host.calls.seconds == pytest.approx(12.0)
    machine.run(11.9)
    assert machine.host.scan(()).backing.cache_set is None
    machine.run(0.2)
    assert machine.host.scan(()).backing.cache_set == cache_set


@pytest.mark.parametrize(("changes_mode", "least_s", "most_s"), [(False, 0.3, 0.5), (True, 1.19, 1.21)])
def test_attaching_under_load_takes_as_long_as_the_bounded_queue_for_each_superblock_write(
    machine: Any, changes_mode: bool, least_s: float, most_s: float
) -> None:
    machine.host.tune_backing()
    machine.write_as_fast_as_possible()
    if changes_mode:
        machine.kernel.set_mode(CacheMode.NONE)
    machine.attach()
    assert least_s <= machine.host.calls.seconds <= most_s


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


def test_a_write_that_was_in_flight_when_a_cache_came_leaves_an_older_block_in_it_unless_it_is_waited_for(
    make_machine: Any,
) -> None:
    harm = {}
    for holds_back in (True, False):
        machine = make_machine(holds_back=holds_back, backing_mb_s=0.05)
        machine.host.tune_backing()
        cache_set = machine.made()
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
    assert harm[False]


@pytest.mark.parametrize("holds_back", [True, False])
def test_what_is_held_back_stays_so_where_an_attach_is_refused(make_machine: Any, holds_back: bool) -> None:
    machine = make_machine(holds_back=holds_back, backing_mb_s=0.05)
    machine.host.tune_backing()
    cache_set, kernel = machine.made(), machine.kernel
    machine.run(2.0)
    kernel.limit_writes(HELD_MB_S)
    kernel.limit_writes(None)  # all that was held back is in flight
    machine.write([0], 0.2)
    with refused(DeviceBusyError, "device.not_drained"):
        machine.host.attach_cache_set(cache_set, CACHE, flush_mb_s=0.0)
    assert kernel.bcache.write_limit_mb_s == (HELD_MB_S if holds_back else None)


def test_no_second_cache_set_is_attached(machine: Any) -> None:
    machine.boost()
    other = machine.plug(Serial("vol00000000000000002"))
    cache_set = make_cache(machine.host, other.serial, other.size_bytes)
    with refused(HostError, "cache.attached"):
        machine.kernel.attach(cache_set, flush_mb_s=0.0)


def test_a_set_that_is_attached_again_starts_empty(machine: Any) -> None:
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
