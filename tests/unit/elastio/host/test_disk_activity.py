"""Counters of disks from a recorded /proc and /sys."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from elastio.errors import HostError
from elastio.host.blockdev import disk_of
from elastio.host.disk_activity import DiskActivity, disk_below, lies_on
from elastio.host.sysfs import Sysfs
from elastio.strategy.waits import DiskCount

LINES = """\
 254       0 vda 10 1 200 5 20 2 400 9 0 1500 14 0 0 0 0 3 1
 254       1 vda1 1 1 1 1 1 1 1 1 0 1 1 0 0 0 0 0 0
 254      16 vdb 1 0 8 1 1 0 8 1 0 250 2 0 0 0 0 0 0
   7       0 loop0 1 0 8 1 1 0 8 1 0 999 2 0 0 0 0 0 0
 253       0 dm-0 5 0 80 1 5 0 80 1 0 700 2 0 0 0 0 0 0
"""


@pytest.fixture
def sysfs(tmp_path: Path) -> Sysfs:
    """vda with a partition, vdb with the logical volume dm-0 on it, and a loop device."""
    (tmp_path / "proc/pressure").mkdir(parents=True)
    (tmp_path / "proc/diskstats").write_text(LINES)
    for name in ("vda", "vdb", "loop0", "dm-0"):
        (tmp_path / f"sys/block/{name}/slaves").mkdir(parents=True)
    (tmp_path / "sys/block/dm-0/slaves/vdb").mkdir()
    part = tmp_path / "sys/devices/pci0/virtio1/block/vda/vda1"
    part.mkdir(parents=True)
    (part / "partition").write_text("1\n")
    (tmp_path / "sys/class/block").mkdir(parents=True)
    (tmp_path / "sys/class/block/vda1").symlink_to("../../devices/pci0/virtio1/block/vda/vda1")
    return Sysfs(tmp_path)


def test_a_partition_stands_for_its_disk(sysfs: Sysfs) -> None:
    assert disk_of(sysfs, "vda1") == "vda"
    assert disk_of(sysfs, "vda") == "vda"
    assert DiskActivity(sysfs, "vda1").name == "vda"


def test_bytes_requests_and_busy_seconds_are_those_of_the_disk(sysfs: Sysfs) -> None:
    own, others = DiskActivity(sysfs, "vda").read()
    assert own == DiskCount(600 * 512, 30, 1.5, 400 * 512)
    assert others == {"vdb": 0.25}


def test_what_a_device_lies_on_is_not_another_disk(sysfs: Sysfs) -> None:
    assert lies_on(sysfs, "dm-0") == {"dm-0", "vdb"}
    assert DiskActivity(sysfs, "dm-0").read()[1] == {"vda": 1.5}


def test_the_disk_below_a_loop_device_is_busy_with_it(sysfs: Sysfs, tmp_path: Path) -> None:
    file = tmp_path / "image"
    file.touch()
    sysfs.path("sys/block/loop0/loop").mkdir()
    sysfs.path("sys/block/loop0/loop/backing_file").write_text(f"{file}\n")
    assert lies_on(sysfs, "loop0") == {"loop0"}
    number = file.stat().st_dev
    (tmp_path / "sys/dev/block").mkdir(parents=True)
    (tmp_path / f"sys/dev/block/{os.major(number)}:{os.minor(number)}").symlink_to("../../block/vdb")
    assert lies_on(sysfs, "loop0") == {"loop0", "vdb"}
    assert DiskActivity(sysfs, "loop0").read()[1] == {"vda": 1.5}


def test_a_disk_that_vanishes_is_an_error_with_a_sentence(sysfs: Sysfs) -> None:
    disk = DiskActivity(sysfs, "vdb")
    sysfs.path("proc/diskstats").write_text(LINES.splitlines()[0])
    with pytest.raises(HostError) as refused:
        disk.read()
    assert refused.value.code == "device.gone"


def test_the_disk_of_a_folder_is_found_by_its_number(sysfs: Sysfs, tmp_path: Path) -> None:
    with pytest.raises(HostError) as refused:
        disk_below(sysfs, tmp_path)
    assert refused.value.code == "device.unknown"
    number = tmp_path.stat().st_dev
    (tmp_path / "sys/dev/block").mkdir(parents=True)
    link = tmp_path / f"sys/dev/block/{os.major(number)}:{os.minor(number)}"
    link.symlink_to("../../devices/pci0/virtio1/block/vda/vda1")
    assert disk_below(sysfs, tmp_path) == "vda"
