"""A backing device whose cache failed: registered only if provably ours, started only while it waits."""

from __future__ import annotations

import shutil

import pytest

from elastio.core.actions import Effect
from elastio.errors import DeviceBusyError, HostError, NotOursError
from elastio.host.bcache import BcacheHost
from tests.fixtures.errors import refused
from tests.fixtures.sysfs_tree import BACKING_BYTES, BACKING_UUID, OTHER_SET, Tree, superblock_bytes


@pytest.fixture
def dropped(tree: Tree) -> Tree:
    """bcacheN is gone, and the kernel has unregistered its backing device."""
    shutil.rmtree(tree.kernel.path(tree.directory))
    shutil.rmtree(tree.kernel.path("sys/block/bcache0"))
    return tree


@pytest.fixture
def registers(dropped: Tree, monkeypatch: pytest.MonkeyPatch) -> Tree:
    """A kernel that registers the backing device when asked to."""

    def take(name: str, value: str) -> None:
        if name.endswith("register_quiet"):
            dropped.kernel.lay(f"{dropped.directory}/backing_dev_uuid", BACKING_UUID)

    monkeypatch.setattr(dropped.kernel, "_take", take)
    return dropped


def test_names_the_device_that_the_kernel_unregistered_and_the_adaptive_one_in_use(
    dropped: Tree, host: BcacheHost
) -> None:
    view = host.scan(())
    assert (view.backing, view.unregistered_backing, view.dead_bcache_device) == (None, "vdb", "")
    dropped.kernel.lay("sys/block/vdb/holders/bcache0", "")
    view = host.scan(())
    assert (view.backing, view.unregistered_backing, view.dead_bcache_device) == (None, "", "bcache0")


def test_registers_it_again(registers: Tree, host: BcacheHost) -> None:
    assert [host.register_backing(), host.register_backing()] == [Effect.CHANGED, Effect.ALREADY]
    node = str(registers.kernel.path("dev/vdb"))
    assert registers.kernel.writes == [("sys/fs/bcache/register_quiet", node)]


@pytest.mark.parametrize("trouble", ["copy", "held", "mounted", "other uuid", "a cache"])
def test_registers_nothing_that_is_not_provably_ours(trouble: str, registers: Tree, host: BcacheHost) -> None:
    kernel = registers.kernel
    match trouble:
        case "copy":  # of the volume, restored from a snapshot and attached beside it
            kernel.block("vdd", BACKING_BYTES, "254:48", superblock_bytes(1))
        case "held":
            kernel.lay("sys/block/vdb/holders/dm-0", "")
        case "mounted":
            kernel.lay("proc/self/mountinfo", "22 1 254:16 / /mnt rw - ext4 /dev/vdb rw")
        case "other uuid":
            kernel.node("vdb", superblock_bytes(1, device=OTHER_SET))
        case "a cache":
            kernel.node("vdb", superblock_bytes(3))
    assert host.scan(()).unregistered_backing == ""
    with pytest.raises(NotOursError):
        host.register_backing()
    assert kernel.writes == []


def test_a_registration_that_does_not_show_is_an_error(dropped: Tree, host: BcacheHost) -> None:
    dropped.kernel.deaf.add("register_quiet")
    with refused(HostError, "register.timeout"):
        host.register_backing()


@pytest.mark.parametrize("state", ["dirty", "clean"])
def test_starts_a_device_that_waits_for_its_cache(state: str, tree: Tree, host: BcacheHost) -> None:
    tree.cache_missing(state)
    assert [host.start_without_cache(), host.start_without_cache()] == [Effect.CHANGED, Effect.ALREADY]
    assert tree.kernel.writes == [(f"{tree.directory}/running", "1")]


def test_no_device_is_started_without_its_cache_while_one_is_attached(tree: Tree, host: BcacheHost) -> None:
    tree.attached(state="dirty")
    with pytest.raises(DeviceBusyError):
        host.start_without_cache()
    assert tree.kernel.writes == []


def test_no_device_is_started_that_does_not_wait_for_a_cache(tree: Tree, host: BcacheHost) -> None:
    tree.cache_missing("inconsistent")
    with refused(HostError, "backing.state"):
        host.start_without_cache()
    assert tree.kernel.writes == []
