"""Applications are held back for a moment, on the adaptive device alone, and never longer."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from elastio.errors import DeviceBusyError, HostError
from elastio.host import throttle
from elastio.host.bcache import BcacheHost
from tests.fixtures.caches import make_cache
from tests.fixtures.sysfs_tree import CACHE_BYTES, SERIAL, Tree

NUMBER = "251:0"
HELD = f"{NUMBER} {throttle.SELDOM}"
NO_WRITES = f"{NUMBER} {throttle.NO_WRITES}"
FREE = f"{NUMBER} {throttle.FREE}"
SHOWN = f"{NUMBER} rbps=max wbps=max {throttle.SELDOM}"
NOTHING = f"{NUMBER} {throttle.NOTHING}"
NOTHING_SHOWN = f"{NUMBER} {throttle.NOTHING} riops=max wiops=max"
NO_WRITES_SHOWN = f"{NUMBER} rbps=max {throttle.NO_WRITES} riops=max wiops=max"


@pytest.fixture
def groups(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> Tree:
    """Three cgroups below the root; the one of the machines has a limit that an administrator set."""
    kernel = tree.kernel
    kernel.lay("sys/block/bcache0/dev", NUMBER)
    kernel.lay("sys/block/bcache0/inflight", "       3        2")
    kernel.lay("sys/fs/cgroup/io.stat", "")
    kernel.lay("sys/fs/cgroup/sys-kernel-debug.mount/io.max", "")  # a cgroup without processes
    for group, text in (("system.slice", ""), ("user.slice", ""), ("machine.slice", f"{NUMBER} rbps=1000 wiops=5")):
        kernel.lay(f"sys/fs/cgroup/{group}/io.max", text)

    plain = kernel._take

    def take(name: str, value: str) -> None:
        if not name.endswith("io.max"):
            plain(name, value)
        else:
            kernel.lay(name, {HELD: SHOWN, NO_WRITES: NO_WRITES_SHOWN, NOTHING: NOTHING_SHOWN}.get(value, ""))

    monkeypatch.setattr(kernel, "_take", take)
    return tree


def written(tree: Tree) -> list[tuple[str, str]]:
    return [(name.split("/")[3], value) for name, value in tree.kernel.writes]


def waiting(tree: Tree, seen: list[str]) -> Callable[[Callable[[], bool], float], bool]:
    def wait(condition: Callable[[], bool], seconds: float) -> bool:
        assert 0 < seconds <= 5
        seen.append(tree.kernel.read("sys/fs/cgroup/system.slice/io.max"))
        return condition()

    return wait


@pytest.mark.parametrize("done", [True, False])
def test_limits_are_taken_back_whether_it_helped_or_not(done: bool, groups: Tree) -> None:
    seen: list[str] = []
    assert throttle.hold_back(groups.kernel, NUMBER, lambda: done, waiting(groups, seen)) is done
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
        throttle.hold_back(groups.kernel, NUMBER, lambda: True, fail)
    assert written(groups)[-1] == ("user.slice", FREE)


def test_what_a_killed_agent_left_is_taken_back_and_nothing_else(groups: Tree) -> None:
    groups.kernel.lay("sys/fs/cgroup/user.slice/io.max", f"8:0 rbps=5 wbps=max riops=max wiops=max\n{SHOWN}")
    assert throttle.release(groups.kernel) == ("user.slice",)
    assert written(groups) == [("user.slice", FREE)]


def test_without_the_io_controller_nothing_can_be_helped(tree: Tree) -> None:
    with pytest.raises(HostError, match=r"io\.max"):
        throttle.hold_back(tree.kernel, NUMBER, lambda: True, lambda condition, _: condition())


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
    with throttle.quiet(groups.kernel, "bcache0", limit, waiting(groups, seen)) as is_settled:
        assert is_settled is settled
        assert groups.kernel.read("sys/fs/cgroup/user.slice/io.max") == shown
    assert seen == [shown]
    assert written(groups)[-2:] == [("system.slice", FREE), ("user.slice", FREE)]
    assert "machine.slice" not in [group for group, _ in written(groups)]


def test_what_fails_while_writes_are_held_back_lets_them_go(groups: Tree) -> None:
    with (
        pytest.raises(HostError, match="no such cache"),
        throttle.quiet(groups.kernel, "bcache0", throttle.NOTHING, waiting(groups, [])),
    ):
        raise HostError("no such cache")
    assert written(groups)[-1] == ("user.slice", FREE)


def test_a_cgroup_that_takes_no_limit_is_passed_over(groups: Tree) -> None:
    groups.kernel.refuses.add("io.max")
    with throttle.quiet(groups.kernel, "bcache0", throttle.NOTHING, waiting(groups, [])) as is_settled:
        assert is_settled is False
    with pytest.raises(HostError, match="cannot be slowed down"):
        throttle.limit_writes(groups.kernel, NUMBER, 8.0)


def test_writes_that_cannot_be_held_back_stop_nothing(tree: Tree) -> None:
    tree.kernel.lay("sys/block/bcache0/dev", NUMBER)
    with throttle.quiet(tree.kernel, "bcache0", throttle.NO_WRITES, waiting(tree, [])) as is_settled:
        assert is_settled is False
    assert tree.kernel.writes == []


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
    groups.kernel.lay("sys/fs/cgroup/system.slice/io.max", f"{NUMBER} rbps=max wbps=8250111 riops=max wiops=max")
    view = host.look(()).backing
    assert view is not None
    assert view.write_limit_mb_s == 8.25
    host.limit_writes(None)
    assert written(groups)[-1] == ("system.slice", FREE)
    assert groups.kernel.read("sys/fs/cgroup/system.slice/io.max") == ""


def test_a_limit_of_an_administrator_is_not_taken_for_the_agents(groups: Tree, host: BcacheHost) -> None:
    groups.kernel.lay("sys/fs/cgroup/system.slice/io.max", f"{NUMBER} rbps=max wbps=8250000 riops=max wiops=max")
    view = host.look(()).backing
    assert view is not None
    assert view.write_limit_mb_s is None


def test_a_cache_that_stays_dirty_is_not_bypassed(groups: Tree, host: BcacheHost) -> None:
    groups.attached("dirty")
    with pytest.raises(DeviceBusyError, match="still dirty"):
        host.bypass_cache()
    assert written(groups)[-1] == ("user.slice", FREE)
    assert "none" not in [value for _, value in groups.kernel.writes]


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
