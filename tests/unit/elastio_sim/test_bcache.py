"""The rules of bcache, without moving a byte."""

from __future__ import annotations

import pytest

from elastio.core.model import CacheMode, CacheSetUuid, CacheState
from elastio.units import MIB
from elastio_sim.bcache import Bcache, Route, WritebackMode
from elastio_sim.disk import CacheContent

SET = CacheSetUuid("set-1")


def attached(mode: CacheMode = CacheMode.WRITEBACK) -> Bcache:
    bcache = Bcache(cutoff=0.70)
    bcache.link(SET, CacheContent(100 * MIB, MIB))
    bcache.mode = mode
    return bcache


@pytest.mark.parametrize(
    ("mode", "state", "route"),
    [
        (CacheMode.WRITEBACK, {}, Route.ABSORB),
        (CacheMode.WRITETHROUGH, {}, Route.THROUGH),
        (CacheMode.WRITEAROUND, {}, Route.BYPASS),
        (CacheMode.NONE, {}, Route.BYPASS),
        (CacheMode.WRITEBACK, {"cache": None}, Route.BYPASS),
        (CacheMode.WRITEBACK, {"detaching": True}, Route.BYPASS),
        (CacheMode.NONE, {"flushing_block": 1}, Route.ABSORB),  # this very block: it goes to the cache once more
        (CacheMode.NONE, {"flushing_block": 2}, Route.BYPASS),
    ],
)
def test_the_mode_and_the_state_decide_where_a_write_goes(
    mode: CacheMode, state: dict[str, object], route: Route
) -> None:
    bcache = attached(mode)
    for name, value in state.items():
        setattr(bcache, name, value)
    assert bcache.route(1) is route


def test_a_bypassed_write_invalidates_what_the_cache_holds() -> None:
    bcache = attached()
    bcache.written(1, 1, Route.THROUGH)
    bcache.begin_bypass(1)
    assert bcache.cache is not None
    assert not bcache.cache.holds(1), "it goes when the write begins"
    bcache.written(1, 2, Route.BYPASS)
    assert bcache.backing.version(1) == 2
    assert bcache.harm() == ""


def test_a_bypassed_write_over_dirty_data_bares_what_was_there_before_both() -> None:
    bcache = attached()
    bcache.written(1, 1, Route.ABSORB)
    bcache.begin_bypass(1)
    assert bcache.read(1) == (False, 0)
    assert (bcache.bared_blocks, bcache.stale_reads) == (1, 1)


def test_a_read_that_began_during_a_bypassed_write_leaves_what_was_there_before_for_good() -> None:
    bcache = attached(CacheMode.WRITEAROUND)
    bcache.begin_bypass(1)
    bcache.missed(1, bcache.read(1)[1])
    bcache.written(1, 1, Route.BYPASS)
    assert bcache.stale_copies == 1
    bcache.read(1)
    assert bcache.stale_reads == 1


def test_a_read_that_began_before_a_bypassed_write_leaves_nothing() -> None:
    bcache = attached(CacheMode.WRITEAROUND)
    _, version = bcache.read(1)
    bcache.begin_bypass(1)
    bcache.missed(1, version)
    bcache.written(1, 1, Route.BYPASS)
    assert bcache.harm() == ""


def test_only_what_was_not_absorbed_in_writeback_mode_is_overflow() -> None:
    bcache = attached()
    for route in (Route.ABSORB, Route.THROUGH, Route.BYPASS):
        bcache.written(1, 1, route)
    assert bcache.overflow_bytes == 0
    bcache.written(1, 2, Route.OVERFLOW)
    assert bcache.overflow_bytes == MIB


def test_a_detach_is_not_written_while_a_write_to_the_cache_is_in_flight() -> None:
    bcache = attached()
    bcache.detaching = True
    states = []
    for absorbing in (True, False):
        bcache.absorbing = absorbing
        bcache.settle()
        states.append(bcache.state)
    assert states == [CacheState.CLEAN, CacheState.NO_CACHE]
    assert bcache.cache_set == SET


def test_reads_fill_the_cache_except_in_mode_none() -> None:
    bcache = attached()
    bcache.missed(1, bcache.read(1)[1])
    bcache.mode = CacheMode.NONE
    bcache.missed(2, bcache.read(2)[1])
    assert bcache.cache is not None
    assert (bcache.cache.holds(1), bcache.cache.holds(2)) == (True, False)


def test_the_idle_class_means_nothing_to_an_untuned_scheduler() -> None:
    bcache = attached()
    bcache.writeback_mode = WritebackMode.IDLE
    assert bcache.flush_class() is WritebackMode.FULL
    bcache.tuned = True
    assert bcache.flush_class() is WritebackMode.IDLE


def test_a_detach_flushes_at_full_speed_even_with_writeback_stopped() -> None:
    bcache = attached()
    bcache.written(1, 1, Route.ABSORB)
    bcache.writeback_running = False
    assert not bcache.may_flush()
    bcache.detaching = True
    assert bcache.may_flush()
    assert bcache.flush_class() is WritebackMode.FULL
