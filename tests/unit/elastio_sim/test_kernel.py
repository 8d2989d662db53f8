"""How one adaptive device shares its bandwidth: applications, the cache, and its writeback."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from elastio.core.model import CacheMode
from elastio.units import MB, MIB
from elastio_sim.kernel import KernelSettings

from .conftest import BLOCK, CACHE


def rates(machine: Any, seconds: float = 2.0) -> dict[str, float]:
    """MB/s of the next `seconds`: read and write together, by device, and the application's writes alone."""
    before = machine.counters.read()
    machine.run(seconds)
    after = machine.counters.read()
    total = {n: (sum(after[n]) - sum(before[n])) / MB / seconds for n in after}
    return total | {"app_write": (after["adaptive"][1] - before["adaptive"][1]) / MB / seconds}


def test_reads_and_writes_share_one_cap(machine: Any) -> None:
    machine.app.writes.extend(range(1000))
    machine.app.reads.extend(range(1000))
    seen = rates(machine)
    assert seen["adaptive"] == pytest.approx(4.0, rel=0.01)
    assert seen["app_write"] == pytest.approx(2.0, rel=0.15)
    assert seen["cache"] == 0


@pytest.mark.parametrize(("cutoff", "within"), [(0.70, 0.05), (0.90, 0.03)])
def test_a_full_cache_lets_writes_through_to_the_slow_disk_and_counts_them_as_overflow(
    make_machine: Callable[..., Any], cutoff: float, within: float
) -> None:
    machine = make_machine(cutoff=cutoff)
    machine.boost()
    machine.write(range(4000), 10.0)
    assert machine.dirty == pytest.approx(cutoff * 16 * MIB, rel=within)
    assert machine.host.scan((CACHE,)).backing.overflow_bytes > 0
    assert rates(machine)["app_write"] == pytest.approx(4.0, rel=0.01)


def test_the_kernel_takes_no_cutoff_above_90_percent() -> None:
    with pytest.raises(ValueError, match=r"0\.95"):
        KernelSettings(cutoff=0.95)


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


def test_without_tuning_the_kernel_flushes_almost_nothing_below_a_tenth(machine: Any) -> None:
    machine.boost()
    machine.write(range(20), 1.0)
    machine.kernel.power_cut()
    machine.run(10.0)
    assert machine.dirty >= 19 * BLOCK
