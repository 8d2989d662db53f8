"""The devices that are counted are those of the newest scan."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from elastio.core.model import HostView
from elastio.errors import HostError
from elastio.host.bcache import BcacheHost
from elastio.host.counters import BlockCounters, DiskCounters
from elastio.host.sysfs import Sysfs
from tests.fixtures.sysfs_tree import Tree
from tests.values import backing


def test_reads_the_disks_that_the_scan_names() -> None:
    disk = min(psutil.disk_io_counters(perdisk=True))
    counters = DiskCounters()
    assert counters.read() == {}, "nothing before the first scan"
    counters.follow(HostView(0.0, "boot", backing(disk_name=disk, adaptive_name="-")))
    read = counters.read()
    assert set(read) == {"backing"}
    assert min(read["backing"]) >= 0


def test_the_cache_is_the_disk_of_the_attached_set(tree: Tree, host: BcacheHost) -> None:
    tree.attached()
    counters = DiskCounters()
    counters.follow(host.scan(()))
    assert counters._names == {"adaptive": "bcache0", "backing": "vdb", "cache": "vdc"}
    tree.detached()
    counters.follow(host.scan(()))
    assert counters._names == {"adaptive": "bcache0", "backing": "vdb"}


def test_one_block_device_is_read_from_its_statistics(tmp_path: Path) -> None:
    block = tmp_path / "sys/class/block/loop0"
    block.mkdir(parents=True)
    # Reads, merged, sectors, ms; writes, merged, sectors, ms; in flight, ms, weighted ms; discards; flushes.
    (block / "stat").write_text("  83 0 2048 12 5 1 4096 7 0 20 19 1 0 8 0 2 1\n")
    counters = BlockCounters("loop0", Sysfs(tmp_path))
    assert counters.read() == {"adaptive": (2048 * 512, 4096 * 512)}
    (block / "stat").unlink()
    with pytest.raises(HostError):
        counters.read()
