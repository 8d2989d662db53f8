"""Requests are held back on the adaptive device and those above it, and released again."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress

import psutil
import pytest

from elastio.errors import DeviceBusyError, HostError
from elastio.host import cgroups, throttle
from elastio.host.bcache import BcacheHost
from elastio.host.guard import Guard
from elastio.units import SECTOR
from tests.fixtures.errors import refused
from tests.fixtures.sysfs_tree import CACHE_BYTES, SERIAL, SET_UUID, Tree
from tests.values import present

DISK = "bcache0"
NUMBER = "251:0"
HELD = f"{NUMBER} {throttle.TRICKLE}"
NO_WRITES = f"{NUMBER} {throttle.NO_WRITES}"
FREE = f"{NUMBER} {cgroups.FREE}"
WRITES = "rbps=max wbps={} riops=max wiops=max"
STOP = f"{NUMBER} {throttle.STOP}"


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


def entered(
    watch: Guard, tree: Tree, limit: str = throttle.STOP, is_ready: Callable[[], bool] = lambda: True
) -> list[bool]:
    """What `drained` yielded: whether all requests are held back. Nothing where it was not entered."""
    inside = []
    with (
        suppress(DeviceBusyError),
        throttle.drained(watch, tree.kernel, DISK, limit, waiting(tree, []), is_ready) as is_inhibited,
    ):
        inside.append(is_inhibited)
    return inside


@pytest.mark.parametrize("done", [True, False])
def test_limits_are_removed_whether_the_wait_succeeded_or_not(watch: Guard, done: bool, groups: Tree) -> None:
    seen: list[str] = []
    assert throttle.hold_back(watch, groups.kernel, DISK, lambda: done, waiting(groups, seen)) is done
    assert seen == [HELD]
    assert written(groups) == [
        ("system.slice", HELD),
        ("user.slice", HELD),
        ("system.slice", FREE),
        ("user.slice", FREE),
    ]


def test_limits_that_a_killed_agent_left_are_removed_and_no_others(groups: Tree) -> None:
    groups.kernel.lay("sys/fs/cgroup/user.slice/io.max", f"8:0 rbps=5 wbps=max riops=max wiops=max\n{HELD}")
    assert throttle.release(groups.kernel) == ("user.slice",)
    assert written(groups) == [("user.slice", FREE)]


def test_without_the_io_controller_nothing_can_be_held_back(watch: Guard, tree: Tree) -> None:
    with refused(HostError, "limit.none"):
        throttle.hold_back(watch, tree.kernel, DISK, lambda: True, lambda condition, _: condition())


@pytest.mark.parametrize(
    ("limit", "reads", "writes", "settled"),
    [
        (throttle.NO_WRITES, 5, 0, True),
        (throttle.NO_WRITES, 0, 1, False),
        (throttle.STOP, 0, 0, True),
        (throttle.STOP, 1, 0, False),
        (throttle.STOP, 0, 1, False),
    ],
)
def test_requests_are_held_back_until_those_in_flight_are_done(
    watch: Guard, limit: str, reads: int, writes: int, settled: bool, groups: Tree
) -> None:
    groups.kernel.lay("sys/block/bcache0/inflight", f"       {reads}        {writes}")
    seen: list[str] = []
    shown = {throttle.NO_WRITES: NO_WRITES, throttle.STOP: STOP}[limit]
    inside = []
    with (
        suppress(DeviceBusyError),
        throttle.drained(watch, groups.kernel, DISK, limit, waiting(groups, seen)) as is_inhibited,
    ):
        inside.append(is_inhibited)
    assert inside == ([True] if settled else [])
    assert seen == [shown]
    assert written(groups)[-2:] == [("system.slice", FREE), ("user.slice", FREE)]


def test_a_device_is_not_drained_before_its_condition_is_true(watch: Guard, groups: Tree) -> None:
    assert entered(watch, groups, is_ready=lambda: False) == []


def test_a_failure_while_requests_are_held_back_releases_them(watch: Guard, groups: Tree) -> None:
    with (
        pytest.raises(ZeroDivisionError),
        throttle.drained(watch, groups.kernel, DISK, throttle.STOP, waiting(groups, [])),
    ):
        raise ZeroDivisionError
    assert written(groups)[-1] == ("user.slice", FREE)


def test_a_cgroup_that_accepts_no_limit_does_not_count_as_held_back(watch: Guard, groups: Tree) -> None:
    groups.kernel.refuses.add("io.max")
    assert entered(watch, groups) == [False]
    with refused(HostError, "limit.none"):
        throttle.limit_writes(groups.kernel, DISK, 8.0)


def test_a_cgroup_with_a_limit_of_an_administrator_keeps_it_and_is_not_held_back(watch: Guard, groups: Tree) -> None:
    groups.kernel.lay("sys/fs/cgroup/machine.slice/io.max", f"{NUMBER} rbps=1000 wbps=max riops=max wiops=5")
    assert entered(watch, groups) == [False]
    assert "machine.slice" not in [group for group, _ in written(groups)]


def free(tree: Tree) -> bool:
    """As `elastio free`, or a service manager that writes a group's io.max again."""
    tree.kernel.lay("sys/fs/cgroup/user.slice/io.max", "")
    return True


def test_a_device_is_not_drained_once_somebody_has_removed_the_limit(watch: Guard, groups: Tree) -> None:
    assert entered(watch, groups, is_ready=lambda: free(groups)) == []


@pytest.mark.parametrize("what", ["the limit is removed", "a request comes"])
def test_a_moment_that_ends_while_data_is_made_durable_is_not_used(
    groups: Tree, host: BcacheHost, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups.attached("clean")

    def fsync(descriptor: int) -> None:
        if what == "a request comes":
            groups.kernel.lay("sys/block/bcache0/inflight", "       0        1")
        else:
            free(groups)

    monkeypatch.setattr(os, "fsync", fsync)
    with refused(DeviceBusyError, "device.not_drained"):
        host.bypass_cache()
    assert "none" not in [value for _, value in groups.kernel.writes]


def test_the_next_moment_is_used_if_one_is_over_before_the_data_is_durable(watch: Guard, groups: Tree) -> None:
    prepared: list[bool] = []

    def in_flight(writes: int) -> None:
        groups.kernel.lay("sys/block/bcache0/inflight", f"       0        {writes}")

    def prepare() -> None:
        prepared.append(True)
        in_flight(1 if len(prepared) == 1 else 0)

    def wait(is_done: Callable[[], bool], seconds: float) -> bool:
        assert not is_done()
        in_flight(0)
        return is_done()

    with throttle.drained(watch, groups.kernel, "bcache0", throttle.STOP, wait, prepare=prepare):
        assert len(prepared) == 2


@pytest.mark.parametrize(("inflight", "goes_on"), [("       9        0", True), ("       0        1", False)])
def test_where_no_request_can_be_held_back_no_write_may_be_in_flight(
    watch: Guard, tree: Tree, inflight: str, goes_on: bool
) -> None:
    tree.kernel.lay("sys/block/bcache0/inflight", inflight)
    assert entered(watch, tree, throttle.NO_WRITES) == ([False] if goes_on else [])
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


def limited(tree: Tree) -> list[str]:
    """The devices on which all writes are held back."""
    shown = [line.split() for line in tree.kernel.read("sys/fs/cgroup/user.slice/io.max").splitlines()]
    return sorted(words[0] for words in shown if words[2] in ("wbps=2", "wbps=1111"))


def test_what_the_upper_devices_have_in_flight_passes_those_below(watch: Guard, encrypted: Tree) -> None:
    kernel, seen = encrypted.kernel, []
    throttle.limit_writes(kernel, DISK, 0.001)  # as for a flush at full speed
    kernel.lay("sys/block/dm-1/inflight", "       0        7")

    def wait(condition: Callable[[], bool], _: float) -> bool:
        assert not condition()
        seen.append(limited(encrypted))
        kernel.lay("sys/block/dm-1/inflight", "       0        0")
        return condition()

    with throttle.drained(watch, kernel, DISK, throttle.NO_WRITES, wait) as is_inhibited:
        assert (limited(encrypted), is_inhibited) == ([NUMBER, "253:0", "253:1"], True)
    assert (seen, limited(encrypted)) == ([["253:1"]], [])
    for group in ("user.slice", "system.slice"):  # an administrator's below, and none on top
        shown = (f"{number} rbps=9 wbps=max riops=max wiops=max" for number in (NUMBER, "253:0"))
        kernel.lay(f"sys/fs/cgroup/{group}/io.max", "\n".join(shown))
    assert entered(watch, encrypted, throttle.NO_WRITES) == [False]


@pytest.mark.parametrize(("counted", "is_held_below"), [(9_500, True), (8_500, False), (0, False)])
def test_where_writes_of_upper_devices_count_below_a_limit_there_holds_them(
    watch: Guard, encrypted: Tree, counted: int, is_held_below: bool
) -> None:
    kernel = encrypted.kernel
    kernel.lay("sys/fs/cgroup/user.slice/io.stat", f"{NUMBER} rbytes=0 wbytes={counted * SECTOR}")
    kernel.lay("sys/block/bcache0/stat", "0 0 0 0 9 0 10000 0 7 0 0")
    kernel.lay("sys/block/dm-1/inflight", "       0        7")
    assert entered(watch, encrypted, throttle.NO_WRITES) == ([True] if is_held_below else [])
    assert entered(watch, encrypted) == [], "nobody counted its reads"
    throttle.limit_writes(kernel, DISK, 0.0)
    assert limited(encrypted) == ([NUMBER, "253:0", "253:1"] if is_held_below else ["253:1"])
    kernel.lay("sys/block/bcache0/inflight", "       0        1")
    assert entered(watch, encrypted, throttle.NO_WRITES) == []


def test_writes_are_held_back_until_none_is_in_flight_and_stay_so_where_that_takes_too_long(
    watch: Guard, encrypted: Tree, host: BcacheHost
) -> None:
    encrypted.kernel.lay("sys/block/dm-0/inflight", "       0        1")
    seen: list[list[str]] = []
    with refused(DeviceBusyError, "device.not_drained"):
        throttle.settle(watch, encrypted.kernel, DISK, lambda: seen.append(limited(encrypted)), waiting(encrypted, []))
    assert [*seen, limited(encrypted)] == [["253:1"], ["253:1"]]
    assert present(host.scan(()).backing).write_limit_mb_s is not None


def test_what_dm_crypt_has_not_written_yet_is_in_flight(watch: Guard, encrypted: Tree) -> None:
    encrypted.kernel.lay("sys/block/dm-0/inflight", "       0        7")
    assert entered(watch, encrypted, throttle.NO_WRITES) == []


def test_a_cache_is_attached_while_writes_are_held_back(groups: Tree, host: BcacheHost) -> None:
    host.tune_backing()
    groups.cache_disk()
    host.install_cache(SERIAL, CACHE_BYTES, flush_mb_s=0.0)
    names = [name.rsplit("/", 1)[1] if "cgroup" not in name else name.split("/")[3] for name, _ in groups.kernel.writes]
    held = [names.index("system.slice"), names.index("user.slice")]
    at = names.index("attach")
    assert max(held) < at
    assert names[at + 1 : at + 3] == ["system.slice", "user.slice"]


def test_writes_are_limited_until_the_limit_is_removed(groups: Tree, host: BcacheHost) -> None:
    groups.attached("dirty")
    host.limit_writes(8.25)
    assert psutil.Process().children(), "nobody would remove the limit of an agent that dies"
    held = f"{NUMBER} {WRITES.format(8250111)}"
    assert written(groups) == [("system.slice", held), ("user.slice", held)]
    view = present(host.scan(()).backing)
    assert view.write_limit_mb_s == 8.25
    host.limit_writes(None)
    assert groups.kernel.read("sys/fs/cgroup/system.slice/io.max") == ""


def test_no_write_passes_between_two_limits_or_between_a_limit_and_the_attach(groups: Tree, host: BcacheHost) -> None:
    """What was held back would pass at once: many requests of several MiB."""
    groups.cache_disk()
    host.limit_writes(0.0)
    assert groups.kernel.is_expected, "the process that registers the cache disk is started ahead"
    host.limit_writes(8.25)
    assert not groups.kernel.is_expected, "it ends where no attach comes"
    host.install_cache(SERIAL, CACHE_BYTES, flush_mb_s=0.0)
    limits = [value for group, value in written(groups) if group == "system.slice"]
    assert [text.split(" ", 1)[1] for text in limits] == [
        WRITES.format("1111"),
        WRITES.format("8250111"),
        WRITES.format("1111"),
        throttle.NO_WRITES,
        cgroups.FREE,
    ]
    names = [name.rsplit("/", 1)[1] for name, _ in groups.kernel.writes]
    assert names.index("attach") < len(names) - 1 - names[::-1].index("io.max")


def test_a_limit_of_an_administrator_is_not_taken_for_the_agents(groups: Tree, host: BcacheHost) -> None:
    groups.kernel.lay("sys/fs/cgroup/system.slice/io.max", f"{NUMBER} rbps=max wbps=8250000 riops=max wiops=max")
    view = present(host.scan(()).backing)
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


def test_a_cache_that_somebody_lets_writes_bypass_is_left_to_the_detach(groups: Tree, host: BcacheHost) -> None:
    groups.attached("clean", "writearound", "700.0M")
    host.bypass_cache()
    assert "none" in [value for _, value in groups.kernel.writes]


@pytest.mark.parametrize("can_be_held", [True, False])
def test_no_cache_is_attached_over_a_write_in_flight(groups: Tree, host: BcacheHost, can_be_held: bool) -> None:
    """What is held back meanwhile does not pass before the next try, which would wait for all of it."""
    groups.cache_disk()
    groups.kernel.lay("sys/block/bcache0/inflight", "       0       40")
    if not can_be_held:
        groups.kernel.refuses.add("io.max")
    with pytest.raises(DeviceBusyError):
        host.install_cache(SERIAL, CACHE_BYTES, flush_mb_s=0.0)
    assert "attach" not in [name.rsplit("/", 1)[1] for name, _ in groups.kernel.writes]
    assert (present(host.scan(()).backing).write_limit_mb_s is not None) is can_be_held


@pytest.mark.parametrize(("dirty", "goes_on"), [("0.0k", True), ("4.0k", False)])
def test_a_detach_goes_on_over_writes_in_flight_only_if_the_index_has_nothing_dirty(
    groups: Tree, host: BcacheHost, dirty: str, goes_on: bool
) -> None:
    groups.attached("clean", "none", dirty)
    groups.kernel.lay("sys/block/bcache0/inflight", "       0        1")
    with suppress(DeviceBusyError):
        host.detach_cache_set(SET_UUID)
    assert ((f"{groups.directory}/detach", "1") in groups.kernel.writes) is goes_on


def test_requests_that_cannot_be_held_back_are_warned_of_once(
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
    assert values == [STOP, STOP, "none", FREE, FREE]


def test_only_a_detach_under_way_is_helped(groups: Tree, host: BcacheHost) -> None:
    groups.attached(state="clean", mode="none")
    with refused(DeviceBusyError, "detach.none"):
        host.help_detach()
    assert groups.kernel.writes == []
    groups.detaching()
    with refused(HostError, "detach.timeout"):
        host.help_detach()
    assert written(groups)[-1] == ("user.slice", FREE)
