"""Phases and installing a cache: what is written, in which order, and what is left alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from elastio.core.actions import Effect
from elastio.core.model import CacheMode
from elastio.errors import DeviceBusyError, HostError, NotOursError
from elastio.host.bcache import BcacheHost
from elastio.host.superblock import Role, read
from elastio.host.sysfs import wait_for
from tests.fixtures.errors import refused
from tests.fixtures.sysfs_tree import (
    BACKING_UUID,
    CACHE_BYTES,
    OTHER_SET,
    SERIAL,
    SET_UUID,
    Kernel,
    Tree,
    superblock_on,
)
from tests.values import present

from .refusals import assert_untouched, leaf_writes


def superblock_writes(kernel: Kernel) -> list[str]:
    """Writes that make the kernel rewrite the backing superblock."""
    return [name for name, _ in leaf_writes(kernel) if name in ("attach", "detach", "cache_mode", "label")]


# --- phases ----------------------------------------------------------------------------------------------


def test_phase_2_flushes_at_full_speed_and_leaves_the_mode_alone(tree: Tree, host: BcacheHost) -> None:
    tree.attached("dirty")
    host.enter_phase2()
    assert leaf_writes(tree.kernel) == [
        ("writeback_rate_minimum", "1000000000"),
        ("writeback_rate", "1000000000"),
        ("writeback_delay", "0"),
    ]
    view = present(host.scan(()).backing)
    assert (view.cache_mode, view.flush_full_speed, view.writeback_running) == ("writeback", True, True)


def test_a_bypass_is_mode_none_and_is_written_once(tree: Tree, host: BcacheHost) -> None:
    tree.attached("clean")
    assert [host.bypass_cache(), host.bypass_cache()] == [Effect.CHANGED, Effect.ALREADY]
    assert leaf_writes(tree.kernel) == [("cache_mode", "none")]


def test_no_write_bypasses_before_the_backing_device_is_durable(tree: Tree, host: BcacheHost) -> None:
    """The first of them takes a clean copy away."""
    tree.attached("clean")
    tree.kernel.path("dev/vdb").unlink()
    with refused(HostError, "fsync"):
        host.bypass_cache()
    assert leaf_writes(tree.kernel) == []


@pytest.mark.parametrize("mode", ["none", "writearound", "writethrough"])
def test_a_cache_that_was_bypassed_absorbs_no_more_writes(tree: Tree, host: BcacheHost, mode: str) -> None:
    tree.attached("dirty", mode=mode)
    with refused(DeviceBusyError, "cache.bypassed"):
        host.enter_phase1(flush_mb_s=None)
    assert leaf_writes(tree.kernel) == []


@pytest.mark.parametrize(
    ("mb_s", "before", "written"),
    [
        (0.0, {"writeback_percent": 0, "writeback_running": 1}, [("writeback_running", "0")]),
        (None, {"writeback_percent": 0, "writeback_running": 0}, [("writeback_running", "1")]),
        (0.0, {"writeback_percent": 70}, [("writeback_percent", "0"), ("writeback_running", "0")]),
        (
            10.24,
            {"writeback_percent": 0, "writeback_running": 0},
            [
                ("writeback_rate_minimum", "20000"),
                ("writeback_percent", "70"),
                ("writeback_rate", "20000"),
                ("writeback_running", "1"),
            ],
        ),
    ],
    ids=["stop", "all that is left over", "stop from a limit", "a limit"],
)
def test_the_writeback_rate_is_set_alone(
    tree: Tree, host: BcacheHost, mb_s: float | None, before: dict[str, int], written: list[tuple[str, str]]
) -> None:
    tree.attached("dirty")
    for name, value in before.items():
        tree.knob(name, value)
    host.set_flush(mb_s)
    assert leaf_writes(tree.kernel) == written


@pytest.mark.parametrize("mb_s", [0.0, None, 10.24])
def test_phase_1_after_phase_2_shows_the_writeback_rate_that_was_set(
    tree: Tree, host: BcacheHost, mb_s: float | None
) -> None:
    tree.attached("dirty")
    host.enter_phase1(flush_mb_s=0.0)
    host.enter_phase2()
    host.enter_phase1(flush_mb_s=mb_s)
    backing = present(host.scan((SERIAL,)).backing)
    assert (backing.flush_full_speed, backing.cache_mode) == (False, CacheMode.WRITEBACK)
    assert backing.writeback_running is (mb_s != 0)
    assert backing.flush_limit_mb_s == (mb_s or None)


PHASES: list[Callable[[BcacheHost], object]] = [
    lambda host: host.enter_phase1(flush_mb_s=None),
    lambda host: host.enter_phase2(),
    lambda host: host.bypass_cache(),
    lambda host: host.set_flush(None),
]


@pytest.mark.parametrize("change", PHASES)
def test_there_are_no_phases_without_cache(
    tree: Tree, host: BcacheHost, change: Callable[[BcacheHost], object]
) -> None:
    with refused(HostError, "set.none"):
        change(host)
    assert_untouched(tree)


def test_nothing_is_tuned_that_is_not_registered(tree: Tree) -> None:
    host = BcacheHost(OTHER_SET, tree.kernel, tree.programs)
    with refused(HostError, "backing.unregistered"):
        host.tune_backing()
    assert_untouched(tree)


# --- a new cache -----------------------------------------------------------------------------------------


@pytest.fixture
def ready(tree: Tree, host: BcacheHost) -> Tree:
    """The backing device is tuned, and the cache disk is registered: what is there when the attach begins."""
    host.tune_backing()
    tree.cache_disk()
    tree.registered()
    tree.kernel.writes.clear()
    return tree


def install(host: BcacheHost, flush_mb_s: float | None = 0.0) -> None:
    assert host.install_cache(SERIAL, CACHE_BYTES, flush_mb_s=flush_mb_s) == SET_UUID


def test_a_cache_is_formatted_registered_and_attached(tree: Tree, host: BcacheHost) -> None:
    host.tune_backing()
    tree.cache_disk()
    install(host)
    assert superblock_writes(tree.kernel) == ["cache_mode", "attach"]
    assert tree.programs.ran == []
    host.tune_backing()  # what can wait until the cache serves; the attach has started the flush thread
    view = present(host.scan(()).backing)
    assert (view.cache_set, view.cache_mode, view.tuned) == (SET_UUID, "writeback", True)
    assert (view.writeback_running, view.flush_full_speed) == (False, False)


def test_a_set_that_is_registered_is_attached_and_not_formatted_again(ready: Tree, host: BcacheHost) -> None:
    before = superblock_on(ready.kernel.path("dev/vdc"))
    install(host, None)
    assert superblock_on(ready.kernel.path("dev/vdc")) == before
    assert superblock_writes(ready.kernel) == ["attach"]


def test_every_safety_setting_is_in_force_before_the_attach(ready: Tree, host: BcacheHost) -> None:
    ready.counting()
    install(host, None)
    names = [name for name, _ in leaf_writes(ready.kernel)]
    before, after = names[: names.index("attach")], names[names.index("attach") + 1 :]
    assert before == [
        "congested_read_threshold_us",
        "congested_write_threshold_us",
        "idle_max_writeback_rate",
    ]
    assert after == []
    assert ready.kernel.shown(f"{ready.directory}/sequential_cutoff") == "0"
    assert ready.kernel.shown(f"{ready.directory}/writeback_delay") == "0"


def test_installing_again_changes_nothing(ready: Tree, host: BcacheHost) -> None:
    install(host)
    host.tune_backing()
    ready.kernel.writes.clear()
    install(host)
    assert ready.kernel.writes == []


def test_an_attach_that_the_kernel_ignores_is_an_error(ready: Tree, host: BcacheHost) -> None:
    ready.kernel.deaf.add("attach")
    with refused(HostError, "attach.ignored"):
        install(host)
    assert leaf_writes(ready.kernel)[-1][0] == "attach"


def test_a_device_that_has_another_cache_is_left_alone(ready: Tree, host: BcacheHost) -> None:
    ready.kernel.tie(f"{ready.directory}/cache", f"sys/fs/bcache/{OTHER_SET}")
    with refused(NotOursError, "set.other"):
        install(host)
    assert ready.kernel.writes == []


@pytest.mark.parametrize("state", ["clean", "dirty"])
def test_a_device_that_waits_for_its_own_cache_gets_no_other(ready: Tree, host: BcacheHost, state: str) -> None:
    ready.cache_missing(state)
    with refused(NotOursError, "backing.waits"):
        install(host)
    assert ready.kernel.writes == []


def test_a_device_that_lost_its_cache_while_clean_gets_another(ready: Tree, host: BcacheHost) -> None:
    ready.knob("state", "clean")
    install(host)
    assert superblock_writes(ready.kernel) == ["attach"]


@pytest.mark.parametrize("is_registered", [False, True])
def test_a_kernel_that_loses_dirty_data_gets_no_cache(tree: Tree, is_registered: bool) -> None:
    tree.kernel.lay("proc/sys/kernel/osrelease", "5.10.0-30-amd64")
    host = BcacheHost(BACKING_UUID, tree.kernel, tree.programs)
    assert host.scan(()).unsupported
    tree.cache_disk()
    if is_registered:
        tree.registered()
    with refused(NotOursError, "cache.unsupported"):
        install(host)
    assert tree.kernel.writes == []


# --- a whole cycle, and waiting --------------------------------------------------------------------------


def test_a_whole_cycle_leaves_the_device_as_it_was(tree: Tree, host: BcacheHost) -> None:
    host.tune_backing()
    start = host.scan(()).backing
    tree.cache_disk()
    install(host, None)
    host.enter_phase2()
    host.bypass_cache()
    host.detach_cache_set(SET_UUID)
    tree.detached()
    host.release_cache_disk(SERIAL, CACHE_BYTES, SET_UUID)
    host.tune_backing()
    end = host.scan(()).backing
    assert start is not None
    assert end == start
    assert end.tuned
    found = present(read(tree.kernel.path("dev/vdb")))
    assert found.role is Role.BACKING


def test_waiting_ends_when_it_is_so() -> None:
    answers = iter([False, False, True])
    assert wait_for(lambda: next(answers), 60.0)


def test_waiting_ends_when_time_is_over() -> None:
    assert not wait_for(lambda: False, 0.01)
