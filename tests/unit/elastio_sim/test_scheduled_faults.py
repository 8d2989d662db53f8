"""Scheduled faults of the simulated machine, and what must hold whatever the agent does."""

from __future__ import annotations

import pytest

from elastio.core.model import CacheState
from elastio.core.state import Phase
from elastio.errors import JournalError
from elastio_sim.faults import MODES, UNANNOUNCED_SWAPS, FaultMode, ScheduledFault
from elastio_sim.run import Simulation
from elastio_sim.workload import Segment
from tests.simulated import QUIET, edited, in_phase, machine
from tests.values import present


def dirty(*load: Segment) -> Simulation:
    sim = machine((Segment(2, 0), Segment(12, 60), *load, QUIET), inactivity_delay_s=1e6)
    in_phase(sim, Phase.BOOSTING)
    sim.run_until(lambda: sim.world.kernel.bcache.dirty_bytes > 0, 60)
    return sim


def test_an_older_copy_shows_the_same_device_on_another_disk_without_a_cache() -> None:
    sim = dirty()
    before = sim.world.host.scan(()).backing
    sim.world.swap_backing(20.0)
    view = sim.world.host.scan(())
    assert before is not None
    assert view.backing is not None
    assert (view.backing.state, view.backing.running) == (CacheState.NO_CACHE, True)
    assert view.backing.disk_serial != before.disk_serial
    assert not sim.world.lost(), "the right disk and its cache hold everything"


def test_whoever_wipes_the_cache_of_a_swapped_disk_loses_what_only_it_held() -> None:
    sim = dirty()
    sim.kill_agent()
    sim.world.swap_backing(1e6)
    (cache,) = (d for d in sim.world.kernel.disks.values() if d.superblock)
    assert not sim.world.is_only_copy_unplugged()
    sim.world.kernel.pull(cache.serial)
    assert sim.world.is_only_copy_unplugged()
    cache.wipe()
    assert sim.world.lost()


def test_the_right_disk_comes_back_with_a_boot_and_all_its_data() -> None:
    sim = dirty()
    boots = sim.world.kernel.boots
    sim.kill_agent()
    sim.world.happen(ScheduledFault("0", FaultMode.SWAP, 20.0))
    sim.world.advance(30.0)
    assert sim.world.kernel.boots == boots + 1
    assert sim.world.kernel.original is None
    assert sim.world.kernel.bcache.cache is not None
    assert not sim.world.lost()


@pytest.mark.parametrize("kind", UNANNOUNCED_SWAPS)
def test_a_copy_without_a_serial_of_its_own_is_not_taken_for_the_disk_that_had_the_cache(kind: FaultMode) -> None:
    sim = dirty()
    kernel = sim.world.kernel
    serial = kernel.backing_serial
    sim.happen(ScheduledFault("0", kind, 1e6))
    assert kernel.original is not None
    assert kernel.backing_serial == (serial if kind is FaultMode.SWAP_ALIKE else None)
    in_phase(sim, Phase.FAULTED)
    assert not sim.world.is_only_copy_unplugged()
    assert not sim.world.lost()


@pytest.mark.parametrize("kind", UNANNOUNCED_SWAPS)
def test_such_a_copy_comes_only_where_a_cache_was_written_down(kind: FaultMode) -> None:
    sim = dirty()
    sim.lines.clear()
    sim.happen(ScheduledFault("0", kind, 1e6))
    assert sim.world.kernel.original is None


def test_nothing_is_swapped_while_no_cache_is_there() -> None:
    sim = machine((QUIET,))
    sim.world.swap_backing(20.0)
    assert sim.world.kernel.original is None


def test_a_detach_by_hand_flushes_all_and_does_not_count_as_harm() -> None:
    sim = dirty(Segment(60, 15))
    sim.kill_agent()
    sim.world.happen(ScheduledFault("0", FaultMode.DETACH_BY_HAND))
    sim.world.advance(120.0)
    assert sim.world.kernel.bcache.cache_set is None
    assert sim.world.kernel.bcache.harm() == ""
    assert not sim.world.lost(power_cut=True)


def test_a_full_state_disk_takes_nothing_until_it_has_room_again() -> None:
    sim = machine((Segment(2, 0), Segment(60, 60), QUIET))
    sim.run_for(1.0)
    lines = len(sim.lines)
    sim.happen(ScheduledFault("0", FaultMode.DISK_FULL, 30.0))
    sim.run_for(29.0)
    assert len(sim.lines) == lines
    assert sim.phase is not Phase.BOOSTING
    in_phase(sim, Phase.BOOSTING)


def test_a_journal_on_a_full_disk_refuses_notes_too() -> None:
    sim = dirty()
    sim.happen(ScheduledFault("0", FaultMode.DISK_FULL, 30.0))
    journal = present(sim.agent)._journal  # the loop's own, with its faults
    with pytest.raises(JournalError):
        journal.note(sim.state, now=0.0, wall=0.0)


@pytest.mark.parametrize("kind", MODES)
def test_an_operator_sets_the_mode_of_a_cache_and_of_nothing_else(kind: FaultMode) -> None:
    sim = machine()
    before = sim.world.kernel.bcache.mode
    sim.world.happen(ScheduledFault("0", kind))
    assert sim.world.kernel.bcache.mode is before
    sim = dirty()
    sim.world.happen(ScheduledFault("0", kind))
    assert sim.world.kernel.bcache.mode == kind.value


def test_a_reload_gives_the_agent_another_policy_and_the_next_one_the_first_again() -> None:
    sim = machine()
    first, sim.edited = sim.policy, edited(sim.policy)
    for policy in (sim.edited, first):
        sim.world.happen(ScheduledFault("0", FaultMode.RELOAD))
        assert present(sim.agent).policy == policy
        sim.start_agent()
        assert present(sim.agent).policy == policy
