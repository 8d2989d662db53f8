"""Set-up and agent have one rule for what can be a backing device: a disk of the cloud, or a partition of one."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from elastio.config.schema import Config, parse
from elastio.errors import ConfigError, NotOursError
from elastio.host import blockdev
from elastio.host.bcache import BcacheHost
from elastio.host.failed_cache import find_unregistered_backing
from elastio.host.view import find_backing, find_backings
from elastio_setup.candidates import all_candidates, candidates, choose
from elastio_setup.check_result import Machine
from elastio_setup.device_checks import device as check
from elastio_setup.format_backing import verify
from elastio_setup.plan import Wanted
from elastio_setup.survey import survey
from tests.fixtures.device_mapper import STATUS
from tests.fixtures.errors import refused
from tests.fixtures.least_configuration import least
from tests.fixtures.sysfs_tree import (
    BACKING_BYTES,
    BACKING_KNOBS,
    BACKING_UUID,
    Kernel,
    Programs,
    build,
    superblock_bytes,
)

DISKS = ("vdb", "nvme1n1", "sdc", "xvdf")
VIRTUAL = ("md127", "dm-3", "loop0")


@pytest.fixture
def kernel(tmp_path: Path) -> Kernel:
    """A machine without a backing device."""
    made = Kernel(tmp_path)
    made.block("vda", 2**33, "254:0")
    made.lay("proc/self/mountinfo", "22 1 254:1 / / rw - ext4 /dev/vda1 rw")
    made.lay("sys/fs/bcache/register_quiet", "")
    return made


def lay(kernel: Kernel, device: str, number: int = 0) -> None:
    """A registered backing device that runs."""
    kernel.block(device, BACKING_BYTES, f"9:{number}", superblock_bytes(1))
    for name, value in BACKING_KNOBS.items():
        kernel.lay(f"sys/block/{device}/bcache/{name}", value)
    kernel.lay(f"sys/block/bcache{number}/dev", f"251:{number}")
    kernel.tie(f"sys/block/{device}/bcache/dev", f"sys/block/bcache{number}")
    kernel.tie(f"sys/block/bcache{number}/bcache", f"sys/block/{device}/bcache")
    kernel.tie(f"sys/class/block/{device}", f"sys/block/{device}")


def config() -> Config:
    return parse(least("aws", uuid=BACKING_UUID, bandwidth_mb_s=60))


@pytest.mark.parametrize("device", [*DISKS, *VIRTUAL])
def test_what_set_up_configures_the_agent_finds(device: str, kernel: Kernel) -> None:
    lay(kernel, device)
    expected = [device] if device in DISKS else []
    assert [c.device for c in candidates(kernel)] == expected
    assert [b.device for b in find_backings(kernel, BACKING_UUID)] == expected
    assert [c.device for c in all_candidates(kernel)] == [device]


@pytest.mark.parametrize("device", VIRTUAL)
@pytest.mark.parametrize("wanted", [None, BACKING_UUID, "/dev/bcache0"])
def test_a_virtual_device_is_refused_by_init_with_the_reason(device: str, wanted: str | None, kernel: Kernel) -> None:
    lay(kernel, device)
    with refused(ConfigError, "device.virtual"):
        choose(all_candidates(kernel), wanted)


def compose(kernel: Kernel, volume: str) -> None:
    """dm-3 is composed of a head on vdh and a volume."""
    lay(kernel, "dm-3")
    kernel.block("vdh", 2**24, "254:96")
    kernel.tie("sys/dev/block/254:96", "sys/block/vdh")
    kernel.tie("sys/class/block/vdh", "sys/block/vdh")
    kernel.tie("sys/dev/block/254:80", f"sys/class/block/{volume}")
    rows = [(0, 2048, "254:96", 8192), (2048, BACKING_BYTES // 512, "254:80", 0)]
    kernel.create("dm-3", "elastio-5a3f0c1e", "ELASTIO-5a3f0c1e", [])
    kernel._change("elastio-5a3f0c1e", live=rows)


@pytest.mark.parametrize("volume", ["vdf", "vdf1", "dm-7"])
def test_the_disk_below_an_adopted_volume_is_the_one_with_the_queue_and_the_serial(volume: str, kernel: Kernel) -> None:
    kernel.block("vdf", BACKING_BYTES, "254:80")
    kernel.tie("sys/class/block/vdf", "sys/block/vdf")
    kernel.lay("sys/block/vdf/vdf1/partition", 1)
    kernel.tie("sys/class/block/vdf1", "sys/block/vdf/vdf1")
    kernel.lay("sys/block/dm-7/dm/uuid", "LVM-x")
    kernel.tie("sys/class/block/dm-7", "sys/block/dm-7")
    kernel.tie("sys/block/dm-7/slaves/vdf1", "sys/block/vdf/vdf1")
    compose(kernel, volume)
    (found,) = find_backings(kernel, BACKING_UUID)
    assert (found.disk, found.device, found.adaptive) == ("vdf", "dm-3", "bcache0")
    assert choose(all_candidates(kernel), "/dev/bcache0").device == "dm-3"


def test_whoever_may_not_ask_for_a_table_sees_the_disk_that_is_large_enough(kernel: Kernel) -> None:
    kernel.block("vdf", BACKING_BYTES, "254:80")
    kernel.tie("sys/class/block/vdf", "sys/block/vdf")
    compose(kernel, "vdf")
    kernel.lay("sys/block/dm-3/size", 2048 + BACKING_BYTES // 512)
    for name in ("vdf", "vdh"):
        kernel.tie(f"sys/block/dm-3/slaves/{name}", f"sys/block/{name}")
    kernel.refused[STATUS] = errno.EACCES
    (found,) = find_backings(kernel, BACKING_UUID)
    assert (found.disk, found.why_not) == ("vdf", "")
    kernel.lay("sys/block/vdh/size", 2048 + BACKING_BYTES // 512)
    assert find_backings(kernel, BACKING_UUID) == (), "which of the two it is, is not known"


def test_an_adopted_volume_on_several_disks_is_not_used(kernel: Kernel) -> None:
    kernel.lay("sys/block/dm-7/dm/uuid", "LVM-x")
    kernel.tie("sys/class/block/dm-7", "sys/block/dm-7")
    for disk in ("vdf", "vdg"):
        kernel.block(disk, BACKING_BYTES, "254:80")
        kernel.tie(f"sys/block/dm-7/slaves/{disk}", f"sys/block/{disk}")
    compose(kernel, "dm-7")
    with refused(ConfigError, "device.virtual"):
        choose(all_candidates(kernel), None)
    assert (candidates(kernel), find_backings(kernel, BACKING_UUID)) == ((), ())


@pytest.mark.parametrize(
    "wanted",
    [
        BACKING_UUID, BACKING_UUID.upper(), "vdb", "/dev/vdb", "/dev/./vdb", "/dev//vdb", "bcache0", "/dev/bcache0",
        f"/dev/bcache/by-uuid/{BACKING_UUID}", f"/dev/bcache/by-uuid/{BACKING_UUID.upper()}",
        "/dev/disk/by-id/virtio-1", "/dev/mapper/alias", "/srv", "/srv/",
    ],
)  # fmt: skip
def test_a_device_has_many_names(wanted: str, kernel: Kernel) -> None:
    lay(kernel, "vdb")
    lay(kernel, "vdc", 1)
    kernel.lay("sys/block/vdc/bcache/backing_dev_uuid", BACKING_UUID[::-1])
    kernel.lay("proc/self/mountinfo", "22 1 251:0 / /srv rw - ext4 /dev/bcache0 rw")
    kernel.tie("dev/disk/by-id/virtio-1", "dev/vdb")
    kernel.node("bcache0")
    kernel.tie("dev/mapper/alias", "dev/bcache0")
    assert choose(all_candidates(kernel), wanted, kernel).device == "vdb"


@pytest.mark.parametrize(
    "wanted", ["", "/", "/dev", "vd", f"/dev/disk/by-uuid/{BACKING_UUID}", BACKING_UUID[:-1], "/sr"]
)
def test_a_part_of_a_name_is_no_name(wanted: str, kernel: Kernel) -> None:
    lay(kernel, "vdb")
    with refused(ConfigError, "device.unknown"):
        choose(all_candidates(kernel), wanted, kernel)


def test_beside_a_virtual_device_the_volume_is_chosen(kernel: Kernel) -> None:
    lay(kernel, "vdb")
    lay(kernel, "dm-3", 1)
    kernel.lay("sys/block/dm-3/bcache/backing_dev_uuid", "another")
    assert choose(all_candidates(kernel), None).device == "vdb"


@pytest.mark.parametrize("device", [*VIRTUAL, "loop0p1", "md127p1", "zram0", "ram0"])
def test_a_virtual_device_is_not_formatted_even_by_force(device: str, kernel: Kernel) -> None:
    kernel.block(device, BACKING_BYTES, "9:127")
    kernel.tie(f"sys/class/block/{device}", f"sys/block/{device}")
    programs = Programs(kernel)
    with refused(NotOursError, "device.virtual"):
        verify(kernel.path(f"dev/{device}"), kernel, programs, is_forced=True)
    assert programs.ran == []


@pytest.mark.parametrize("device", VIRTUAL)
def test_setup_and_doctor_refuse_one_that_exists(device: str, kernel: Kernel, tmp_path: Path) -> None:
    lay(kernel, device)
    with refused(NotOursError, "device.virtual"):
        survey(Wanted(kernel.path(f"dev/{device}"), tmp_path / "data", tmp_path / "a.toml"), kernel, Programs(kernel))
    assert [result.code for result in check(Machine(kernel), config())] == ["virtual"]


@pytest.mark.parametrize("device", VIRTUAL)
def test_a_copy_on_a_virtual_device_is_a_duplicate(device: str, tmp_path: Path) -> None:
    """A snapshot in LVM, or an image on a loop device: nobody can tell which of the two is the copy."""
    tree = build(tmp_path)
    lay(tree.kernel, device, 1)
    with pytest.raises(NotOursError):
        find_backing(tree.kernel, BACKING_UUID)
    seen = BcacheHost(BACKING_UUID, tree.kernel, run=tree.programs).scan(())
    assert (seen.backing, set(seen.duplicates)) == (None, {"vdb", device})


@pytest.mark.parametrize("device", VIRTUAL)
def test_an_unregistered_backing_device_is_only_registered_on_a_disk(device: str, kernel: Kernel) -> None:
    kernel.block(device, BACKING_BYTES, "9:127", superblock_bytes(1))
    assert find_unregistered_backing(kernel, BACKING_UUID) == ""
    kernel.block("vdb", BACKING_BYTES, "254:16", superblock_bytes(1))
    assert find_unregistered_backing(kernel, BACKING_UUID) == "", "one of the two is a copy"
    kernel.node(device)
    assert find_unregistered_backing(kernel, BACKING_UUID) == "vdb"


def test_a_cache_disk_and_a_backing_device_have_the_same_rule() -> None:
    assert all(blockdev.why_no_backing(name) for name in blockdev.NO_DISKS)
    assert not any(blockdev.why_no_backing(name) for name in DISKS)
