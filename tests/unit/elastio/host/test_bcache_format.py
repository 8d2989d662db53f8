"""A bought disk becomes a cache, and no other disk does."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from elastio.errors import HostError
from elastio.host.bcache import BcacheHost
from elastio.host.superblock import Role, read
from elastio.units import MIB
from tests.fixtures.caches import make_cache
from tests.fixtures.sysfs_tree import CACHE_BYTES, OTHER_SET, SERIAL, SET_UUID, Tree, superblock_bytes, superblock_on

from . import refusals
from .refusals import Refusal, assert_untouched


def test_formats_with_the_block_size_of_the_backing_device(tree: Tree, host: BcacheHost) -> None:
    tree.cache_disk()
    assert make_cache(host, SERIAL, CACHE_BYTES) == SET_UUID
    node = str(tree.kernel.path("dev/vdc"))
    assert tree.programs.ran == []
    made = read(tree.kernel.path("dev/vdc"))
    assert made is not None
    assert (made.role, made.set_uuid, made.block_size_bytes) == (Role.CACHE, SET_UUID, 512)
    assert tree.kernel.writes == [("sys/fs/bcache/register_quiet", node)]


def test_wipes_what_an_earlier_try_of_ours_left(tree: Tree, host: BcacheHost) -> None:
    tree.cache_disk(content=superblock_bytes(3, OTHER_SET))
    assert host.format_cache(SERIAL, CACHE_BYTES) == SET_UUID
    assert tree.programs.changing == ["wipefs"]


@pytest.mark.parametrize(
    ("size_mib", "bucket_kib"), [(10 * 1024, 512), (1024, 512), (1023, 256), (400, 128), (100, 64), (64, 64)]
)
def test_a_small_cache_has_smaller_buckets(tree: Tree, host: BcacheHost, size_mib: int, bucket_kib: int) -> None:
    tree.cache_disk(size_bytes=size_mib * MIB)
    host.format_cache(SERIAL, size_mib * MIB)
    (sectors,) = struct.unpack_from("<H", superblock_on(tree.kernel.path("dev/vdc")), 194)
    assert sectors * 512 == bucket_kib * 1024


def test_formatting_again_keeps_the_set_that_served_nobody(tree: Tree, host: BcacheHost) -> None:
    tree.cache_disk()
    make_cache(host, SERIAL, CACHE_BYTES)
    ran, written = len(tree.programs.ran), len(tree.kernel.writes)
    assert make_cache(host, SERIAL, CACHE_BYTES) == SET_UUID
    assert (len(tree.programs.ran), len(tree.kernel.writes)) == (ran, written)


def test_udev_may_have_registered_it_first(tree: Tree, host: BcacheHost) -> None:
    """The kernel then refuses our own registration."""
    tree.cache_disk()
    host.format_cache(SERIAL, CACHE_BYTES)
    tree.kernel.refuses.add("register_quiet")
    raced = BcacheHost(host.backing_uuid, tree.kernel, wait=lambda condition, _: _registered_meanwhile(tree, condition))
    raced.register_cache(SERIAL, SET_UUID)
    assert tree.kernel.link("sys/block/vdc/bcache/set") == SET_UUID


def _registered_meanwhile(tree: Tree, condition: Callable[[], bool]) -> bool:
    tree.kernel.register_cache("vdc")
    return condition()


def test_a_set_that_does_not_appear_is_an_error_with_the_reason(tree: Tree, host: BcacheHost) -> None:
    tree.cache_disk()
    tree.kernel.refuses.add("register_quiet")
    with pytest.raises(HostError, match=rf"vdc did not become cache set {SET_UUID} within 10 s. .*Invalid argument"):
        make_cache(host, SERIAL, CACHE_BYTES)


FORMAT_REFUSALS = [
    refusals.another_size,
    refusals.another_size_registered,
    refusals.no_disk,
    refusals.two_disks,
    refusals.foreign_signature,
    refusals.mounted,
    refusals.held,
    refusals.open_elsewhere,
    refusals.serves_already,
    refusals.waited_for,
    refusals.waited_for_while_clean,
    refusals.waited_for_and_registered,
    refusals.a_backing_device,
]


@pytest.mark.parametrize("prepare", FORMAT_REFUSALS)
def test_format_refuses_and_touches_nothing(tree: Tree, host: BcacheHost, prepare: Callable[[Tree], Refusal]) -> None:
    error, text = prepare(tree)
    with pytest.raises(error, match=text):
        host.format_cache(SERIAL, CACHE_BYTES)
    assert_untouched(tree)


def test_a_backing_disk_without_superblock_gives_no_block_size(tree: Tree, host: BcacheHost) -> None:
    tree.cache_disk()
    tree.kernel.node("vdb")
    with pytest.raises(HostError, match=r"dev/vdb shows no bcache superblock"):
        host.format_cache(SERIAL, CACHE_BYTES)
    assert_untouched(tree)
