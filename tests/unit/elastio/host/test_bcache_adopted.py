"""The host adapter on the composed device of an adopted volume: no cache without a tombstone, and none under way."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from elastio.errors import DeviceBusyError, HostError, NotOursError
from elastio.host import composed, heads, recompose, superblock, tombstone
from elastio.host.bcache import BcacheHost
from elastio.host.heads import DATA_OFFSET_SECTORS, LEAST_BYTES, Head, Volume
from elastio.units import MIB, SECTOR
from tests.fixtures.errors import refused
from tests.fixtures.sysfs_tree import BACKING_UUID, CACHE_BYTES, SERIAL, Tree, build
from tests.values import present

VOLUME = Volume("ext4", "6d0c4a57-9d55-4f3a-8b1c-2d3e0b6f4c1e", 2 * MIB // SECTOR, serial="volume0123456789abcd")
PHYSICAL = replace(VOLUME, filesystem=heads.PHYSICAL_VOLUME)
HEAD = Head("5a3f0c1e-1d3b-4c59-9d57-0b6d0f1c2a34", BACKING_UUID, VOLUME, LEAST_BYTES // SECTOR)
INFLIGHT = "sys/block/bcache0/inflight"


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return composed_of(tmp_path, HEAD)


@pytest.fixture
def keeping(tmp_path: Path) -> Tree:
    """The volume is a physical volume of LVM, with the tombstone that stays."""
    found = composed_of(tmp_path, replace(HEAD, volume=PHYSICAL))
    recompose.write_tombstone(found.kernel, "dm-3", lambda condition, _: condition())
    return found


def composed_of(folder: Path, head: Head) -> Tree:
    """The backing device is dm-3: a head on vdh, and the volume vdb."""
    found = build(folder)
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
    heads.write(kernel.path("dev/vdh"), head, block, lambda _: None)
    rows = heads.table(head, "254:96", "254:16", has_tombstone=False)
    table = [(row.begin, row.length, row.device, row.offset) for row in rows]
    kernel.create("dm-3", composed.name_of(head), composed.mapped_uuid(head), table)
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


def put(tree: Tree, at: int, content: bytes) -> None:
    """Written to the volume, as whoever formats the adaptive device does."""
    with tree.kernel.path("dev/vdb").open("r+b") as file:
        file.seek(at)
        file.write(content)


@pytest.mark.parametrize(
    ("at", "content", "code"),
    [
        (tombstone.BTRFS_SUPERBLOCK + tombstone.BTRFS_MAGIC_AT, tombstone.BTRFS_MAGIC, "tombstone.short"),
        (tombstone.SECOND_HEADERS[0], tombstone.SECOND_MAGIC, "tombstone.short"),
        (0, b"data" * 128, "tombstone.overwritten"),
    ],
)
def test_no_cache_is_made_behind_the_tombstone_of_an_earlier_one_if_the_volume_could_be_mounted(
    tree: Tree, host: BcacheHost, at: int, content: bytes, code: str
) -> None:
    tree.cache_disk()
    host.write_tombstone()
    put(tree, at, content)
    with refused(NotOursError, code):
        host.install_cache(SERIAL, CACHE_BYTES, flush_mb_s=None)
    assert superblock.read(tree.kernel.path("dev/vdc")) is None


# --- a tombstone that stays ----------------------------------------------------------------------------------------


def sequence(tree: Tree) -> int:
    return present(tombstone.read(tree.kernel.path("dev/vdb"))).sequence


def opened(tree: Tree) -> AbstractContextManager[tombstone.Pair]:
    head = present(heads.read(tree.kernel.path("dev/vdh")))
    return tombstone.Pair.opened(tree.kernel, head, "vdb", "vdh")


def names_a_cache(tree: Tree, state: int = 2) -> None:
    at = HEAD.content_sector * SECTOR + superblock.OFFSET + superblock.LAYOUT.size - 104
    with tree.kernel.path("dev/vdh").open("r+b") as file:
        file.seek(at)
        file.write((state << superblock.STATE_SHIFT).to_bytes(8, "little"))


def renew(tree: Tree) -> None:
    recompose.require_tombstone(tree.kernel, "dm-3", lambda condition, _: condition())


def is_the_volume(tree: Tree) -> bool:
    """Whether it is composed, and not taken for a reverted one."""
    try:
        with opened(tree) as pair:
            return pair.has_tombstone()
    except NotOursError as error:
        if error.code != "tombstone.other":
            raise
        return False


@pytest.mark.parametrize("state", range(4))
def test_each_cache_gets_a_number_by_which_a_reverted_volume_of_any_boost_before_is_told(
    tree: Tree, host: BcacheHost, state: int
) -> None:
    """Also where the tombstone has stayed: the cache before failed while it was clean, or its loss was accepted."""
    node, copies = tree.kernel.path("dev/vdb"), []
    for _ in range(3):
        host.remove_tombstone()
        host.write_tombstone()
        copies.append(node.read_bytes())
    names_a_cache(tree, state)
    for _ in range(3):
        renew(tree)
        assert is_the_volume(tree)
        newest = node.read_bytes()
        for copy in copies:
            node.write_bytes(copy)
            assert not is_the_volume(tree)
        node.write_bytes(newest)
        copies.append(newest)


@pytest.mark.parametrize("is_its_own", [True, False])
def test_only_the_tombstone_that_was_written_for_a_cache_keeps_its_number(
    tree: Tree, host: BcacheHost, is_its_own: bool
) -> None:
    tree.cache_disk()
    host.write_tombstone()
    number = sequence(tree)
    agent = host if is_its_own else BcacheHost(BACKING_UUID, tree.kernel, tree.programs, host._wait)
    agent.install_cache(SERIAL, CACHE_BYTES, flush_mb_s=None)
    agent.guard.dismiss()
    assert (sequence(tree) == number) is is_its_own
    assert agent._number == 0, "it is not that of the next cache"


@pytest.mark.parametrize("after", range(4))
@pytest.mark.parametrize("number", range(3))
def test_a_power_cut_while_it_is_renewed_leaves_the_volume_whatever_becomes_of_the_lost_cache(
    tree: Tree, host: BcacheHost, number: int, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.write_tombstone()
    old = tree.kernel.path("dev/vdb").read_bytes()
    names_a_cache(tree, superblock.STALE)
    pwritev, left = os.pwritev, 0

    def cut(descriptor: int, buffers: list[memoryview], at: int) -> int:
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError(5, "power cut")
        return pwritev(descriptor, buffers, at)

    for left in (number, number, number):  # noqa: B007
        with monkeypatch.context() as patched, refused(HostError, "tombstone.io"):
            patched.setattr(os, "pwritev", cut)
            renew(tree)
        names_a_cache(tree, after)
        assert is_the_volume(tree)
    with opened(tree) as pair:
        assert pair.completed()
    assert is_the_volume(tree)
    assert sequence(tree) > 2 or number == 0
    before = sequence(tree)
    renew(tree)
    assert sequence(tree) > before
    assert is_the_volume(tree)
    tree.kernel.path("dev/vdb").write_bytes(old)
    assert not is_the_volume(tree)


@pytest.fixture
def keeper(keeping: Tree) -> Iterator[BcacheHost]:
    found = BcacheHost(BACKING_UUID, keeping.kernel, keeping.programs, lambda condition, _: condition())
    yield found
    found.guard.dismiss()


def test_the_agent_is_asked_for_no_move_of_what_stays_but_for_one_that_is_missing(
    keeping: Tree, keeper: BcacheHost
) -> None:
    assert present(keeper.scan(()).backing).has_tombstone is None
    keeper.remove_tombstone()
    assert present(keeper.scan(()).backing).has_tombstone is False


def test_each_cache_renews_what_stays_so_that_a_volume_that_was_reverted_is_told(
    keeping: Tree, keeper: BcacheHost
) -> None:
    keeping.cache_disk()
    before = content(keeping)
    keeper.install_cache(SERIAL, CACHE_BYTES, flush_mb_s=None)
    assert sequence(keeping) > 2
    with opened(keeping) as pair:
        assert pair.has_tombstone()
    keeping.kernel.path("dev/vdb").write_bytes(before)
    with opened(keeping) as pair:
        assert pair.has_tombstone(), "an older copy without a cache is the volume"
    names_a_cache(keeping)
    with opened(keeping) as pair, refused(NotOursError, "tombstone.other"):
        pair.has_tombstone()


def test_no_cache_is_made_for_what_is_recognized_behind_the_tombstone(keeping: Tree, keeper: BcacheHost) -> None:
    keeping.cache_disk()
    put(keeping, tombstone.SECOND_HEADERS[0], tombstone.SECOND_MAGIC)
    with refused(NotOursError, "tombstone.short"):
        keeper.install_cache(SERIAL, CACHE_BYTES, flush_mb_s=None)
    assert (superblock.read(keeping.kernel.path("dev/vdc")), sequence(keeping)) == (None, 2)


def test_no_cache_is_made_without_what_stays(keeping: Tree, keeper: BcacheHost) -> None:
    keeping.cache_disk()
    keeping.kernel.path("dev/vdb").write_bytes(b"data" * (MIB // 2))
    with refused(NotOursError, "tombstone.overwritten"):
        keeper.install_cache(SERIAL, CACHE_BYTES, flush_mb_s=None)
    assert superblock.read(keeping.kernel.path("dev/vdc")) is None


def test_only_what_stays_may_have_an_earlier_number(tree: Tree, host: BcacheHost) -> None:
    host.write_tombstone()
    before = content(tree)
    host.remove_tombstone()
    host.write_tombstone()
    tree.kernel.path("dev/vdb").write_bytes(before)
    with opened(tree) as pair, refused(NotOursError, "tombstone.other"):
        pair.has_tombstone()
