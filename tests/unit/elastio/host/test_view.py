"""What a scan of the kernel shows, and that it never mixes two states of the kernel."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from elastio.core.model import BackingView, CacheMode, CacheState, Depth, DiskView, Serial
from elastio.errors import HostError, NotOursError
from elastio.host.bcache import BcacheHost
from elastio.host.tuning import tune
from elastio.host.view import SEARCH_EVERY, find_backing, scan
from tests.fixtures.errors import refused
from tests.fixtures.sysfs_tree import (
    BACKING_BYTES,
    BACKING_UUID,
    CACHE_BYTES,
    OTHER_SET,
    SERIAL,
    SET_UUID,
    Tree,
    build,
    superblock_bytes,
)
from tests.values import present

from .refusals import MOUNTED, Step, assert_untouched, opens_elsewhere, plugs


def backing(tree: Tree) -> BackingView:
    return present(scan(tree.kernel, BACKING_UUID, (SERIAL,), now=1.0, boot_id="b").backing)


def disks(tree: Tree, *serials: Serial) -> tuple[DiskView, ...]:
    return scan(tree.kernel, BACKING_UUID, serials, now=1.0, boot_id="b").disks


# --- where the backing device is ---------------------------------------------------------------------------


def test_finds_a_whole_disk_by_the_uuid_of_its_superblock(tree: Tree) -> None:
    found = present(find_backing(tree.kernel, BACKING_UUID))
    assert (found.directory, found.disk, found.device, found.adaptive) == (
        "sys/block/vdb/bcache",
        "vdb",
        "vdb",
        "bcache0",
    )
    assert (found.node, found.adaptive_node) == (tree.kernel.path("dev/vdb"), tree.kernel.path("dev/bcache0"))


def test_finds_a_partition_and_the_disk_that_owns_its_queue(tmp_path: Path) -> None:
    tree = build(tmp_path, "vdb1")
    found = present(find_backing(tree.kernel, BACKING_UUID))
    assert (found.directory, found.disk, found.device) == ("sys/block/vdb/vdb1/bcache", "vdb", "vdb1")
    assert found.node == tree.kernel.path("dev/vdb1")
    assert backing(tree).size_bytes == BACKING_BYTES - 2**20
    assert backing(tree).disk_name == "vdb"


def test_another_uuid_is_another_device(tree: Tree) -> None:
    assert find_backing(tree.kernel, OTHER_SET) is None
    assert scan(tree.kernel, OTHER_SET, (), now=1.0, boot_id="b").backing is None


def test_a_device_that_does_not_run_has_no_adaptive_device(tree: Tree) -> None:
    tree.cache_missing()
    found = present(find_backing(tree.kernel, BACKING_UUID))
    assert found.adaptive_node is None
    assert (backing(tree).running, backing(tree).adaptive_name) == (False, "")


@pytest.mark.parametrize("device", ["nvme0n1", "vdz"])
def test_of_two_devices_with_one_uuid_neither_is_ours(tree: Tree, host: BcacheHost, device: str) -> None:
    tree.attached("dirty", dirty="700.0M")
    assert host.scan(()).backing is not None
    tree.twin(device)
    seen = host.scan(())
    assert (seen.backing, set(seen.duplicates), seen.dead_bcache_device, seen.unregistered_backing) == (
        None,
        {"vdb", device},
        "",
        "",
    )
    shutil.rmtree(tree.kernel.path(f"sys/block/{device}"))
    seen = host.scan(())
    assert seen.backing is not None
    assert (seen.backing.disk_name, seen.duplicates, seen.unregistered_backing) == ("vdb", (), "")


def test_a_device_with_our_uuid_is_found_even_if_the_kernel_names_no_new_one(tree: Tree, host: BcacheHost) -> None:
    tree.attached("dirty")
    tree.kernel.block("vdz", BACKING_BYTES, "254:77")
    host.scan(())
    tree.kernel.lay("sys/block/vdz/bcache/backing_dev_uuid", BACKING_UUID)
    assert {"vdb", "vdz"} in [set(host.scan(()).duplicates) for _ in range(SEARCH_EVERY)]


CHANGES: list[Callable[[BcacheHost], object]] = [
    lambda host: host.tune_backing(),
    lambda host: host.install_cache(SERIAL, CACHE_BYTES, flush_mb_s=None),
    lambda host: host.enter_phase1(flush_mb_s=None),
    lambda host: host.enter_phase2(),
    lambda host: host.limit_writes(8.0),
    lambda host: host.bypass_cache(),
    lambda host: host.wake_writeback(),
    lambda host: host.set_flush(None),
    lambda host: host.detach_cache_set(SET_UUID),
    lambda host: host.release_cache_disk(SERIAL, CACHE_BYTES, SET_UUID),
    lambda host: host.make_durable(),
    lambda host: host.help_detach(),
    lambda host: host.register_backing(),
    lambda host: host.start_without_cache(),
]


@pytest.mark.parametrize("change", CHANGES)
def test_nothing_is_done_to_either_of_two_devices_with_one_uuid(
    tree: Tree, host: BcacheHost, change: Callable[[BcacheHost], object]
) -> None:
    tree.attached("clean")
    tree.twin()
    with pytest.raises(NotOursError):
        change(host)
    assert_untouched(tree)


# --- the backing device ------------------------------------------------------------------------------------


def test_shows_a_device_without_cache(tree: Tree) -> None:
    view = backing(tree)
    assert view == BackingView(
        running=True,
        state=CacheState.NO_CACHE,
        cache_mode=CacheMode.WRITETHROUGH,
        cache_set=None,
        dirty_bytes=0,
        writeback_running=True,
        tuned=False,
        size_bytes=BACKING_BYTES,
        depth=Depth(8),
        flush_limit_mb_s=0.004096,  # the kernel's default floor
        adaptive_name="bcache0",
        disk_name="vdb",
    )


@pytest.mark.parametrize(
    ("state", "dirty", "seen"),
    [
        ("clean", "0.0k", (CacheState.CLEAN, 0)),
        ("dirty", "711.0M", (CacheState.DIRTY, 711 * 2**20)),
        ("dirty", "1.1G", (CacheState.DIRTY, int(1.1 * 2**30))),
    ],
)
def test_shows_an_attached_cache(tree: Tree, state: str, dirty: str, seen: tuple[CacheState, int]) -> None:
    tree.attached(state, dirty=dirty)
    view = backing(tree)
    assert (view.state, view.dirty_bytes) == seen
    assert (view.cache_set, view.cache_mode, view.available_percent) == (SET_UUID, CacheMode.WRITEBACK, 97)


@pytest.mark.parametrize(
    ("prepare", "state", "cache_set", "superblock_set"),
    [
        (Tree.attached, CacheState.CLEAN, SET_UUID, None),
        (Tree.detaching, CacheState.NO_CACHE, SET_UUID, None),
        (Tree.cache_missing, CacheState.DIRTY, None, SET_UUID),
    ],
)
def test_a_cache_is_attached_until_its_link_is_gone_whatever_the_state_says(
    tree: Tree, prepare: Callable[[Tree], None], state: CacheState, cache_set: str | None, superblock_set: str | None
) -> None:
    prepare(tree)
    seen = backing(tree)
    assert (seen.state, seen.cache_set, seen.superblock_set) == (state, cache_set, superblock_set)


@pytest.mark.parametrize(
    ("written", "named"),
    [
        (superblock_bytes(1, OTHER_SET), OTHER_SET),
        (superblock_bytes(1, "00000000-0000-0000-0000-000000000000"), None),
        (superblock_bytes(3, OTHER_SET), None),  # that of a cache
        (bytes(4096), None),
    ],
)
def test_a_missing_cache_is_named_by_the_superblock(tree: Tree, written: bytes, named: str | None) -> None:
    tree.cache_missing("clean")
    tree.kernel.node("vdb", written)
    assert backing(tree).superblock_set == named


def test_a_cache_whose_disk_was_removed_is_attached_until_the_kernel_notices(tree: Tree) -> None:
    tree.attached()
    tune(tree.kernel, tree.directory, "vdb", SET_UUID)
    shutil.rmtree(tree.kernel.path("sys/block/vdc"))
    seen = backing(tree)
    assert (seen.cache_set, seen.tuned) == (SET_UUID, True)


def test_what_was_written_through_is_shown(tree: Tree) -> None:
    assert backing(tree).overflow_bytes is None
    tree.counting()
    assert backing(tree).overflow_bytes == 30720 * 512


@pytest.mark.parametrize(
    ("file", "value"),
    [
        ("sys/block/vdb/queue/scheduler", "mq-deadline [none]"),
        ("sys/block/vdb/bcache/sequential_cutoff", "4.0M"),
        ("sys/block/vdb/bcache/io_error_limit", "64"),
        (f"sys/fs/bcache/{SET_UUID}/congested_read_threshold_us", "2000"),
        (f"sys/fs/bcache/{SET_UUID}/congested_write_threshold_us", "20000"),
        (f"sys/fs/bcache/{SET_UUID}/internal/idle_max_writeback_rate", "1"),
    ],
)
def test_one_setting_that_is_not_in_force_is_untuned(tree: Tree, file: str, value: str) -> None:
    tree.attached()
    tune(tree.kernel, tree.directory, "vdb", SET_UUID)
    tree.kernel.lay(file, value)
    assert not backing(tree).tuned


def test_a_depth_that_is_not_in_force_is_named_and_leaves_the_device_tuned(tree: Tree) -> None:
    tree.attached()
    tune(tree.kernel, tree.directory, "vdb", SET_UUID)
    assert (backing(tree).depth, backing(tree).tuned) == (None, True)
    tree.kernel.lay("sys/block/vdb/queue/nr_requests", "256")
    assert (backing(tree).depth, backing(tree).tuned) == (Depth(8, 8), True)


# --- the kernel goes on while it is read -------------------------------------------------------------------


def at_nth_read(tree: Tree, name: str, n: int, change: str) -> None:
    """When `name` is read for the n-th time, the state has become `change`."""
    reads = 0

    def watch(read: str) -> None:
        nonlocal reads
        reads += read == name
        if read == name and reads == n:
            tree.knob("state", change)

    tree.kernel.before_read = watch


def test_reads_again_when_the_state_changes_in_between(tree: Tree) -> None:
    tree.attached("clean")
    at_nth_read(tree, f"{tree.directory}/dirty_data", 1, "dirty")
    assert backing(tree).state is CacheState.DIRTY


def test_reads_again_when_the_set_leaves_in_between(tree: Tree) -> None:
    """Its files go first, then its link: half of that is no error."""
    tree.detaching()
    percent = f"sys/fs/bcache/{SET_UUID}/congested_read_threshold_us"
    tune(tree.kernel, tree.directory, "vdb", SET_UUID)

    def leave(read: str) -> None:
        if read == percent and tree.kernel.exists(f"{tree.directory}/cache"):
            tree.kernel.unregister(SET_UUID)
            tree.kernel.path(f"{tree.directory}/cache").unlink()

    tree.kernel.before_read = leave
    assert backing(tree).cache_set is None


def test_gives_up_when_the_state_never_stops_changing(tree: Tree) -> None:
    tree.attached("clean")
    reads = 0

    def flip(read: str) -> None:
        nonlocal reads
        if read.endswith("/state"):
            reads += 1
            tree.knob("state", "dirty" if reads % 2 else "clean")

    tree.kernel.before_read = flip
    with refused(HostError, "backing.unstable"):
        backing(tree)
    assert reads < 100


def test_an_unknown_state_is_an_error_of_ours(tree: Tree) -> None:
    tree.knob("state", "half empty")
    with refused(HostError, "backing.unstable"):
        backing(tree)


# --- disks -------------------------------------------------------------------------------------------------


def test_shows_the_disk_that_is_asked_for_under_the_asked_serial(tree: Tree) -> None:
    tree.cache_disk(nvme=True)
    assert disks(tree, SERIAL) == (DiskView("vdc", SERIAL, CACHE_BYTES, None, None, held=False),)
    assert disks(tree) == ()


def test_shows_the_cache_in_use_without_being_asked(tree: Tree) -> None:
    tree.attached()
    assert disks(tree) == (
        DiskView("vdc", Serial(SERIAL.replace("-", "")), CACHE_BYTES, SET_UUID, SET_UUID, held=True),
    )


@pytest.mark.parametrize(
    ("steps", "shown"),
    [
        ((Tree.detached, lambda tree: tree.kernel.unregister(SET_UUID)), (None, SET_UUID, False)),
        ((plugs(), MOUNTED), (None, None, True)),
        ((plugs(), Tree.registered, opens_elsewhere), (SET_UUID, None, False)),
    ],
    ids=["not registered", "mounted", "the node is gone already"],
)
def test_shows_set_superblock_and_use_of_a_disk(tree: Tree, steps: tuple[Step, ...], shown: tuple[object, ...]) -> None:
    for step in steps:
        step(tree)
    assert [(d.cache_set, d.superblock, d.held) for d in disks(tree, SERIAL)] == [shown]


def test_a_disk_that_is_removed_during_the_scan_is_not_listed(tree: Tree) -> None:
    tree.cache_disk()
    tree.kernel.path("sys/block/vdc/size").unlink()
    assert disks(tree, SERIAL) == ()


def test_a_scan_does_not_read_an_attached_cache_disk(tree: Tree) -> None:
    tree.attached()
    tree.kernel.path("dev/vdc").unlink()
    assert [(d.cache_set, d.superblock) for d in disks(tree)] == [(SET_UUID, SET_UUID)]


def test_cgroups_are_read_while_flushing_and_until_the_limit_is_gone(tree: Tree, host: BcacheHost) -> None:
    limit = "sys/fs/cgroup/user.slice/io.max"

    def shown() -> float | None:
        return present(host.scan(()).backing).write_limit_mb_s

    tree.attached("dirty")
    tree.kernel.lay(limit, "251:0 rbps=max wbps=8250111 riops=max wiops=max")
    seen = [shown()]
    tree.kernel.lay(limit, "")
    seen.append(shown())
    tree.kernel.lay(limit, "251:0 rbps=max wbps=8250111 riops=max wiops=max")
    seen.append(shown())
    host.enter_phase2()
    seen.append(shown())
    assert seen == [8.25, None, None, 8.25]


def test_cgroups_are_read_while_the_disk_of_a_cache_is_awaited(tree: Tree, host: BcacheHost) -> None:
    host.scan(())
    tree.kernel.lay("sys/fs/cgroup/user.slice/io.max", "251:0 rbps=max wbps=1111 riops=max wiops=max")
    seen = [present(host.scan(serials).backing).write_limit_mb_s for serials in ((), (SERIAL,))]
    assert seen == [None, 0.001]


def test_a_serial_of_random_bytes_does_not_spoil_a_scan(tree: Tree) -> None:
    tree.cache_disk()
    tree.kernel.block("vdd", 2**30, "254:48")
    tree.kernel.path("sys/block/vdd/serial").write_bytes(b"\xff\xfe\x80")
    assert [d.name for d in disks(tree, SERIAL)] == ["vdc"]


def test_a_scan_has_its_time_and_its_boot(tree: Tree) -> None:
    tree.attached()
    view = scan(tree.kernel, BACKING_UUID, (), now=7.0, boot_id="boot")
    assert (view.at, view.boot_id) == (7.0, "boot")


def test_a_scan_writes_nothing(tree: Tree, host: BcacheHost) -> None:
    tree.counting()
    tree.attached()
    view = host.scan((SERIAL,))
    assert view.boot_id == "9c1e0d0e-7e7a-4f6f-a43c-0b8f7f2f6f10"
    assert tree.kernel.writes == []
    assert tree.programs.ran == []
