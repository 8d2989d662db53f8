"""Applications are held back for a moment, on the adaptive device alone, and never longer."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest

from elastio.errors import DeviceBusyError, HostError
from elastio.host import throttle
from elastio.host.bcache import BcacheHost
from tests.fixtures.caches import make_cache
from tests.fixtures.sysfs_tree import CACHE_BYTES, SERIAL, SET_UUID, Tree

DISK = "bcache0"
NUMBER = "251:0"
HELD = f"{NUMBER} {throttle.SELDOM}"
NO_WRITES = f"{NUMBER} {throttle.NO_WRITES}"
FREE = f"{NUMBER} {throttle.FREE}"
SHOWN = f"{NUMBER} rbps=max wbps=max {throttle.SELDOM}"
NOTHING = f"{NUMBER} {throttle.NOTHING}"
NOTHING_SHOWN = f"{NUMBER} {throttle.NOTHING} riops=max wiops=max"
NO_WRITES_SHOWN = f"{NUMBER} rbps=max {throttle.NO_WRITES} riops=max wiops=max"


@pytest.fixture
def groups(tree: Tree) -> Tree:
    """Two cgroups below the root, and one of a mount, which has no processes."""
    kernel = tree.kernel
    kernel.lay("sys/block/bcache0/dev", NUMBER)
    kernel.lay("sys/block/bcache0/inflight", "       0        0")
    kernel.lay("sys/fs/cgroup/io.stat", "")
    for group in ("sys-kernel-debug.mount", "system.slice", "user.slice"):
        kernel.lay(f"sys/fs/cgroup/{group}/io.max", "")
    return tree


def written(tree: Tree) -> list[tuple[str, str]]:
    return [(name.split("/")[3], value) for name, value in tree.kernel.writes]


def waiting(tree: Tree, seen: list[str]) -> Callable[[Callable[[], bool], float], bool]:
    def wait(condition: Callable[[], bool], seconds: float) -> bool:
        assert 0 < seconds <= 5
        seen.append(tree.kernel.read_or("sys/fs/cgroup/system.slice/io.max", ""))
        return condition()

    return wait


@pytest.mark.parametrize("done", [True, False])
def test_limits_are_taken_back_whether_it_helped_or_not(done: bool, groups: Tree) -> None:
    seen: list[str] = []
    assert throttle.hold_back(groups.kernel, DISK, lambda: done, waiting(groups, seen)) is done
    assert seen == [SHOWN]
    assert written(groups) == [
        ("system.slice", HELD),
        ("user.slice", HELD),
        ("system.slice", FREE),
        ("user.slice", FREE),
    ]


def test_limits_are_taken_back_when_the_wait_fails(groups: Tree) -> None:
    def fail(condition: Callable[[], bool], seconds: float) -> bool:
        raise HostError("sysfs is gone")

    with pytest.raises(HostError, match="sysfs is gone"):
        throttle.hold_back(groups.kernel, DISK, lambda: True, fail)
    assert written(groups)[-1] == ("user.slice", FREE)


def test_what_a_killed_agent_left_is_taken_back_and_nothing_else(groups: Tree) -> None:
    groups.kernel.lay("sys/fs/cgroup/user.slice/io.max", f"8:0 rbps=5 wbps=max riops=max wiops=max\n{SHOWN}")
    assert throttle.release(groups.kernel) == ("user.slice",)
    assert written(groups) == [("user.slice", FREE)]


def test_without_the_io_controller_nothing_can_be_helped(tree: Tree) -> None:
    with pytest.raises(HostError, match=r"io\.max"):
        throttle.hold_back(tree.kernel, DISK, lambda: True, lambda condition, _: condition())


@pytest.mark.parametrize(
    ("limit", "reads", "writes", "settled"),
    [
        (throttle.NO_WRITES, 5, 0, True),
        (throttle.NO_WRITES, 0, 1, False),
        (throttle.NOTHING, 0, 0, True),
        (throttle.NOTHING, 1, 0, False),
        (throttle.NOTHING, 0, 1, False),
    ],
)
def test_requests_are_held_back_until_those_in_flight_are_done(
    limit: str, reads: int, writes: int, settled: bool, groups: Tree
) -> None:
    groups.kernel.lay("sys/block/bcache0/inflight", f"       {reads}        {writes}")
    seen: list[str] = []
    shown = {throttle.NO_WRITES: NO_WRITES_SHOWN, throttle.NOTHING: NOTHING_SHOWN}[limit]
    inside = []
    with suppress(DeviceBusyError), throttle.quiet(groups.kernel, DISK, limit, waiting(groups, seen)) as is_inhibited:
        inside.append(is_inhibited)
    assert inside == ([True] if settled else [])
    assert seen == [shown]
    assert written(groups)[-2:] == [("system.slice", FREE), ("user.slice", FREE)]


def test_no_moment_is_quiet_before_what_it_waits_for_is_so(groups: Tree) -> None:
    with (
        pytest.raises(DeviceBusyError),
        throttle.quiet(groups.kernel, DISK, throttle.NOTHING, waiting(groups, []), lambda: False),
    ):
        pytest.fail("nobody may go on")


def test_what_fails_while_writes_are_held_back_lets_them_go(groups: Tree) -> None:
    with (
        pytest.raises(HostError, match="no such cache"),
        throttle.quiet(groups.kernel, DISK, throttle.NOTHING, waiting(groups, [])),
    ):
        raise HostError("no such cache")
    assert written(groups)[-1] == ("user.slice", FREE)


def test_a_cgroup_that_takes_no_limit_is_passed_over_and_not_counted_as_held_back(groups: Tree) -> None:
    groups.kernel.refuses.add("io.max")
    with throttle.quiet(groups.kernel, DISK, throttle.NOTHING, waiting(groups, [])) as is_inhibited:
        assert is_inhibited is False
    with pytest.raises(HostError, match="cannot be slowed down"):
        throttle.limit_writes(groups.kernel, DISK, 8.0)


def test_a_cgroup_with_a_limit_of_an_administrator_keeps_it_and_is_not_held_back(groups: Tree) -> None:
    groups.kernel.lay("sys/fs/cgroup/machine.slice/io.max", f"{NUMBER} rbps=1000 wbps=max riops=max wiops=5")
    with throttle.quiet(groups.kernel, DISK, throttle.NOTHING, waiting(groups, [])) as is_inhibited:
        assert is_inhibited is False
    assert "machine.slice" not in [group for group, _ in written(groups)]


@pytest.mark.parametrize(("inflight", "goes_on"), [("       9        0", True), ("       0        1", False)])
def test_where_nobody_can_be_held_back_no_write_may_be_in_flight(tree: Tree, inflight: str, goes_on: bool) -> None:
    tree.kernel.lay("sys/block/bcache0/inflight", inflight)
    inside = []
    with (
        suppress(DeviceBusyError),
        throttle.quiet(tree.kernel, DISK, throttle.NO_WRITES, waiting(tree, [])) as is_inhibited,
    ):
        inside.append(is_inhibited)
    assert inside == ([False] if goes_on else [])
    assert tree.kernel.writes == []


@pytest.fixture
def encrypted(groups: Tree) -> Tree:
    """LVM on dm-crypt on a partition of the adaptive device: what dm-crypt writes comes from threads of the kernel."""
    kernel = groups.kernel
    kernel.path("sys/block/bcache0/bcache0p1/holders").mkdir(parents=True)
    for name, below, number in (("dm-0", "bcache0/bcache0p1", "253:0"), ("dm-1", "dm-0", "253:1")):
        kernel.lay(f"sys/block/{name}/dev", number)
        kernel.lay(f"sys/block/{name}/inflight", "       0        0")
        kernel.tie(f"sys/block/{below}/holders/{name}", f"sys/block/{name}")
    return groups


def test_requests_are_held_back_on_every_device_above(encrypted: Tree) -> None:
    with throttle.quiet(encrypted.kernel, DISK, throttle.NOTHING, waiting(encrypted, [])) as is_inhibited:
        assert is_inhibited is True
        shown = encrypted.kernel.read("sys/fs/cgroup/user.slice/io.max").splitlines()
    assert [line.split()[0] for line in shown] == [NUMBER, "253:0", "253:1"]
    assert encrypted.kernel.read("sys/fs/cgroup/user.slice/io.max") == ""


def test_what_dm_crypt_has_not_written_yet_is_in_flight(encrypted: Tree) -> None:
    encrypted.kernel.lay("sys/block/dm-0/inflight", "       0        7")
    with (
        pytest.raises(DeviceBusyError),
        throttle.quiet(encrypted.kernel, DISK, throttle.NO_WRITES, waiting(encrypted, [])),
    ):
        pytest.fail("nobody may go on")


def test_a_cache_is_attached_while_writes_are_held_back(groups: Tree, host: BcacheHost) -> None:
    host.tune_backing()
    groups.cache_disk()
    made = make_cache(host, SERIAL, CACHE_BYTES)
    groups.kernel.lay("sys/block/bcache0/inflight", "       0        0")
    groups.kernel.writes.clear()
    host.attach_cache_set(made, SERIAL, flush_mb_s=0.0)
    names = [name.rsplit("/", 1)[1] if "cgroup" not in name else name.split("/")[3] for name, _ in groups.kernel.writes]
    held = [names.index("system.slice"), names.index("user.slice")]
    at = names.index("attach")
    assert max(held) < at
    assert names[at + 1 : at + 3] == ["system.slice", "user.slice"]


def test_applications_are_slowed_down_until_it_is_taken_back(groups: Tree, host: BcacheHost) -> None:
    groups.attached("dirty")
    host.limit_writes(8.25)
    assert written(groups) == [("system.slice", f"{NUMBER} wbps=8250111"), ("user.slice", f"{NUMBER} wbps=8250111")]
    view = host.scan(()).backing
    assert view is not None
    assert view.write_limit_mb_s == 8.25
    host.limit_writes(None)
    assert groups.kernel.read("sys/fs/cgroup/system.slice/io.max") == ""


def test_a_limit_of_an_administrator_is_not_taken_for_the_agents(groups: Tree, host: BcacheHost) -> None:
    groups.kernel.lay("sys/fs/cgroup/system.slice/io.max", f"{NUMBER} rbps=max wbps=8250000 riops=max wiops=max")
    view = host.scan(()).backing
    assert view is not None
    assert view.write_limit_mb_s is None


@pytest.mark.parametrize(
    ("state", "dirty", "inflight"),
    [
        ("dirty", "1.0M", "       0        0"),
        ("clean", "0.0k", "       0        1"),
        ("clean", "0.0k", "       1        0"),
        ("clean", "700.0M", "       0        0"),  # a power cut came before the superblock knew of it
    ],
)
@pytest.mark.parametrize("can_be_held", [True, False])
def test_no_write_bypasses_what_is_dirty_or_in_flight(
    groups: Tree, host: BcacheHost, state: str, dirty: str, inflight: str, can_be_held: bool
) -> None:
    groups.attached(state, dirty=dirty)
    groups.kernel.lay("sys/block/bcache0/inflight", inflight)
    if not can_be_held:
        groups.kernel.refuses.add("io.max")
    with pytest.raises(DeviceBusyError):
        host.bypass_cache()
    assert "none" not in [value for _, value in groups.kernel.writes]
    assert groups.kernel.read("sys/fs/cgroup/user.slice/io.max") == ""


@pytest.mark.parametrize("can_be_held", [True, False])
def test_no_cache_is_attached_over_a_write_in_flight(groups: Tree, host: BcacheHost, can_be_held: bool) -> None:
    groups.cache_disk()
    made = make_cache(host, SERIAL, CACHE_BYTES)
    groups.kernel.lay("sys/block/bcache0/inflight", "       0       40")
    if not can_be_held:
        groups.kernel.refuses.add("io.max")
    for attach in (
        lambda: host.attach_cache_set(made, SERIAL, flush_mb_s=0.0),
        lambda: host.install_cache(SERIAL, CACHE_BYTES, flush_mb_s=0.0),
    ):
        with pytest.raises(DeviceBusyError):
            attach()
    assert "attach" not in [name.rsplit("/", 1)[1] for name, _ in groups.kernel.writes]


@pytest.mark.parametrize(("dirty", "goes_on"), [("0.0k", True), ("4.0k", False)])
def test_a_detach_goes_on_over_writes_in_flight_only_if_the_index_has_nothing_dirty(
    groups: Tree, host: BcacheHost, dirty: str, goes_on: bool
) -> None:
    groups.attached("clean", "none", dirty)
    groups.kernel.lay("sys/block/bcache0/inflight", "       0        1")
    with suppress(DeviceBusyError):
        host.detach_cache_set(SET_UUID)
    assert ((f"{groups.directory}/detach", "1") in groups.kernel.writes) is goes_on


def test_what_cannot_be_held_back_is_told_once(
    groups: Tree, host: BcacheHost, caplog: pytest.LogCaptureFixture
) -> None:
    groups.kernel.refuses.add("io.max")
    groups.cache_disk()
    host.install_cache(SERIAL, CACHE_BYTES, flush_mb_s=0.0)
    host.bypass_cache()
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_writes_begin_to_bypass_the_cache_while_all_requests_are_held_back(groups: Tree, host: BcacheHost) -> None:
    groups.attached("clean")
    groups.kernel.lay("sys/block/bcache0/inflight", "       0        0")
    host.bypass_cache()
    values = [value for name, value in groups.kernel.writes if "io.max" in name or name.endswith("cache_mode")]
    assert values == [NOTHING, NOTHING, "none", FREE, FREE]
    groups.kernel.writes.clear()
    host.bypass_cache()
    assert groups.kernel.writes == []


def test_only_a_detach_that_waits_is_helped(groups: Tree, host: BcacheHost) -> None:
    groups.attached(state="clean", mode="none")
    with pytest.raises(DeviceBusyError, match="no detach"):
        host.help_detach()
    assert groups.kernel.writes == []
    groups.detaching()
    with pytest.raises(HostError, match="did not end"):
        host.help_detach()
    assert written(groups)[-1] == ("user.slice", FREE)
