"""A dirty volume of this device that no cycle knows: the device and the journal are older copies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from elastio.accounting.ledger import Ledger
from elastio.accounting.recorder import CostRecorder
from elastio.core.model import RequestKind, VolumeId, VolumeState, VolumeTag
from elastio.core.state import FaultKind, Phase
from elastio_sim.run import Simulation
from elastio_sim.workload import Segment
from tests.simulated import KERNEL, QUIET, assert_at_rest, in_phase, machine
from tests.values import cycle

from .test_missing_cache import assert_kept, swap_backing


def has_fault(sim: Simulation, kind: FaultKind) -> bool:
    return sim.state.fault is not None and sim.state.fault.kind is kind


def without_memory(*load: Segment) -> tuple[Simulation, VolumeId, tuple[Any, bool]]:
    """The machine was booted with older copies of its journal and of its backing volume, while the cache was dirty."""
    load = load or (Segment(1e9, 15),)
    sim = machine((Segment(2, 0), Segment(20, 60), *load), inactivity_delay_s=1e6, attach_timeout_s=1e6)
    in_phase(sim, Phase.BOOSTING)
    sim.run_for(20)
    (bought,) = sim.world.provider.existing()
    assert bought.tag is VolumeTag.DIRTY
    sim.kill_agent()
    sim.lines.clear()
    right = swap_backing(sim)
    sim.power_cut()
    return sim, bought.id, right


def test_no_boost_begins_while_a_dirty_volume_of_the_device_is_known_to_no_cycle() -> None:
    sim, volume_id, _ = without_memory()
    assert_kept(sim)
    assert [v.id for v in sim.world.provider.volumes.values()] == [volume_id], "none was bought beside it"
    assert not sim.ask(RequestKind.BOOST).accepted
    assert not sim.ask(RequestKind.RESUME, accepts_loss=True).accepted
    assert volume_id in sim.ask(RequestKind.RECOVER).text
    sim.start_agent()
    assert_kept(sim)


def test_boosts_go_on_once_the_unknown_volume_was_given_up_by_its_name() -> None:
    sim, volume_id, _ = without_memory()
    assert_kept(sim)
    assert not sim.ask(RequestKind.RECOVER, accepts_loss=True).accepted
    assert sim.ask(RequestKind.RECOVER, accepts_loss=True, volume_id=volume_id).accepted
    in_phase(sim, Phase.BOOSTING)
    sim.start_agent()
    sim.ask(RequestKind.FLUSH)
    sim.run_for(60)
    assert not has_fault(sim, FaultKind.MAY_LACK_DATA)
    assert volume_id in {v.id for v in sim.world.provider.existing()}


@pytest.mark.parametrize("is_second", [False, True], ids=["alone", "the second one of its purchase"])
def test_the_unknown_volume_is_billed_for_as_long_as_the_cloud_lists_it(tmp_path: Path, is_second: bool) -> None:
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        sim, volume_id, _ = without_memory(QUIET)
        if is_second:
            token, wall = sim.world.provider.volumes[volume_id].token, sim.world.clock.wall()
            ledger.record(cycle(token=token, volume_id=VolumeId("first"), opened_wall=wall, closed_wall=wall), 0.0)
        sim.recorder = CostRecorder(ledger, KERNEL.backing_uuid)  # of the time before the purchase, too
        sim.start_agent()
        in_phase(sim, Phase.FAULTED)
        sim.run_for(1000)
        assert sim.ask(RequestKind.RECOVER, accepts_loss=True, volume_id=volume_id).accepted
        sim.ask(RequestKind.COLLECT)
        sim.run_for(1000)
        volume, wall = sim.world.provider.volumes[volume_id], sim.world.clock.wall()
        agbs = sim.recorder.spend(wall=wall).agbs
    assert agbs == pytest.approx(volume.agbs(sim.world.clock.elapsed()), rel=0.01)


def test_boosts_go_on_soon_after_the_unknown_volume_was_deleted() -> None:
    sim, volume_id, _ = without_memory()
    in_phase(sim, Phase.FAULTED)
    gone = sim.world.provider.volumes[volume_id]
    gone.state, gone.deleted_at = VolumeState.GONE, sim.world.clock.elapsed()
    in_phase(sim, Phase.BOOSTING, 150)


def found_clean(load: Segment = QUIET) -> tuple[Simulation, Any]:
    """The agent is about to release a clean volume of no cycle, as another machine with its identity buys it."""
    sim = machine((Segment(40, 0), load), reconcile_interval_s=20.0)
    sim.run_for(5)
    cloud = sim.world.provider
    found = cloud.volumes[cloud.add_foreign_volume(token="of another machine")]
    found.owner, found.backing_uuid = cloud.account.instance_id, sim.policy.backing_uuid
    found.tag, found.state = VolumeTag.CLEAN, VolumeState.AVAILABLE
    in_phase(sim, Phase.DETACHING)
    return sim, found


def releases(sim: Simulation, volume_id: VolumeId) -> list[str]:
    """What the agent has tried with this volume."""
    intents = (r for r in sim.journal.records() if r["kind"] == "intent" and r["with"].get("volume_id") == volume_id)
    return [r["action"] for r in intents]


@pytest.mark.parametrize("tag", [VolumeTag.DIRTY, VolumeTag.UNKNOWN])
@pytest.mark.parametrize("shown", [VolumeState.AVAILABLE, VolumeState.ATTACHED])
def test_a_volume_that_was_found_clean_and_is_tagged_before_its_release_is_left(
    tag: VolumeTag, shown: VolumeState
) -> None:
    sim, found = found_clean(Segment(1e9, 60))
    found.tag, found.state = tag, shown
    sim.run_for(200)
    assert (found.state, found.tag, releases(sim, found.id)) == (shown, tag, [])
    assert (sim.phase, sim.state.cycle, has_fault(sim, FaultKind.MAY_LACK_DATA)) == (Phase.FAULTED, None, True)
    assert [v.id for v in sim.world.provider.volumes.values()] == [found.id], "none was bought beside it"


def test_no_boost_begins_before_the_cloud_has_listed_what_was_left() -> None:
    sim, found = found_clean()
    found.tag = VolumeTag.DIRTY
    sim.run_until(lambda: sim.phase is Phase.IDLE, 20)
    answer = sim.ask(RequestKind.BOOST)
    assert (answer.accepted, sim.phase) == (False, Phase.IDLE)
    in_phase(sim, Phase.FAULTED)


def test_a_volume_that_was_left_is_released_once_it_is_tagged_clean_again() -> None:
    sim, found = found_clean()
    found.tag = VolumeTag.DIRTY
    in_phase(sim, Phase.FAULTED)
    found.tag = VolumeTag.CLEAN
    assert_at_rest(sim)


def test_right_backing_volume_ends_the_fault_of_a_volume_that_no_cycle_knew() -> None:
    sim, _, right = without_memory(QUIET)
    in_phase(sim, Phase.FAULTED)
    swap_backing(sim, right)
    sim.power_cut()
    in_phase(sim, Phase.BOOSTING)
    sim.ask(RequestKind.FLUSH)
    assert_at_rest(sim)
