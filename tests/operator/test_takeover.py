"""A machine dies while its cache is dirty, and its two volumes are moved to another one: docs/how-to/recover.md."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from elastio.control.exit_codes import Exit
from elastio_testbed.faults import acks
from elastio_testbed.faults.lab import BOOT_S, Lab
from elastio_testbed.image import build_guest_image
from elastio_testbed.machine import DATA, INSTANCE_TYPE
from elastio_testbed.polling import until
from tests.faults.conftest import SEED, Target
from tests.operator.conftest import boost_with_records, end_load, succeed

pytestmark = pytest.mark.guest

COMMAND_S, STATE_S = 600.0, 60.0
# drivers/md/bcache/bcache_ondisk.h: struct cache_sb_disk, BDEV_STATE.
SUPERBLOCK_AT, FLAGS_AT, STATE_SHIFT, DIRTY = 4096, 104, 61, 2


@dataclass(frozen=True)
class Dead:
    """What is known of the machine that died: its cache volume, its writer, and what that was told to be durable.

    `bought`: the volumes that it has bought, of which the last one is its cache.
    """

    lab: Lab
    volume: str
    writer: str
    acknowledged: int
    bought: tuple[str, ...]


def state_on_disk(lab: Lab) -> int:
    """The state in bcache's superblock on the backing volume, to which the kernel writes it with a delay."""
    with lab.guest.vm.files()[lab.guest.serial].open("rb") as volume:
        volume.seek(SUPERBLOCK_AT + FLAGS_AT)
        return int.from_bytes(volume.read(8), "little") >> STATE_SHIFT & 3


@pytest.fixture(scope="module")
def dead(target: Target) -> Dead:
    """A machine without power. EC2 still shows it as an instance that is there."""
    writer = boost_with_records(target)
    volume = target.lab.attached_volume()
    until(lambda: state_on_disk(target.lab) == DIRTY, STATE_S, 0.1)
    target.lab.guest.vm.kill()
    assert state_on_disk(target.lab) == DIRTY, "otherwise only an operator can tell that the cache is not older"
    bought = tuple(v.id for v in target.lab.cloud.volumes())
    return Dead(target.lab, volume, writer, acks.read(target.lab.records)[writer], bought)


@pytest.fixture(scope="module")
def heir(dead: Dead) -> Iterator[Target]:
    """Another machine, with the backing volume of the dead one, and an agent for it."""
    first = dead.lab.guest
    with Lab(build_guest_image(), dead.lab.folder / "heir", SEED, beside=dead.lab) as lab:
        guest = lab.guest
        guest.boot(BOOT_S)
        path = first.vm.files()[first.serial]
        guest.vm.plug(first.serial, path, bytes_per_second=first.cap_bytes_s)
        guest.serial, guest.backing_uuid = first.serial, first.backing_uuid
        guest.instance_id = lab.cloud.add_instance(guest.vm, instance_type=INSTANCE_TYPE)
        lab.write_config()
        lab.install()
        guest.check(["mkdir", "-p", DATA])
        guest.check(["systemctl", "start", "elastiod"], timeout_s=120)
        yield Target(lab, writers=1)  # no writer of its own has the name of the dead one's


def order(heir: Target, volume: str) -> tuple[int, str]:
    return heir.run("elastio", "recover", "--foreign", volume, "--timeout", "240", timeout_s=COMMAND_S)


def test_the_heir_waits_for_the_cache_and_names_it_missing(heir: Target) -> None:
    seen = heir.wait_for(lambda s: s["phase"] == "faulted", "the agent to miss the cache")
    assert seen["fault_kind"] == "cache missing"
    assert heir.lab.device() == "", "nothing is shown without the cache"


def test_a_machine_that_is_only_off_keeps_its_cache(heir: Target, dead: Dead) -> None:
    tags = dead.lab.cloud.volume(dead.volume).tags
    code, output = order(heir, dead.volume)
    assert code == Exit.REFUSED, output
    assert dead.lab.cloud.volume(dead.volume).tags == tags


def test_one_command_drains_and_releases_and_every_acknowledged_record_is_there(heir: Target, dead: Dead) -> None:
    lab = heir.lab
    lab.cloud.terminate(dead.lab.guest.instance_id)
    code, output = order(heir, dead.volume)
    assert code == Exit.OK, output
    lab.wait_for_rest()
    assert [v.id for v in lab.cloud.live_volumes()] == []
    assert tuple(v.id for v in lab.cloud.volumes()) == dead.bought, "no other volume was bought"

    lab.mount()
    succeed(heir, "elastio", "pause")
    found = lab.verify(dead.writer, SEED, dead.acknowledged)
    assert (found["checked"], found["lost"]) == (dead.acknowledged, 0)
    assert heir.state() == "no cache"


def test_the_heir_boosts_with_the_device_as_with_any_other(heir: Target) -> None:
    lab = heir.lab
    succeed(heir, "elastio", "resume")
    boost_with_records(heir)
    end_load(lab)
    assert [v.id for v in lab.cloud.live_volumes()] == []
    assert heir.records_lost() == 0
