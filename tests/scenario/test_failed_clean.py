"""A cache that fails while it is clean, on the simulated machine."""

from __future__ import annotations

import pytest

from elastio.core.model import CacheState, RequestKind
from elastio.core.state import Phase
from elastio.sim.run import Simulation
from elastio.sim.workload import Segment
from tests.simulated import QUIET, assert_at_rest, in_phase, intents, machine, path
from tests.values import present

LATER = Segment(3, 60), Segment(60, 0), Segment(12, 60), QUIET


def clean_and_boosting(*load: Segment) -> Simulation:
    """A boost whose cache has become clean, with nothing to end it."""
    sim = machine((Segment(2, 0), Segment(9, 60), Segment(80, 0), *(load or (QUIET,))), inactivity_delay_s=1e6)
    in_phase(sim, Phase.BOOSTING)
    sim.run_until(lambda: sim.world.clock.elapsed() > 30 and not sim.world.kernel.bcache.sb_dirty, 300)
    return sim


def torn_off_clean(*load: Segment) -> Simulation:
    sim = clean_and_boosting(*load)
    sim.world.vanish()
    sim.run_until(lambda: bool(sim.state.failed_clean_set), 30)
    return sim


def test_the_device_goes_on_and_the_volume_is_released() -> None:
    sim = torn_off_clean()
    assert_at_rest(sim)
    assert "faulted" not in path(sim)
    assert intents(sim, "AttachVolume") == intents(sim, "MakeDurable") == 1
    assert sim.world.kernel.bcache.running


@pytest.mark.parametrize("is_released", [True, False])
def test_after_a_boot_the_device_is_started_without_it(is_released: bool) -> None:
    sim = torn_off_clean(*LATER)
    if is_released:
        sim.run_until_settled(300)
    sim.power_cut()
    assert not sim.world.kernel.bcache.running
    sim.run_until(lambda: sim.world.kernel.bcache.running, 60)
    assert intents(sim, "StartWithoutCache") == 1
    assert "faulted" not in path(sim)
    assert_at_rest(sim)


def test_the_next_boost_ends_it() -> None:
    sim = torn_off_clean(*LATER)
    in_phase(sim, Phase.IDLE)
    sim.run_until(lambda: sim.phase is Phase.BOOSTING, 300)
    assert sim.state.failed_clean_set == ""
    sim.ask(RequestKind.FLUSH)
    assert_at_rest(sim)
    assert sim.world.kernel.bcache.state is CacheState.NO_CACHE
    sim.power_cut()
    assert sim.world.kernel.bcache.running
    assert sim.world.kernel.bcache.stale_links == 0


def test_one_that_is_there_again_after_a_boot_is_taken_off_at_once() -> None:
    sim = clean_and_boosting(*LATER)
    disk = present(sim.world.kernel.cache_disk())
    sim.world.kernel.pull(disk.serial)
    sim.run_until(lambda: bool(sim.state.failed_clean_set), 30)
    sim.kill_agent()
    sim.world.kernel.disks[disk.serial] = disk
    sim.power_cut()
    assert sim.world.kernel.bcache.cache_set == disk.superblock
    sim.run_until(lambda: sim.phase is Phase.DETACHING, 60)
    assert_at_rest(sim)


def test_without_a_journal_it_is_remembered_all_the_same() -> None:
    sim = torn_off_clean(*LATER)
    sim.kill_agent()
    sim.lines.clear()
    sim.start_agent()
    sim.run_until(lambda: bool(sim.state.failed_clean_set), 60)
    sim.power_cut()
    sim.run_until(lambda: sim.world.kernel.bcache.running, 60)
    assert "faulted" not in path(sim)


def test_one_that_is_registered_again_under_load_is_taken_off_whatever_the_load() -> None:
    sim = machine((Segment(2, 0), Segment(9, 60), Segment(24, 0), Segment(60, 60), QUIET), inactivity_delay_s=1e6)
    kernel = sim.world.kernel
    in_phase(sim, Phase.BOOSTING)
    sim.run_until(lambda: sim.world.clock.elapsed() > 34.5 and not kernel.bcache.sb_dirty, 300)
    torn = present(kernel.cache_disk())
    kernel.pull(torn.serial)
    sim.run_until(lambda: kernel.bcache.passed is not None and sim.state.load.above_since is not None, 30)
    sim.run_for(0.5)
    kernel.plug(torn)
    assert kernel.bcache.stale_links == 1
    phases = set()
    sim.on_step = lambda: phases.add(sim.phase)
    sim.run_until(lambda: kernel.bcache.cache_set is None, 60)
    assert Phase.FLUSHING in phases
    assert Phase.BOOSTING not in phases
