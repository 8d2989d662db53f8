"""Limits of cgroups on a disk, from a recorded /proc and /sys."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from elastio.host.disk_activity import limits_of_cgroup, limits_of_process
from elastio.host.sysfs import Sysfs
from elastio.strategy.account import Limit


@pytest.fixture
def sysfs(tmp_path: Path) -> Sysfs:
    """vdb is 254:16; the process is in a/b of version 2, and in c of version 1."""
    write(tmp_path, "sys/block/vdb/dev", "254:16")
    write(tmp_path, "proc/10/cgroup", "12:cpu,cpuacct:/x\n7:blkio:/c\n1:name=systemd:/y\n0::/a/b")
    return Sysfs(tmp_path)


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")


@pytest.mark.parametrize("root", ["sys/fs/cgroup", "sys/fs/cgroup/unified"])
def test_limits_of_a_group_and_of_those_above_it_hold(root: str, sysfs: Sysfs) -> None:
    write(sysfs.root, f"{root}/a/b/io.max", "254:0 wbps=1 rbps=1\n254:16 rbps=max wbps=8000000 riops=5 wiops=max")
    write(sysfs.root, f"{root}/a/io.max", "254:16 rbps=4000000 wbps=max riops=max wiops=max")
    write(sysfs.root, f"{root}/x/io.max", "254:16 rbps=1 wbps=1 riops=max wiops=max")
    found = (Limit("a/b", math.inf, 8.0), Limit("a", 4.0, math.inf))
    assert limits_of_process(sysfs, "vdb", 10) == found
    assert limits_of_cgroup(sysfs, "vdb", "a/b") == found


def test_limits_of_version_1_are_two_files(sysfs: Sysfs) -> None:
    write(sysfs.root, "sys/fs/cgroup/blkio/c/blkio.throttle.write_bps_device", "254:0 1\n254:16 8000000")
    write(sysfs.root, "sys/fs/cgroup/blkio/c/blkio.throttle.read_bps_device", "")
    assert limits_of_process(sysfs, "vdb", 10) == (Limit("c", math.inf, 8.0),)
    write(sysfs.root, "sys/fs/cgroup/blkio/c/blkio.throttle.read_bps_device", "254:16 2000000")
    assert limits_of_process(sysfs, "vdb", 10) == (Limit("c", 2.0, 8.0),)


@pytest.mark.parametrize(
    ("disk", "pid"), [("vdb", 10), ("vdz", 10), ("vdb", 11)], ids=["no limit", "no such disk", "it has ended"]
)
def test_without_a_limit_there_is_none(disk: str, pid: int, sysfs: Sysfs) -> None:
    write(sysfs.root, "sys/fs/cgroup/a/b/io.max", "254:16 rbps=max wbps=max riops=5 wiops=5")
    assert limits_of_process(sysfs, disk, pid) == ()
    assert limits_of_cgroup(sysfs, disk, "a/b") == ()
