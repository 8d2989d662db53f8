"""The simulated cloud: states take time, effects show late, everything is billed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from elastio.core.model import Volume, VolumeSpec, VolumeState
from elastio.errors import ConfigError, QuotaError, RefusedError, TransientError
from elastio.ports import VolumeProvider
from elastio.units import GB, GIB, MIB
from elastio_sim.cloud import CloudTimes
from elastio_sim.faults import FaultPlan
from elastio_sim.provider import SimProvider, open_provider
from elastio_sim.world import SimWorld, WorldSettings
from tests.fixtures.caches import make_cache
from tests.values import present

SPEC = VolumeSpec(10 * GIB, 128.0)


def world_with(spec: str = "nothing") -> SimWorld:
    return SimWorld(WorldSettings(seed=3), faults=FaultPlan.parse(spec))


def wait_for(world: SimWorld, volume: Volume, state: VolumeState, limit_s: float = 60.0) -> None:
    until = world.clock.elapsed() + limit_s
    while world.provider.volumes[volume.id].state is not state:
        assert world.clock.elapsed() < until, f"{volume.id} did not become {state}"
        world.advance(0.25)


def bought(world: SimWorld) -> Volume:
    volume = world.provider.create("t1", SPEC, {})
    wait_for(world, volume, VolumeState.AVAILABLE)
    return volume


def attached(world: SimWorld) -> Volume:
    volume = bought(world)
    world.provider.attach(volume.id)
    wait_for(world, volume, VolumeState.ATTACHED)
    return volume


def test_a_new_volume_shows_late() -> None:
    world = SimWorld(WorldSettings(cloud=CloudTimes(visible=(2.0, 2.0))))
    volume = world.provider.create("t1", SPEC, {})
    assert world.provider.describe(volume.id) is None
    assert world.provider.list_owned() == ()
    world.advance(2.0)
    shown = present(world.provider.describe(volume.id))
    assert (shown.token, shown.backing_uuid) == ("t1", world.settings.kernel.backing_uuid)
    assert world.provider.list_owned() == (shown,)


def test_devices_of_one_machine_share_its_slots_and_the_limit_of_the_account() -> None:
    one, other = world_with(), SimWorld(WorldSettings(seed=4))
    clouds = one.provider, other.provider
    for world, beside in ((one, other), (other, one)):
        world.provider.beside = (beside.provider,)
        world.provider.account = replace(world.provider.account, slots=1, volume_limit=2)
    attached(one)
    late = bought(other)
    with pytest.raises(QuotaError):
        other.provider.attach(late.id)
    for cloud in clouds:
        with pytest.raises(QuotaError):
            cloud.create("t2", SPEC, {})


def test_a_deleted_volume_is_forgotten_after_a_while() -> None:
    world = world_with()
    volume = bought(world)
    world.provider.delete(volume.id)
    wait_for(world, volume, VolumeState.GONE)
    assert world.provider.describe(volume.id) is not None
    world.advance(31.0)
    assert world.provider.describe(volume.id) is None


def test_the_guest_sees_the_disk_before_the_cloud_says_attached() -> None:
    world = world_with()
    volume = bought(world)
    world.provider.attach(volume.id)
    while volume.serial not in world.kernel.disks:
        world.advance(0.05)
    assert world.provider.volumes[volume.id].state is VolumeState.ATTACHING


def test_a_disk_that_shows_only_when_the_attachment_ends_does_show() -> None:
    world = SimWorld(WorldSettings(cloud=CloudTimes(shows_after=1.0)))
    assert attached(world).serial in world.kernel.disks


def test_a_volume_whose_disk_is_in_use_is_busy_until_the_guest_releases_it() -> None:
    world = world_with()
    volume = attached(world)
    cache_set = make_cache(world.host, volume.serial, volume.size_bytes)
    world.provider.detach(volume.id)
    wait_for(world, volume, VolumeState.BUSY)
    world.advance(30.0)
    assert volume.serial in world.kernel.disks
    world.host.release_cache_disk(volume.serial, volume.size_bytes, cache_set)
    wait_for(world, volume, VolumeState.AVAILABLE)
    assert volume.serial not in world.kernel.disks


def test_a_volume_that_does_not_show_yet_counts_as_gone() -> None:
    world = world_with()
    volume = world.provider.create("t1", SPEC, {})
    world.provider.delete(volume.id)
    assert world.provider.volumes[volume.id].deleted_at is None
    while world.provider.describe(volume.id) is None:
        world.advance(0.05)
    with pytest.raises(TransientError):  # it is still being created
        world.provider.delete(volume.id)


def test_an_account_has_a_limit_of_volumes() -> None:
    world = world_with()
    for number in range(world.provider.account.volume_limit):
        world.provider.create(f"t{number}", SPEC, {})
    with pytest.raises(QuotaError):
        world.provider.create("one too many", SPEC, {})


@pytest.mark.parametrize(
    ("step_bytes", "wanted_bytes", "size_bytes"), [(GIB, 10 * GB, 10 * GIB), (9 * MIB, 10 * MIB, 18 * MIB)]
)
def test_sizes_are_sold_in_steps_of_the_account(step_bytes: int, wanted_bytes: int, size_bytes: int) -> None:
    world = SimWorld(WorldSettings(size_step_bytes=step_bytes))
    spec = VolumeSpec(wanted_bytes, 128.0)
    assert world.provider.quote(spec).spec.size_bytes == size_bytes
    assert world.provider.create("t1", spec, {}).size_bytes == size_bytes


def test_the_bill_runs_from_purchase_to_deletion() -> None:
    world = world_with()
    volume = world.provider.create("t1", VolumeSpec(10 * GIB, 100.0), {})
    world.advance(50.0)
    expected = 100.0 * (10 * GIB / GB) * 50.0
    assert world.provider.bill_agbs() == pytest.approx(expected)
    world.provider.delete(volume.id)
    world.advance(100.0)
    assert world.provider.bill_agbs() == pytest.approx(expected)


def test_deleting_a_volume_with_dirty_data_really_loses_it() -> None:
    world = world_with()
    volume = attached(world)
    world.host.tune_backing()
    cache_set = make_cache(world.host, volume.serial, volume.size_bytes)
    world.host.attach_cache_set(cache_set, volume.serial, flush_mb_s=0.0)
    world.advance(1.0)
    world.kernel.bcache.written(7, 1, world.kernel.bcache.route(7))
    world.vanish()
    assert world.lost() == frozenset()
    world.provider.delete(volume.id)
    assert world.lost() == frozenset({7})


def test_a_stuck_attachment_ends_late_and_can_be_given_up() -> None:
    world = world_with("attach#1=stuck:30")
    volume = bought(world)
    world.provider.attach(volume.id)
    world.advance(15.0)
    assert world.provider.volumes[volume.id].state is VolumeState.ATTACHING
    world.provider.detach(volume.id)
    wait_for(world, volume, VolumeState.AVAILABLE)
    world.advance(60.0)
    assert world.provider.volumes[volume.id].state is VolumeState.AVAILABLE
    assert volume.serial not in world.kernel.disks


def test_a_volume_may_end_in_error() -> None:
    world = world_with("create#1=volume_error")
    volume = world.provider.create("t1", SPEC, {})
    wait_for(world, volume, VolumeState.ERROR)
    with pytest.raises(RefusedError):
        world.provider.attach(volume.id)
    world.provider.delete(volume.id)
    wait_for(world, volume, VolumeState.GONE)
    assert world.volumes_left() == 0


def test_a_wrong_disk_may_appear_beside_the_right_one() -> None:
    world = world_with("attach#1=wrong_device")
    volume = attached(world)
    others = [d for d in world.kernel.disks.values() if d.serial != volume.serial]
    assert [(d.size_bytes, d.signature) for d in others] == [(volume.size_bytes, "ext4")]


def test_the_same_seed_gives_the_same_delays() -> None:
    def delays(seed: int) -> list[float]:
        world = SimWorld(WorldSettings(seed=seed))
        volume = attached(world)
        return [world.clock.elapsed(), world.provider.volumes[volume.id].settled_at]

    assert delays(1) == delays(1)
    assert delays(1) != delays(2)


def test_a_provider_of_its_own_moves_on_while_it_is_asked() -> None:
    provider: VolumeProvider = open_provider({"seed": 1}, "backing")
    assert provider.identify().cloud == "sim"
    volume = provider.create("t1", SPEC, {})
    for _ in range(100):
        shown = provider.describe(volume.id)
        if shown is not None and shown.state is VolumeState.AVAILABLE:
            break
    assert shown is not None
    assert shown.state is VolumeState.AVAILABLE
    assert shown.backing_uuid == "backing"


@pytest.mark.parametrize(
    "settings",
    [{"colour": 1}, {"seed": "x"}, {"faults": 3}, {"faults": "create#0=hang"}, {"backing_mb_s": -1}],
    ids=str,
)
def test_wrong_settings_name_the_key(settings: dict[str, object]) -> None:
    opener: Callable[..., SimProvider] = open_provider
    with pytest.raises(ConfigError):
        opener(settings, "backing")
