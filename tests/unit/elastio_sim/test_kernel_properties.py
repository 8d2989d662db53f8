"""Any sequence of calls of the kernel model invents no byte, loses none, and exceeds no cap."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from elastio.core.model import CacheMode, CacheState, Serial
from elastio.errors import DeviceBusyError
from elastio.units import KIB, MB, MIB
from tests.fixtures.caches import make_cache

BLOCK = 64 * KIB
CACHE = Serial("vol00000000000000001")
CAPS_MB_S = {"backing": 4.0, "cache": 16.0}
BLOCKS = st.integers(0, 60)


class KernelRules(RuleBasedStateMachine):
    """The calls of an agent that follows the rules, with an application and power cuts in between."""

    make_machine: Any = None

    def __init__(self) -> None:
        super().__init__()
        self.machine = type(self).make_machine()
        self.kernel = self.machine.kernel
        self.bcache = self.machine.kernel.bcache
        self.cache_set: Any = None

    @rule(start=BLOCKS, count=st.integers(1, 60))
    def write(self, start: int, count: int) -> None:
        self.machine.app.writes.extend(range(start, start + count))

    @rule(start=BLOCKS, count=st.integers(1, 40))
    def read(self, start: int, count: int) -> None:
        self.machine.app.reads.extend(range(start, start + count))

    @rule(steps=st.integers(1, 60))
    def run(self, steps: int) -> None:
        for _ in range(steps):
            before = self.machine.counters.read()
            linked = self.bcache.cache_set
            self.machine.run(0.05)
            after = self.machine.counters.read()
            for disk, mb_s in CAPS_MB_S.items():
                if disk == "cache" and self.bcache.cache_set != linked:
                    continue  # another disk, another counter
                moved = sum(after[disk]) - sum(before[disk])
                assert 0 <= moved <= mb_s * MB * 0.05 + 1

    @precondition(lambda self: self.cache_set is None)
    @rule(flush_mb_s=st.sampled_from([0.0, 3.0, None]))
    def boost(self, flush_mb_s: float | None) -> None:
        if CACHE not in self.kernel.disks:
            self.machine.plug()
        self.machine.host.tune_backing()
        self.cache_set = make_cache(self.machine.host, CACHE, 16 * MIB)
        self.machine.host.attach_cache_set(self.cache_set, CACHE, flush_mb_s=flush_mb_s)

    @precondition(lambda self: self.bcache.cache_set is not None and self.bcache.mode is CacheMode.WRITEBACK)
    @rule(flush_mb_s=st.sampled_from([0.0, 3.0, None]))
    def phase1(self, flush_mb_s: float | None) -> None:
        self.machine.host.enter_phase1(flush_mb_s=flush_mb_s)

    @precondition(lambda self: self.bcache.cache_set is not None)
    @rule()
    def phase2(self) -> None:
        self.machine.host.enter_phase2()

    @precondition(lambda self: self.bcache.cache_set is not None)
    @rule()
    def bypass(self) -> None:
        self.wake()
        try:
            self.machine.host.bypass_cache()
        except DeviceBusyError:
            assert self.bcache.sb_dirty or not self.kernel.is_quiet
        else:
            assert not self.bcache.sb_dirty

    def wake(self) -> None:
        """After a power cut only the index may know of dirt, and a bypass would not see it."""
        if self.bcache.dirty_bytes and not self.bcache.sb_dirty and self.bcache.mode is CacheMode.WRITEBACK:
            self.machine.host.wake_writeback()

    @precondition(lambda self: self.bcache.cache_set is not None)
    @rule(mb_s=st.sampled_from([0.0, 3.0, None]))
    def set_flush(self, mb_s: float | None) -> None:
        self.machine.host.set_flush(mb_s)

    @precondition(lambda self: self.bcache.cache_set is not None and not self.bcache.detaching)
    @rule()
    def leave(self) -> None:
        self.machine.app.writes.clear()
        self.machine.app.reads.clear()
        self.wake()
        self.machine.leave(self.cache_set)
        assert self.kernel.disk(CACHE).superblock is None
        assert self.kernel.lost(without=CACHE, power_cut=True) == frozenset()
        self.kernel.unplug(CACHE)
        self.cache_set = None

    @rule()
    def power_cut(self) -> None:
        self.kernel.power_cut()
        assert self.kernel.lost() == frozenset()
        if self.cache_set is not None and self.bcache.cache_set is None:
            self.machine.host.attach_cache_set(self.cache_set, CACHE, flush_mb_s=None)

    @rule()
    def pull_and_return(self) -> None:
        disk = self.kernel.disks.get(CACHE)
        if disk is None:
            return
        self.kernel.pull(CACHE)
        assert self.kernel.lost() == frozenset()
        self.kernel.plug(disk)
        if self.cache_set is not None and self.bcache.cache_set is None:
            self.machine.host.attach_cache_set(self.cache_set, CACHE, flush_mb_s=None)

    @invariant()
    def every_acknowledged_block_is_somewhere(self) -> None:
        assert self.kernel.lost() == frozenset()

    @invariant()
    def acknowledged_is_dirty_on_the_cache_plus_current_on_the_backing_disk(self) -> None:
        if self.bcache.cache is None:
            return
        stale = {b for b, v in self.bcache.acked.items() if self.bcache.backing.version(b) != v}
        assert stale <= set(self.bcache.cache.dirty)
        assert len(self.bcache.cache.dirty) * BLOCK == self.bcache.dirty_bytes
        clean = self.bcache.cache.clean
        assert all(self.bcache.acked.get(b, 0) == v for b, v in clean.items())

    @invariant()
    def applications_see_what_was_acknowledged(self) -> None:
        assert (self.bcache.stale_reads, self.bcache.stale_copies, self.bcache.bared_blocks) == (0, 0, 0)

    @invariant()
    def every_byte_of_the_application_went_one_way(self) -> None:
        acknowledged = len(self.machine.app.acknowledged) * BLOCK
        assert self.bcache.absorbed_bytes + self.bcache.bypassed_bytes == acknowledged

    @invariant()
    def dirty_is_within_the_cache(self) -> None:
        assert 0 <= self.bcache.dirty_bytes <= 16 * MIB

    @invariant()
    def no_cache_means_that_nothing_is_dirty(self) -> None:
        if self.bcache.state is CacheState.NO_CACHE:
            assert self.bcache.dirty_bytes == 0


def test_the_kernel_model_keeps_its_promises(make_machine: Any) -> None:
    rules = type("Rules", (KernelRules,), {"make_machine": staticmethod(make_machine)})
    run_state_machine_as_test(
        rules,
        settings=settings(max_examples=60, stateful_step_count=40, deadline=None, derandomize=True, database=None),
    )
