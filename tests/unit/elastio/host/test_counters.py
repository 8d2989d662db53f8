"""The devices that are counted are those of the newest scan."""

from __future__ import annotations

import psutil

from elastio.core.model import DiskView, HostView
from elastio.host.bcache import BcacheHost
from elastio.host.counters import DiskCounters
from tests.fixtures.sysfs_tree import Tree
from tests.values import SERIAL, SET, backing


def test_reads_the_disks_that_the_scan_names() -> None:
    disk = min(psutil.disk_io_counters(perdisk=True))
    counters = DiskCounters()
    assert counters.read() == {}, "nothing before the first scan"
    counters.follow(HostView(0.0, "boot", backing(disk_name=disk, adaptive_name="-")))
    read = counters.read()
    assert set(read) == {"backing"}
    assert min(read["backing"]) >= 0


def test_the_requests_are_those_of_the_cache_disk() -> None:
    disk = min(psutil.disk_io_counters(perdisk=True))
    cache = DiskView(disk, SERIAL, 0, SET, SET, held=True)
    counters = DiskCounters()
    counters.follow(HostView(0.0, "boot", backing(disk_name="-", adaptive_name="-", cache_set=SET), (cache,)))
    before = psutil.disk_io_counters(perdisk=True, nowrap=False)[disk]
    read = counters.read()
    assert set(read) == {"cache", "requests"}
    assert read["requests"] >= (before.read_count, before.write_count)


def test_the_cache_is_the_disk_of_the_attached_set(tree: Tree, host: BcacheHost) -> None:
    tree.attached()
    counters = DiskCounters()
    counters.follow(host.scan(()))
    assert counters._names == {"adaptive": "bcache0", "backing": "vdb", "cache": "vdc"}
    tree.detached()
    counters.follow(host.scan(()))
    assert counters._names == {"adaptive": "bcache0", "backing": "vdb"}
