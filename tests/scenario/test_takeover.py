"""A machine dies with a dirty cache, and its backing volume is moved: the second machine takes the cache over.

The second machine begins with an empty journal and an empty ledger. It is killed before and after each record, each
effect and each outcome; the same order is given again after each start.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import pytest

from elastio.core.model import RequestKind, Serial, VolumeId, VolumeSpec, VolumeState, VolumeTag
from elastio.core.state import Answer, FaultKind, Phase
from elastio.units import GIB
from elastio_sim.disk import CacheContent, SimDisk
from elastio_sim.faults import Fault, FaultMode, FaultPlan
from elastio_sim.run import Simulation, ignore
from elastio_sim.workload import Segment
from elastio_sim.world import SimWorld
from tests.crash.branches import Branches
from tests.simulated import QUIET, in_phase, intents, machine, path
from tests.values import OTHER_SET

SECOND = "i-0000000000000002"
LOAD = (Segment(2, 0), Segment(25, 60), QUIET)
DIRTY_BLOCKS = 20


class Died(BaseException):
    """The agent of the second machine is killed here."""


class Moved:
    """Two machines. The first one bought `volume` and died while it was dirty."""

    def __init__(self, *, is_gone: bool = True, dirty_blocks: int = DIRTY_BLOCKS) -> None:
        first = machine(LOAD)
        in_phase(first, Phase.BOOSTING)
        first.run_until(lambda: len(first.world.lost(without=_cache_serial(first))) > dirty_blocks, 60.0)
        self.world: SimWorld = first.world
        if dirty_blocks:
            self.world.kernel.fsync()  # an application syncs: the superblock on the disk says dirty, too
        self.volume = next(v.id for v in self.world.provider.existing())
        first.kill_agent()
        self.world.move(SECOND, is_gone=is_gone)
        self.policy, self._point = first.policy, ignore

    def second(self, point: Callable[[str], None] = ignore) -> Simulation:
        """The second machine's agent, which finds the device without its cache."""
        sim = Simulation(self.world, self.policy, point=point)
        sim.on_step = lambda: self._check(sim)
        return sim

    def _check(self, sim: Simulation) -> None:
        assert not self.world.lost(), sim.standing()
        assert not self.world.kernel.bcache.harm(), sim.standing()
        assert not sim.state.is_stopped, sim.standing()
        if not self.world.volumes_left():
            assert not self.world.lost(power_cut=True), sim.standing()

    def attach_by_hand(self) -> None:
        """An operator attaches the cache volume to the second machine; udev assembles the device."""
        cloud = self.world.provider.volumes[self.volume]
        cloud.state, cloud.plugged = VolumeState.ATTACHED, True
        self.world.kernel.plug(self.world.kernel.away[cloud.serial])


def _cache_serial(sim: Simulation) -> Serial | None:
    disk = sim.world.kernel.cache_disk()
    return None if disk is None else disk.serial


def serial_of(moved: Moved) -> Serial:
    return moved.world.provider.volumes[moved.volume].serial


def order(sim: Simulation, volume: VolumeId, *, accepts_loss: bool = False) -> Answer:
    return sim.ask(RequestKind.RECOVER, volume_id=volume, is_foreign=True, accepts_loss=accepts_loss)


def order_and_rest(sim: Simulation, volume: VolumeId) -> None:
    order(sim, volume)
    sim.run_until_settled(900.0)


def faulted(sim: Simulation) -> None:
    sim.run_until(lambda: sim.phase is Phase.FAULTED and sim.state.owned is not None, 60.0)


def at_rest(moved: Moved, sim: Simulation) -> None:
    """Everything that the first machine acknowledged is on the backing volume, and nothing is paid for."""
    sim.run_until_settled(900.0)
    assert (sim.phase, moved.world.volumes_left()) == (Phase.IDLE, 0)
    assert not moved.world.lost(power_cut=True)
    assert moved.world.kernel.bcache.sb_set is None


@cache
def _just_moved() -> Moved:
    return Moved()


def just_moved() -> Moved:
    """The same two machines at the same instant each time, without playing how they came there again."""
    return deepcopy(_just_moved())


@pytest.fixture
def moved() -> Moved:
    return just_moved()


def test_two_machines_are_the_same_however_often_they_are_used(moved: Moved) -> None:
    sim = moved.second()
    faulted(sim)
    order(sim, moved.volume)
    at_rest(moved, sim)
    again, played = just_moved(), Moved()
    assert again.world.volumes_left() == 1
    assert again.world.clock.elapsed() == played.world.clock.elapsed() < moved.world.clock.elapsed()
    assert len(again.world.lost(without=serial_of(again))) == len(played.world.lost(without=serial_of(played)))


def test_cache_is_attached_flushed_and_deleted_by_one_order(moved: Moved) -> None:
    sim = moved.second()
    faulted(sim)
    assert sim.state.fault is not None
    assert sim.state.fault.kind is FaultKind.CACHE_MISSING
    assert moved.world.lost(without=serial_of(moved))
    assert order(sim, moved.volume).accepted
    at_rest(moved, sim)
    assert path(sim) == ["idle", "faulted", "flushing", "detaching", "idle"]
    assert intents(sim, "TakeOverVolume") == 1


def test_cache_that_is_attached_already_is_flushed_and_deleted(moved: Moved) -> None:
    moved.attach_by_hand()
    sim = moved.second()
    faulted(sim)
    assert sim.state.fault is not None
    assert sim.state.fault.kind is FaultKind.FOREIGN_CACHE
    assert order(sim, moved.volume).accepted
    at_rest(moved, sim)
    assert path(sim) == ["idle", "faulted", "flushing", "detaching", "idle"]


def test_device_that_is_assembled_while_the_agent_is_faulted_is_tuned_before_the_order(moved: Moved) -> None:
    """Applications may use it, and with the kernel's settings a read could be stale."""
    sim = moved.second()
    faulted(sim)
    moved.attach_by_hand()
    moved.world.kernel.bcache.tuned = False  # as the kernel registers a device
    sim.run_until(lambda: moved.world.kernel.bcache.tuned, 60.0)
    assert (sim.phase, intents(sim, "TakeOverVolume")) == (Phase.FAULTED, 0)


@dataclass(frozen=True)
class Death:
    """The agent dies at the point of this number after the order."""

    number: int


def ordered(point: Callable[[str], None], *, by_hand: bool) -> tuple[Moved, Simulation]:
    """The second machine, whose agent passes `point` from the order on."""
    is_ordered = [False]
    moved = just_moved()
    if by_hand:
        moved.attach_by_hand()
    sim = moved.second(lambda name: point(name) if is_ordered[0] else None)
    faulted(sim)
    is_ordered[0] = True
    return moved, sim


@pytest.mark.parametrize("by_hand", [False, True], ids=["detached", "attached"])
@pytest.mark.parametrize("ends", ["killed", "power cut"])
def test_agent_that_dies_anywhere_goes_on_with_the_same_order(by_hand: bool, ends: str, tmp_path: Path) -> None:
    seen: list[str] = []
    moved, sim = ordered(seen.append, by_hand=by_hand)
    order(sim, moved.volume)
    at_rest(moved, sim)

    def die(death: Death, point: str) -> None:
        raise Died(point)

    deaths = [Death(number) for number in range(len(seen))]
    branches = Branches[Death, str](deaths, die, lambda death, why: f"{death}: {why}", tmp_path)

    def run() -> list[str]:
        moved, sim = ordered(branches, by_hand=by_hand)
        with pytest.raises(Died) as died:
            order_and_rest(sim, moved.volume)
        sim.power_cut() if ends == "power cut" else sim.start_agent()
        sim.run_until(lambda: sim.state.recovered and sim.state.owned is not None, 120.0)
        if moved.world.volumes_left():
            order(sim, moved.volume)
        at_rest(moved, sim)
        return [str(died.value)]

    assert branches.play(run) == seen


# --- what is refused -----------------------------------------------------------------------------------------


def unchanged(moved: Moved, sim: Simulation, volume: VolumeId, code: str) -> None:
    """The order is refused at once or by the executor, and neither the cloud nor the kernel has changed."""
    kept = {v.id: (v.owner, v.tag, v.state) for v in moved.world.provider.volumes.values()}
    disks = {d.serial: (d.superblock, d.registered) for d in moved.world.kernel.disks.values()}
    answer = order(sim, volume)
    sim.run_for(60.0)
    refused = answer.code if not answer.accepted else sim.state.take_over and sim.state.take_over.code
    assert refused == code, sim.standing()
    assert {v.id: (v.owner, v.tag, v.state) for v in moved.world.provider.volumes.values()} == kept
    assert {d.serial: (d.superblock, d.registered) for d in moved.world.kernel.disks.values()} == disks
    assert intents(sim, "AttachVolume") == 0


def test_volume_of_a_machine_that_still_exists_is_left_to_it() -> None:
    moved = Moved(is_gone=False)
    sim = moved.second()
    faulted(sim)
    unchanged(moved, sim, moved.volume, "volume.owner")


def test_cache_of_another_backing_device_is_left_alone(moved: Moved) -> None:
    moved.world.provider.volumes[moved.volume].backing_uuid = "another"
    sim = moved.second()
    faulted(sim)
    unchanged(moved, sim, moved.volume, "volume.backing")


def test_volume_of_nobody_is_left_alone(moved: Moved) -> None:
    sim = moved.second()
    faulted(sim)
    unchanged(moved, sim, moved.world.provider.add_foreign_volume(), "volume.backing")
    unchanged(moved, sim, VolumeId("vol-unknown"), "volume.unknown")


def test_other_volume_of_the_dead_machine_is_not_taken_for_the_attached_cache(moved: Moved) -> None:
    first = moved.world.provider.volumes[moved.volume]
    moved.attach_by_hand()
    sim = moved.second()
    faulted(sim)
    other = moved.world.provider.add_foreign_volume()
    moved.world.provider.volumes[other].owner = first.owner
    moved.world.provider.volumes[other].backing_uuid = first.backing_uuid
    unchanged(moved, sim, other, "volume.other_set")


def test_older_cache_of_the_same_device_is_attached_and_never_used(moved: Moved) -> None:
    """Only its superblock tells it from the right one. It stays the operator's, and the right one is named then."""
    first, world = moved.world.provider.volumes[moved.volume], moved.world
    other = world.provider.volumes[world.provider.add_foreign_volume(2 * GIB)]
    other.owner, other.backing_uuid = first.owner, first.backing_uuid
    content = CacheContent(other.size_bytes, world.kernel.settings.block_bytes)
    older = SimDisk(other.serial, other.size_bytes, 80.0, superblock=OTHER_SET, content=content)
    world.kernel.away[other.serial] = older
    sim = moved.second()
    faulted(sim)
    assert order(sim, other.id).accepted
    sim.run_until(lambda: other.state is VolumeState.ATTACHED, 60.0)
    sim.run_for(30.0)
    assert (sim.phase, other.tag, world.kernel.bcache.cache_set) == (Phase.FAULTED, VolumeTag.DIRTY, None)
    assert order(sim, moved.volume).accepted
    sim.run_until(lambda: first.state is VolumeState.GONE, 600.0)
    assert not world.lost(power_cut=True)
    assert (other.state, older.superblock) == (VolumeState.ATTACHED, OTHER_SET)


def test_nothing_is_taken_over_without_need(moved: Moved) -> None:
    sim = machine(LOAD)
    sim.run_until(lambda: sim.state.recovered and sim.state.owned is not None, 60.0)
    answer = order(sim, VolumeId("vol-1"))
    assert (answer.accepted, answer.code, sim.state.take_over) == (False, "recover.nothing", None)
    in_phase(sim, Phase.BOOSTING)
    own = next(v.id for v in sim.world.provider.existing())
    assert order(sim, own).code == "agent.busy"
    assert sim.phase is Phase.BOOSTING


def test_clean_cache_is_used_only_if_the_operator_accepts_that_it_may_be_older(moved: Moved) -> None:
    moved.world.kernel.bcache.sb_dirty = False
    sim = moved.second()
    faulted(sim)
    unchanged(moved, sim, moved.volume, "recover.may-be-older")
    assert order(sim, moved.volume, accepts_loss=True).accepted
    at_rest(moved, sim)


def test_cache_is_not_given_up_by_who_does_not_know_why_the_superblock_says_clean() -> None:
    """The machine died before its superblock said dirty: the dead machine's volume has the only copy."""
    moved = Moved(dirty_blocks=0)
    assert not moved.world.kernel.bcache.sb_dirty
    lost = moved.world.lost(without=serial_of(moved))
    assert lost
    sim = moved.second()
    faulted(sim)
    unchanged(moved, sim, moved.volume, "recover.may-be-older")
    answer = sim.ask(RequestKind.RECOVER, accepts_loss=True)
    assert (answer.accepted, answer.code) == (False, "recover.volume_id")
    assert moved.volume in answer.text
    sim.run_for(60.0)
    assert (sim.phase, intents(sim, "StartWithoutCache"), sim.state.loss_accepted_for) == (Phase.FAULTED, 0, "")
    assert order(sim, moved.volume, accepts_loss=True).accepted
    at_rest(moved, sim)


def test_dead_machines_cache_is_given_up_by_its_name_or_once_it_is_gone(moved: Moved) -> None:
    for named in (moved.volume, None):
        again = just_moved()
        sim = again.second()
        sim.on_step = lambda: None  # what only the cache had is lost
        faulted(sim)
        sim.run_for(5.0)
        if named is None:
            again.world.provider.volumes[moved.volume].state = VolumeState.DELETING
            sim.run_for(90.0)
        assert sim.ask(RequestKind.RECOVER, accepts_loss=True, volume_id=named).accepted
        in_phase(sim, Phase.IDLE)


def test_cloud_that_does_not_list_other_owners_lets_nothing_be_given_up_without_a_name(moved: Moved) -> None:
    moved.world.provider.calls.faults = FaultPlan([Fault("list_for_backing", FaultMode.THROTTLE, calls=0)])
    sim = moved.second()
    faulted(sim)
    sim.run_for(30.0)
    assert sim.ask(RequestKind.RECOVER, accepts_loss=True).code == "cloud.unlisted"
    assert order(sim, moved.volume).accepted
    at_rest(moved, sim)


def test_provider_that_proves_nothing_takes_nothing_over(moved: Moved) -> None:
    moved.world.provider.volumes[moved.volume].owner = ""
    sim = moved.second()
    faulted(sim)
    unchanged(moved, sim, moved.volume, "volume.owner")


def test_spec_of_a_volume_that_was_taken_over_is_what_was_bought(moved: Moved) -> None:
    sim = moved.second()
    faulted(sim)
    order(sim, moved.volume)
    sim.run_until(lambda: sim.state.cycle is not None, 60.0)
    assert sim.state.cycle is not None
    sold = moved.world.provider.volumes[moved.volume].spec
    assert replace(sim.state.cycle.spec, iops=sold.iops) == VolumeSpec(sold.size_bytes, sold.bandwidth_mb_s, sold.iops)
