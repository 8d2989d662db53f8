"""Caches that go missing or fail on the simulated machine: what comes back, and what is given up."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from elastio.core.model import CacheState, RequestKind, VolumeId, VolumeState, VolumeTag
from elastio.core.state import FaultKind, Phase
from elastio.errors import ConfigError, RefusedError
from elastio_sim.faults import FaultMode
from elastio_sim.run import Simulation
from elastio_sim.workload import Segment
from tests.simulated import (
    BURST,
    QUIET,
    STEADY,
    assert_at_rest,
    failures,
    in_phase,
    intents,
    machine,
    only_the_port,
    path,
)
from tests.values import present


@pytest.mark.parametrize("restarts", [False, True])
def test_a_device_that_was_dropped_comes_back_with_all_its_data(*, restarts: bool) -> None:
    """The cache volume was pulled out while dirty, and the last close made the kernel drop the backing device."""
    sim = machine(BURST, "@dirty=vanish")
    sim.run_until(lambda: bool(sim.world.happened), 60)
    sim.world.kernel.drop_backing()
    if restarts:
        sim.start_agent()
    assert_at_rest(sim)
    assert intents(sim, "RegisterBacking") >= 1


def test_a_lost_cache_is_given_up_and_boosts_go_on() -> None:
    sim = machine(STEADY, "@dirty=vanish")
    sim.run_until(lambda: bool(sim.world.happened), 60)
    for bought in sim.world.provider.existing():
        bought.state, bought.deleted_at = VolumeState.GONE, sim.world.clock.elapsed()
        sim.world.kernel.destroy(bought.serial)
    in_phase(sim, Phase.FAULTED)
    sim.run_for(120)
    assert sim.phase is Phase.FAULTED
    assert not sim.world.kernel.bcache.running
    assert sim.ask(RequestKind.RECOVER, accepts_loss=True).accepted
    in_phase(sim, Phase.BOOSTING)
    assert sim.world.kernel.bcache.running
    sim.ask(RequestKind.FLUSH)
    assert sim.state.loss_accepted_for == ""
    sim.run_until(lambda: not sim.state.given_up and not sim.state.is_stale_accepted, 300)


def dirty_and_quiet() -> Simulation:
    """Boosting, with dirty data on the cache, and nobody writes any more."""
    sim = machine((Segment(2, 0), Segment(20, 60), QUIET), inactivity_delay_s=1e6, attach_timeout_s=1e6)
    in_phase(sim, Phase.BOOSTING)
    sim.run_for(22.5 - sim.world.clock.elapsed())
    assert sim.world.kernel.bcache.dirty_bytes > 0
    return sim


def swap_backing(sim: Simulation, superblock: tuple[Any, bool] = (None, False)) -> tuple[Any, bool]:
    """Put a copy of the backing volume with this superblock in the place of the one that is there."""
    bcache = sim.world.kernel.bcache
    before = (bcache.sb_set, bcache.sb_dirty)
    bcache.sb_set, bcache.sb_dirty = superblock
    bcache.running = superblock[0] is None
    sim.world.kernel.fsync()  # both are on the disk
    return before


def assert_kept(sim: Simulation) -> None:
    """Whatever the wait, the volume with the data is still there, as it was."""
    sim.run_for(700)
    assert sim.phase is Phase.FAULTED
    assert present(sim.state.fault).kind is FaultKind.MAY_LACK_DATA
    assert sim.world.volumes_left() == 1
    for action in ("ReleaseCacheDisk", "DetachVolume", "DeleteVolume"):
        assert intents(sim, action) == 0


def test_after_a_boot_on_an_older_copy_the_volume_is_kept_and_the_right_one_ends_the_fault() -> None:
    sim = dirty_and_quiet()
    right = swap_backing(sim)
    sim.power_cut()
    assert_kept(sim)
    sim.start_agent()
    assert_kept(sim)
    swap_backing(sim, right)
    sim.power_cut()
    in_phase(sim, Phase.BOOSTING)
    sim.ask(RequestKind.PAUSE)
    assert_at_rest(sim)


@pytest.mark.parametrize("rebooted", [False, True])
def test_a_copy_in_the_place_of_a_device_that_lost_its_cache_costs_nothing(rebooted: bool) -> None:
    sim = dirty_and_quiet()
    sim.world.faults.arm(FaultMode.STUCK, ["attach"], seconds=1e6)
    sim.world.vanish()
    in_phase(sim, Phase.FAULTED)
    swap_backing(sim)
    if rebooted:
        sim.power_cut()
    else:
        sim.run_for(5)
        sim.ask(RequestKind.RESUME)
    assert_kept(sim)


@pytest.mark.parametrize("agent_runs", [True, False])
def test_a_copy_put_in_the_devices_place_in_the_same_boot_costs_nothing(*, agent_runs: bool) -> None:
    """bcache stopped by hand: the kernel that saw all of it shows a device without a cache, and it is another one."""
    sim = dirty_and_quiet()
    kernel = sim.world.kernel
    only_copy = dict(kernel.bcache.cache.dirty) if kernel.bcache.cache else {}
    if not agent_runs:
        sim.kill_agent()
    kernel._drop_in_flight()
    kernel.bcache.unlink()
    swap_backing(sim)
    if not agent_runs:
        sim.start_agent()
    assert_kept(sim)
    (on_disk,) = (d.content for d in kernel.disks.values())
    assert present(on_disk).dirty == only_copy


def test_another_device_in_the_configuration_does_not_end_the_cycle_of_the_first() -> None:
    sim = dirty_and_quiet()
    sim.kill_agent()
    sim.policy = replace(sim.policy, backing_uuid="99999999-9999-4999-8999-999999999999")
    with pytest.raises(ConfigError):
        sim.start_agent()
    assert sim.world.volumes_left() == 1


def gone_while_clean(*load: Segment, written_s: float = 0.0) -> tuple[Simulation, VolumeId]:
    """A clean cache was torn off while no agent ran, `written_s` of load followed, and the machine was booted."""
    sim = machine((Segment(2, 0), Segment(9, 60), *load, QUIET), inactivity_delay_s=1e6)
    in_phase(sim, Phase.BOOSTING)
    sim.run_until(lambda: sim.world.clock.elapsed() > 30 and not sim.world.kernel.bcache.sb_dirty, 600)
    sim.kill_agent()
    sim.world.kernel.fsync()  # the backing disk has had the time to write out what was flushed to it
    sim.world.vanish()
    sim.run_for(written_s)
    sim.power_cut()
    in_phase(sim, Phase.FAULTED)
    assert sim.state.cycle is not None
    return sim, present(sim.state.cycle.volume_id)


def test_a_clean_cache_that_failed_unseen_before_a_boot_is_given_up_without_a_loss() -> None:
    """It looks like one that is missing: the agent asks, and keeps the volume."""
    sim, volume_id = gone_while_clean()
    assert sim.ask(RequestKind.RECOVER, accepts_loss=True, volume_id=volume_id).accepted
    sim.run_until(lambda: sim.phase is Phase.IDLE, 60)
    assert not sim.world.lost(power_cut=True)
    sim.run_for(700)
    assert [v.id for v in sim.world.provider.existing()] == [volume_id]
    assert intents(sim, "StartWithoutCache") == 1


def test_a_clean_cache_that_may_be_older_than_the_device_is_not_brought_back_by_itself() -> None:
    sim, volume_id = gone_while_clean(Segment(20, 0), Segment(10, 10), written_s=4)
    sim.run_for(120)
    assert intents(sim, "AttachVolume") == 1
    assert sim.world.kernel.bcache.stale_links == 0
    assert sim.state.fault is not None
    assert sim.state.fault.kind is FaultKind.CACHE_MISSING
    assert volume_id in sim.state.fault.text
    answer = sim.ask(RequestKind.RECOVER)
    assert not answer.accepted
    assert f"--accept-data-loss --volume {volume_id}" in answer.text
    assert answer.text in sim.ask(RequestKind.RECOVER, accepts_loss=True).text
    assert not sim.world.lost()


def test_no_cache_that_missed_writes_is_attached_by_who_may_not_accept_a_loss() -> None:
    """Not by its name, nor while the device is not registered yet, when it is not known that it was clean."""
    sim, volume_id = gone_while_clean(Segment(20, 0), Segment(10, 10), written_s=4)
    by_name: dict[str, Any] = {"volume_id": volume_id, "asked_by": 1000}
    assert sim.ask(RequestKind.RECOVER, **by_name).code == "recover.may-be-older"
    assert sim.ask(RequestKind.RECOVER, brings_back=True, **by_name).code == "recover.may-be-older"
    sim.world.kernel.drop_backing()
    sim.run_for(0.5)
    sim.ask(RequestKind.RECOVER, **by_name)
    assert not present(sim.state.cycle).operator_confirmed
    sim.run_for(60)
    assert sim.world.kernel.bcache.stale_links == 0
    assert sim.phase is Phase.FAULTED


@pytest.mark.parametrize("dies", [False, True])
def test_a_clean_cache_is_brought_back_by_name(*, dies: bool) -> None:
    sim, volume_id = gone_while_clean()
    assert sim.ask(RequestKind.RECOVER, volume_id=volume_id, accepts_loss=True, brings_back=True).accepted
    if dies:
        sim.start_agent()
    in_phase(sim, Phase.BOOSTING)
    assert not present(sim.state.cycle).operator_confirmed, "it is asked again if the cache goes once more"
    sim.ask(RequestKind.FLUSH)
    assert_at_rest(sim)


def test_a_restart_before_the_first_scan_after_a_boot_forgets_nothing() -> None:
    sim = dirty_and_quiet()
    swap_backing(sim)
    sim.power_cut()
    records = len(sim.lines)
    sim.world.faults.arm(FaultMode.HANG, ["scan"])
    sim.run_for(5)
    assert not sim.state.recovered
    assert [r["kind"] for r in sim.journal.records()][records:] == []
    sim.start_agent()
    assert_kept(sim)


def test_the_journal_knows_how_much_was_dirty_not_long_before() -> None:
    sim = machine(STEADY)
    in_phase(sim, Phase.BOOSTING)
    sim.run_for(90)
    sim.kill_agent()
    sim.start_agent()
    remembered = present(sim.state.cycle)
    assert sim.world.clock.wall() - present(remembered.dirty_wall) < 32


def test_a_volume_is_tagged_clean_only_once_its_disk_was_released() -> None:
    sim = machine(BURST, tags_volumes=True)
    marks: list[VolumeTag] = []

    def note() -> None:
        for bought in sim.world.provider.volumes.values():
            if not marks or marks[-1] is not bought.tag:
                marks.append(bought.tag)
            on_disk = sim.world.kernel.disks.get(bought.serial)
            empty = on_disk is None or on_disk.superblock is None
            assert bought.tag is not VolumeTag.CLEAN or empty

    sim.on_step = note
    sim.run_until(lambda: sim.phase is Phase.BOOSTING, 60)
    assert_at_rest(sim)
    assert marks == [VolumeTag.CLEAN, VolumeTag.DIRTY, VolumeTag.CLEAN]


def test_a_cloud_without_tags_hinders_nothing() -> None:
    sim = machine(BURST, tags_volumes=True)
    sim.world.provider = only_the_port(sim.world.provider)
    in_phase(sim, Phase.BOOSTING)
    assert_at_rest(sim)


def test_without_its_tag_no_volume_becomes_a_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would look clean to whoever finds it without its machine."""
    sim = machine(BURST)

    def refuse(*_: object) -> None:
        raise RefusedError("the policy does not allow it")

    monkeypatch.setattr(sim.world.provider, "tag", refuse)
    sim.run_until(lambda: bool(failures(sim)), 60)
    assert_at_rest(sim)
    assert intents(sim, "InstallCache") == 0
    assert sim.world.kernel.bcache.absorbed_bytes == 0


@pytest.mark.parametrize("rebooted", [False, True])
def test_a_volume_that_was_given_up_and_still_exists_costs_the_next_boost_nothing(rebooted: bool) -> None:
    sim = machine(STEADY, "@dirty=vanish attach#2x5=throttle")
    in_phase(sim, Phase.FAULTED)
    sim.run_for(3)
    first = sim.state.cycle.volume_id if sim.state.cycle else None
    assert sim.ask(RequestKind.RECOVER, accepts_loss=True, volume_id=first).accepted
    in_phase(sim, Phase.BOOSTING, 600)
    sim.run_until(lambda: sim.world.kernel.bcache.sb_dirty, 60)
    lost = sim.world.lost()
    sim.world.vanish()
    if rebooted:
        sim.power_cut()
    in_phase(sim, Phase.FAULTED)
    in_phase(sim, Phase.BOOSTING, 600)
    assert intents(sim, "StartWithoutCache") == 1
    assert sim.world.lost() <= lost
    sim.ask(RequestKind.PAUSE)
    sim.run_until(lambda: sim.phase is Phase.IDLE, 900)
    sim.run_for(60)
    assert [v.id for v in sim.world.provider.existing()] == [first]


# --- a cache that fails while it is clean ----------------------------------------------------------------------

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
    # The memory of what the dirty volume was is gone: an operator decides about it.
    sim.run_until(lambda: sim.state.fault is not None and sim.state.fault.kind is FaultKind.MAY_LACK_DATA, 60)


def test_one_that_is_registered_again_under_load_is_taken_off_whatever_the_load() -> None:
    sim = machine((Segment(2, 0), Segment(9, 60), Segment(24, 0), Segment(60, 60), QUIET), inactivity_delay_s=1e6)
    kernel = sim.world.kernel
    in_phase(sim, Phase.BOOSTING)
    sim.run_until(lambda: sim.world.clock.elapsed() > 34.5 and not kernel.bcache.sb_dirty, 300)
    torn = present(kernel.cache_disk())
    kernel.pull(torn.serial)
    sim.run_until(lambda: kernel.bcache.passed is not None and sim.state.memory.load.above_since is not None, 30)
    sim.run_for(0.5)
    kernel.plug(torn)
    assert kernel.bcache.stale_links == 1
    phases = set()
    sim.on_step = lambda: phases.add(sim.phase)
    sim.run_until(lambda: kernel.bcache.cache_set is None, 60)
    assert Phase.FLUSHING in phases
    assert Phase.BOOSTING not in phases
