"""Only the disk that was meant is written to: names in /dev are reused, and may be links."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from elastio.errors import DeviceBusyError, HostError, NotOursError
from elastio.host import superblock
from elastio.host.bcache import BcacheHost
from elastio.host.blockdev import Disk, find, require_exclusive, require_same
from elastio.host.sysfs import Sysfs
from tests.fixtures.errors import refused
from tests.fixtures.sysfs_tree import CACHE_BYTES, SERIAL, SET_UUID, Tree, superblock_bytes, superblock_on
from tests.values import present

OTHERS_DATA = b"somebody else's data"


@contextmanager
def opened(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def cache_disk(tree: Tree) -> Disk:
    tree.cache_disk()
    return present(find(tree.kernel, SERIAL))


@pytest.mark.parametrize(("name", "text"), [("serial", "vol0000000000000000a"), ("size", "2048")])
def test_a_disk_that_took_its_name_is_another(tree: Tree, name: str, text: str) -> None:
    disk = cache_disk(tree)
    tree.kernel.lay(f"sys/block/vdc/{name}", text)
    with opened(disk.node) as descriptor, refused(NotOursError, "disk.changed"):
        require_same(tree.kernel, disk, descriptor)


def test_a_disk_that_has_moved_to_another_name_is_not_written_to_under_the_old_one(tree: Tree) -> None:
    disk = cache_disk(tree)
    tree.kernel.lay("sys/block/vdc/serial", "")
    tree.cache_disk("vdd")
    with opened(disk.node) as descriptor, pytest.raises(NotOursError):
        require_same(tree.kernel, disk, descriptor)


def test_in_the_real_dev_nothing_but_the_block_device_of_that_number_passes(tmp_path: Path, tree: Tree) -> None:
    class RealLooking(Sysfs):
        """Shows the tree, and says that it is the machine's own."""

        def __init__(self) -> None:
            super().__init__(tree.kernel.root)
            self.machine = self.root
            self.root = Path("/")

        def path(self, name: str) -> Path:
            return self.machine / name

    cache_disk(tree)
    sysfs = RealLooking()
    disk = present(find(sysfs, SERIAL))
    with opened(disk.node) as descriptor, refused(NotOursError, "node.other"):
        require_same(sysfs, disk, descriptor)
    with opened(Path("/dev/null")) as descriptor, refused(NotOursError, "node.other"):
        require_same(sysfs, replace(disk), descriptor)


# --- through the whole adapter ---------------------------------------------------------------------------------------


def swap_before_opening(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the last check and the write the disk goes, and another takes its name."""
    real = os.open

    def slow(path: object, flags: int, *rest: int) -> int:
        if str(path).endswith("dev/vdc") and flags & os.O_RDWR:
            tree.kernel.node("vdc", OTHERS_DATA)
            tree.kernel.lay("sys/block/vdc/serial", "vol0000000000000000a")
        return real(path, flags, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", slow)


def test_a_cache_is_never_written_on_a_disk_that_took_the_name(
    tree: Tree, host: BcacheHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree.cache_disk()
    swap_before_opening(tree, monkeypatch)
    with pytest.raises(HostError):
        host.install_cache(SERIAL, CACHE_BYTES, flush_mb_s=None)
    assert superblock_on(tree.kernel.path("dev/vdc")).startswith(OTHERS_DATA)


def test_a_superblock_is_never_erased_on_a_disk_that_took_the_name(tmp_path: Path) -> None:
    node = tmp_path / "vdc"
    before = bytes(superblock.OFFSET) + superblock_bytes(3)
    node.write_bytes(before)

    def another(descriptor: int) -> None:
        raise NotOursError("another disk")

    with pytest.raises(NotOursError):
        superblock.erase(node, another)
    assert node.read_bytes() == before


# --- names that are links --------------------------------------------------------------------------------------


def test_a_node_that_is_a_link_is_not_followed(tree: Tree, host: BcacheHost, tmp_path: Path) -> None:
    target = tmp_path / "precious"
    target.write_bytes(bytes(superblock.OFFSET) + superblock_bytes(3, SET_UUID))
    before = target.read_bytes()
    tree.cache_disk()
    node = tree.kernel.path("dev/vdc")
    node.unlink()
    node.symlink_to(target)
    with pytest.raises(DeviceBusyError):
        require_exclusive(node)
    with pytest.raises(HostError):
        host.install_cache(SERIAL, CACHE_BYTES, flush_mb_s=None)
    with pytest.raises(HostError):
        host.release_cache_disk(SERIAL, CACHE_BYTES, SET_UUID)
    with refused(HostError, "superblock.write"):
        superblock.erase(node, lambda descriptor: None)
    assert target.read_bytes() == before
