"""A bought disk becomes a cache, and no other disk does."""

from __future__ import annotations

import struct
from collections.abc import Callable
from uuid import UUID

import pytest

from elastio.core.actions import Effect
from elastio.errors import HostError, NotOursError
from elastio.host import partition_table
from elastio.host.bcache import BcacheHost
from elastio.host.superblock import OFFSET, Role, read, render_backing
from elastio.units import KIB, MIB, SECTOR
from tests.fixtures.errors import refused
from tests.fixtures.sysfs_tree import (
    BACKING_UUID,
    CACHE_BYTES,
    OTHER_SET,
    SERIAL,
    SET_UUID,
    Tree,
    superblock_bytes,
    superblock_on,
)
from tests.values import present

from . import refusals
from .refusals import assert_refused


def install(host: BcacheHost, size_bytes: int = CACHE_BYTES) -> None:
    assert host.install_cache(SERIAL, size_bytes, flush_mb_s=None) == SET_UUID


def test_formats_with_the_block_size_of_the_backing_device(tree: Tree, host: BcacheHost) -> None:
    tree.kernel.node("vdb", superblock_bytes(1, block_sectors=8))
    tree.cache_disk()
    install(host)
    made = present(read(tree.kernel.path("dev/vdc")))
    assert (made.role, made.set_uuid, made.block_size_bytes) == (Role.CACHE, SET_UUID, 4096)


def test_no_disk_becomes_a_cache_of_a_device_whose_release_was_interrupted(tree: Tree, host: BcacheHost) -> None:
    tree.cache_disk(content=superblock_bytes(3, OTHER_SET))
    before = superblock_on(tree.kernel.path("dev/vdc"))
    tree.kernel.lay("sys/block/vdb/queue/logical_block_size", 512)
    block = render_backing(UUID(BACKING_UUID), UUID(OTHER_SET), block_bytes=512, data_offset_sectors=16)
    table = partition_table.render(BACKING_UUID, offset_sectors=16, size_sectors=2048, block_bytes=512)
    tree.kernel.path("dev/vdb").write_bytes(table.ljust(OFFSET, b"\0") + block.ljust(OFFSET, b"\0"))
    assert host.scan(()).unsupported
    with refused(NotOursError, "cache.unsupported"):
        install(host)
    assert (superblock_on(tree.kernel.path("dev/vdc")), tree.programs.changing) == (before, [])


def test_what_cannot_be_read_gets_no_cache_until_it_is_read(tree: Tree, host: BcacheHost) -> None:
    node = tree.kernel.path("dev/vdb")
    hidden = node.rename(node.with_name("hidden"))
    assert host.scan(()).unsupported
    hidden.rename(node)
    assert not host.scan(()).unsupported


def test_wipes_what_an_earlier_try_of_ours_left(tree: Tree, host: BcacheHost) -> None:
    tree.cache_disk(content=superblock_bytes(3, OTHER_SET))
    install(host)
    assert tree.programs.changing == ["wipefs"]


@pytest.mark.parametrize(
    ("size_mib", "bucket_kib"), [(4096, 512), (4095, 256), (2048, 256), (2047, 128), (256, 128), (255, 64), (64, 64)]
)
def test_a_small_cache_has_smaller_buckets(tree: Tree, host: BcacheHost, size_mib: int, bucket_kib: int) -> None:
    tree.cache_disk(size_bytes=size_mib * MIB)
    install(host, size_mib * MIB)
    (sectors,) = struct.unpack_from("<H", superblock_on(tree.kernel.path("dev/vdc")), 194)
    assert sectors * SECTOR == bucket_kib * KIB


def test_udev_may_have_registered_it_first(tree: Tree, host: BcacheHost) -> None:
    """The kernel then refuses our registration."""
    tree.cache_disk(content=superblock_bytes(3))
    tree.kernel.refuses.add("register_quiet")
    raced = BcacheHost(host.backing_uuid, tree.kernel, wait=lambda condition, _: _registered_meanwhile(tree, condition))
    assert [raced.register_cache(SERIAL, SET_UUID) for _ in range(2)] == [Effect.CHANGED, Effect.ALREADY]
    assert tree.kernel.link("sys/block/vdc/bcache/set") == SET_UUID


def _registered_meanwhile(tree: Tree, condition: Callable[[], bool]) -> bool:
    tree.kernel.register_cache("vdc")
    return condition()


def test_a_disk_of_another_set_is_not_registered(tree: Tree, host: BcacheHost) -> None:
    tree.cache_disk(content=superblock_bytes(3, OTHER_SET))
    with refused(HostError, "disk.other_set"):
        host.register_cache(SERIAL, SET_UUID)
    assert not refusals.leaf_writes(tree.kernel)


def test_a_set_that_does_not_appear_is_an_error(tree: Tree, host: BcacheHost) -> None:
    tree.cache_disk()
    tree.kernel.refuses.add("register_quiet")
    with refused(HostError, "register.timeout"):
        install(host)
    assert "attach" not in [name for name, _ in refusals.leaf_writes(tree.kernel)]


@pytest.mark.parametrize("why", refusals.FORMAT)
def test_format_refuses_and_touches_nothing(tree: Tree, host: BcacheHost, why: str) -> None:
    assert_refused(tree, refusals.FORMAT[why], lambda: install(host))
