"""The host adapter on the composed device of an adopted volume: no cache without a tombstone, and none under way."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from elastio.errors import DeviceBusyError, HostError, NotOursError
from elastio.host import composed, heads, recompose, superblock
from elastio.host.bcache import BcacheHost
from elastio.host.heads import DATA_OFFSET_SECTORS, LEAST_BYTES, Head, Volume
from elastio.units import MIB, SECTOR
from tests.fixtures.errors import refused
from tests.fixtures.sysfs_tree import BACKING_UUID, CACHE_BYTES, SERIAL, Tree, build
from tests.values import present

VOLUME = Volume("ext4", "6d0c4a57-9d55-4f3a-8b1c-2d3e0b6f4c1e", 2 * MIB // SECTOR, serial="volume0123456789abcd")
HEAD = Head("5a3f0c1e-1d3b-4c59-9d57-0b6d0f1c2a34", BACKING_UUID, VOLUME, LEAST_BYTES // SECTOR)
INFLIGHT = "sys/block/bcache0/inflight"


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """The backing device is dm-3: a head on vdh, and the volume vdb."""
    found = build(tmp_path)
    kernel = found.kernel
    kernel.block("vdh", LEAST_BYTES, "254:96")
    kernel.block("dm-3", 0, "252:3")
    for name, number, content in (("vdh", "254:96", bytes(LEAST_BYTES)), ("vdb", "254:16", b"data" * (MIB // 2))):
        kernel.path(f"dev/{name}").write_bytes(content)
        kernel.tie(f"sys/dev/block/{number}", f"sys/block/{name}")
        kernel.tie(f"sys/class/block/{name}", f"sys/block/{name}")
    block = superblock.render_backing(
        UUID(BACKING_UUID), UUID(int=8), block_bytes=512, data_offset_sectors=DATA_OFFSET_SECTORS
    )
    heads.write(kernel.path("dev/vdh"), HEAD, block, lambda _: None)
    rows = heads.table(HEAD, "254:96", "254:16", has_tombstone=False)
    table = [(row.begin, row.length, row.device, row.offset) for row in rows]
    kernel.create("dm-3", composed.name_of(HEAD), f"{composed.UUID_PREFIX}{HEAD.uuid}", table)
    shutil.move(kernel.path(found.directory), kernel.path("sys/block/dm-3/bcache"))
    found.directory = "sys/block/dm-3/bcache"
    links = {f"{found.directory}/dev": "sys/block/bcache0", "sys/block/bcache0/bcache": found.directory}
    for link, target in links.items():
        kernel.path(link).unlink(missing_ok=True)
        kernel.tie(link, target)
    return found


def content(tree: Tree) -> bytes:
    return tree.kernel.path("dev/vdb").read_bytes()


def test_a_scan_shows_whether_there_is_a_tombstone_and_the_disk_below(tree: Tree, host: BcacheHost) -> None:
    seen = present(host.scan(()).backing)
    assert (seen.has_tombstone, seen.disk_name) == (False, "vdb")
    host.write_tombstone()
    assert present(host.scan(()).backing).has_tombstone is True
    host.remove_tombstone()
    assert present(host.scan(()).backing).has_tombstone is False


def test_a_scan_resumes_what_a_dead_process_left_suspended(tree: Tree, host: BcacheHost) -> None:
    tree.kernel.lay("sys/block/dm-3/dm/suspended", "1")
    host.scan(())
    assert tree.kernel.read("sys/block/dm-3/dm/suspended") == "0"


def test_no_cache_is_made_without_a_tombstone(tree: Tree, host: BcacheHost) -> None:
    tree.cache_disk()
    with refused(DeviceBusyError, "tombstone.missing"):
        host.install_cache(SERIAL, CACHE_BYTES, flush_mb_s=None)
    assert superblock.read(tree.kernel.path("dev/vdc")) is None
    host.write_tombstone()
    host.install_cache(SERIAL, CACHE_BYTES, flush_mb_s=None)
    assert superblock.read(tree.kernel.path("dev/vdc")) is not None
    with refused(DeviceBusyError, "tombstone.cache"):
        host.remove_tombstone()


@pytest.mark.parametrize("move", [BcacheHost.write_tombstone, BcacheHost.remove_tombstone])
def test_nothing_is_suspended_while_writes_are_in_flight(
    move: Callable[[BcacheHost], None], tree: Tree, host: BcacheHost
) -> None:
    """The suspension would wait for them, and everybody for it."""
    if move is BcacheHost.remove_tombstone:
        host.write_tombstone()
    before = content(tree)
    tree.kernel.lay(INFLIGHT, "       0        3")
    with refused(DeviceBusyError, "device.not_drained"):
        move(host)
    assert (content(tree), tree.kernel.read("sys/block/dm-3/dm/suspended")) == (before, "0")
    tree.kernel.lay(INFLIGHT, "       3        0")
    move(host)
    assert content(tree) != before


def test_a_device_that_does_not_run_has_nothing_in_flight(tree: Tree, host: BcacheHost) -> None:
    tree.kernel.path(f"{tree.directory}/dev").unlink()
    host.write_tombstone()
    assert recompose.has_tombstone(tree.kernel, "dm-3") is True


def test_only_an_adopted_volume_has_a_tombstone(tmp_path: Path) -> None:
    plain = build(tmp_path / "plain")
    host = BcacheHost(BACKING_UUID, plain.kernel, plain.programs, lambda condition, _: condition())
    for move in (host.write_tombstone, host.remove_tombstone):
        with refused(NotOursError, "tombstone.none"):
            move()
    host.guard.dismiss()
    assert present(host.scan(()).backing).has_tombstone is None


def test_of_a_device_without_a_table_the_scan_says_so(tree: Tree, host: BcacheHost) -> None:
    tree.kernel.refused[0xC138FD0C] = 13
    with refused(HostError, "backing.unregistered"):
        host.write_tombstone()
