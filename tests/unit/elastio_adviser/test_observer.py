"""The counters of a block device that no agent drives."""

from __future__ import annotations

from pathlib import Path

import pytest

from elastio.errors import HostError
from elastio.host.sysfs import Sysfs
from elastio_adviser.observer import BlockCounters


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
