"""A cache leaves only when it is drained, and its disk only when it is provably empty."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress

import psutil
import pytest

from elastio.core.actions import Effect
from elastio.core.model import Serial
from elastio.errors import DeviceBusyError, ElastioError, HostError, NotOursError
from elastio.host.bcache import BcacheHost
from elastio.host.superblock import MAGIC, read
from tests.fixtures.errors import refused
from tests.fixtures.sysfs_tree import CACHE_BYTES, OTHER_SET, SERIAL, SET_UUID, Tree, superblock_on

from . import refusals
from .refusals import assert_refused, assert_untouched, leaf_writes

# --- detach ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "dirty"),
    [("clean", "0.0k"), ("clean", "4.0k"), ("no cache", "0.0k")],
    ids=["drained", "the index knows of dirty data, which the detach flushes", "a detach is under way"],
)
def test_detaches_a_drained_cache(tree: Tree, host: BcacheHost, state: str, dirty: str) -> None:
    tree.attached(state, "none", dirty)
    assert host.detach_cache_set(SET_UUID) is Effect.CHANGED
    assert leaf_writes(tree.kernel) == [("detach", "1")]


@pytest.mark.parametrize(
    ("mode", "set_to"), [("writeback", None), ("writethrough", "writeback"), ("writearound", None), ("none", None)]
)
def test_a_cache_that_has_every_write_absorbs_again_what_wakes_its_flush(
    tree: Tree, host: BcacheHost, mode: str, set_to: str | None
) -> None:
    """One that writes have bypassed does not."""
    tree.attached("clean", mode, "4.0k")
    with suppress(ElastioError):
        host.wake_writeback()
    written = [value for name, value in tree.kernel.writes if name.endswith("cache_mode")]
    assert written == ([set_to] if set_to else [])


@pytest.mark.parametrize(
    ("state", "mode", "dirty"),
    [
        ("dirty", "none", "711.0M"),
        ("clean", "writeback", "0.0k"),
        ("clean", "writearound", "0.0k"),
        ("inconsistent", "none", "0.0k"),
    ],
)
def test_detach_is_refused_until_it_is_drained(tree: Tree, host: BcacheHost, state: str, mode: str, dirty: str) -> None:
    tree.attached(state, mode, dirty)
    with refused(DeviceBusyError, "cache.not_drained"):
        host.detach_cache_set(SET_UUID)
    assert_untouched(tree)


def test_detach_leaves_another_set_alone(tree: Tree, host: BcacheHost) -> None:
    tree.attached("clean", mode="none")
    with refused(NotOursError, "set.other"):
        host.detach_cache_set(OTHER_SET)
    assert_untouched(tree)


def test_detaching_what_is_detached_does_nothing(tree: Tree, host: BcacheHost) -> None:
    tree.attached()
    tree.detached()
    assert host.detach_cache_set(SET_UUID) is Effect.ALREADY
    assert_untouched(tree)


@pytest.mark.parametrize("node", ["vdb", "bcache0"])
def test_no_detach_before_the_backing_device_is_durable(tree: Tree, host: BcacheHost, node: str) -> None:
    tree.attached("clean", mode="none")
    tree.kernel.path(f"dev/{node}").unlink()
    with refused(HostError, "fsync"):
        host.detach_cache_set(SET_UUID)
    assert_untouched(tree)


# --- release ---------------------------------------------------------------------------------------------


def test_releases_a_detached_cache_disk_once(tree: Tree, host: BcacheHost) -> None:
    tree.attached()
    tree.detached()
    host.guard.begin_lease()
    assert host.release_cache_disk(SERIAL, CACHE_BYTES, SET_UUID) is Effect.CHANGED
    assert not psutil.pid_exists(host.guard.process), "a boost is over: no guard is kept"
    assert tree.kernel.writes == [(f"sys/fs/bcache/{SET_UUID}/unregister", "1")]
    assert tree.programs.ran == []
    assert read(tree.kernel.path("dev/vdc")) is None
    assert host.scan((SERIAL,)).disks[0].superblock is None
    assert host.release_cache_disk(SERIAL, CACHE_BYTES, SET_UUID) is Effect.ALREADY
    assert len(tree.kernel.writes) == 1


def test_a_disk_that_is_gone_needs_no_release(tree: Tree, host: BcacheHost) -> None:
    assert host.release_cache_disk(SERIAL, CACHE_BYTES, SET_UUID) is Effect.ALREADY
    assert_untouched(tree)


@pytest.mark.parametrize("why", refusals.RELEASE)
def test_release_refuses_and_touches_nothing(tree: Tree, host: BcacheHost, why: str) -> None:
    assert_refused(tree, refusals.RELEASE[why], lambda: host.release_cache_disk(SERIAL, CACHE_BYTES, SET_UUID))


@pytest.mark.parametrize("node", ["vdb", "bcache0"])
def test_no_cache_leaves_before_the_backing_device_is_durable(tree: Tree, host: BcacheHost, node: str) -> None:
    tree.attached()
    tree.detached()
    tree.kernel.path(f"dev/{node}").unlink()
    with refused(HostError, "fsync"):
        host.release_cache_disk(SERIAL, CACHE_BYTES, SET_UUID)
    assert_untouched(tree)


@pytest.mark.parametrize("node", ["vdb", "bcache0"])
@pytest.mark.parametrize(
    "make_durable",
    [lambda host: host.make_durable(), lambda host: host.release_cache_disk(Serial("gone"), CACHE_BYTES, SET_UUID)],
    ids=["alone", "release of a disk that is gone"],
)
def test_a_device_without_its_cache_is_made_durable_as_a_whole(
    tree: Tree, host: BcacheHost, node: str, make_durable: Callable[[BcacheHost], object]
) -> None:
    make_durable(host)
    assert_untouched(tree)
    tree.kernel.path(f"dev/{node}").unlink()
    with refused(HostError, "fsync"):
        make_durable(host)


def test_a_set_that_stays_registered_is_not_wiped(tree: Tree, host: BcacheHost) -> None:
    """The kernel may still write to it."""
    tree.attached()
    tree.detached()
    tree.kernel.deaf.add("unregister")
    with refused(HostError, "unregister.timeout"):
        host.release_cache_disk(SERIAL, CACHE_BYTES, SET_UUID)
    assert tree.programs.changing == []


def test_a_superblock_that_cannot_be_erased_is_an_error(
    tree: Tree, host: BcacheHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree.attached()
    tree.detached()

    def fail(descriptor: int, data: bytes, at: int) -> int:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "pwrite", fail)
    with refused(HostError, "superblock.write"):
        host.release_cache_disk(SERIAL, CACHE_BYTES, SET_UUID)
    assert superblock_on(tree.kernel.path("dev/vdc"))[24:40] == MAGIC


def test_a_set_whose_name_is_not_known_is_released_by_its_disk(tree: Tree, host: BcacheHost) -> None:
    """After a crash between the format and its outcome, the set's UUID is unknown. Serial and size prove the disk."""
    tree.cache_disk()
    tree.registered()
    host.release_cache_disk(SERIAL, CACHE_BYTES, None)
    assert read(tree.kernel.path("dev/vdc")) is None
