"""The process that holds back applications may die, hang or be stopped at any moment: its limits are removed."""

from __future__ import annotations

import ctypes
import os
import select
import signal
from collections.abc import Callable, Iterator
from functools import partial

import psutil
import pytest

from elastio.errors import HostError
from elastio.host import guard, throttle
from tests.fixtures.sysfs_tree import Tree

LONG_S = 30.0
USERS = "sys/fs/cgroup/user.slice/io.max"
HELD = f"251:0 {throttle.STOP} riops=max wiops=max"
PR_SET_CHILD_SUBREAPER = 36  # include/uapi/linux/prctl.h


@pytest.fixture
def machine(tree: Tree) -> Iterator[Tree]:
    """A machine with a limit set; guards whose holder died become children of the test."""
    tree.kernel.lay(USERS, HELD)
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1)
    yield tree
    libc.prctl(PR_SET_CHILD_SUBREAPER, 0)


def in_child(work: Callable[[], object]) -> int:
    """The process that does it."""
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(0)
    return child


def reap_all() -> dict[int, int | None]:
    """The exit codes of all children, once all have ended by themselves; a guard becomes one when its holder dies."""
    codes: dict[int, int | None] = {}
    while children := psutil.Process().children():
        ended, still_there = psutil.wait_procs(children, timeout=LONG_S)
        codes.update({child.pid: child.wait() for child in ended})
        for child in still_there:
            child.kill()
        assert not still_there
    return codes


def stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def test_limits_are_removed_when_the_holder_is_killed(machine: Tree) -> None:
    said, say = os.pipe()

    def hold() -> None:
        with throttle.limited(machine.kernel, ("bcache0",), throttle.STOP):
            os.write(say, b"-")
            signal.pause()

    holder = in_child(hold)
    assert os.read(said, 1)
    assert machine.kernel.read(USERS) == HELD
    os.kill(holder, signal.SIGKILL)
    reap_all()
    assert machine.kernel.read(USERS) == ""


@pytest.mark.parametrize("hang", [signal.pause, stop])
def test_a_holder_that_takes_too_long_is_killed_before_limits_are_removed(
    machine: Tree, hang: Callable[[], object]
) -> None:
    def hold() -> None:
        with guard.watched(partial(throttle.release, machine.kernel), 0.0):
            hang()

    holder = in_child(hold)
    assert reap_all()[holder] == -signal.SIGKILL
    assert machine.kernel.read(USERS) == ""


def test_a_holder_whose_guard_was_killed_removes_its_limits(machine: Tree) -> None:
    with throttle.limited(machine.kernel, ("bcache0",), throttle.STOP):
        (watcher,) = psutil.Process().children()
        watcher.kill()
    assert machine.kernel.read(USERS) == ""


def test_nothing_is_limited_without_a_guard(machine: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", refuse)
    with pytest.raises(HostError), throttle.limited(machine.kernel, ("bcache0",), throttle.STOP):
        pytest.fail("it was entered")
    assert machine.kernel.writes == []


def test_a_guard_keeps_no_inherited_descriptor_open(machine: Tree) -> None:
    reader, writer = os.pipe()
    with guard.watched(partial(throttle.release, machine.kernel)):
        os.close(writer)
        assert select.select([reader], [], [], LONG_S)[0]
    os.close(reader)


@pytest.mark.parametrize(("term_s", "beat_at"), [(guard.TERM_S, 0.0), (0.0, None)])
def test_a_lasting_limit_ends_without_a_heartbeat_and_at_its_term(
    machine: Tree, monkeypatch: pytest.MonkeyPatch, term_s: float, beat_at: float | None
) -> None:
    monkeypatch.setattr(guard, "TERM_S", term_s)
    lease = guard.Lease(partial(throttle.release, machine.kernel))

    def slow_down() -> None:
        lease.begin()
        os.waitpid(-1, 0)

    lease.pulse.beat(beat_at)
    holder = in_child(slow_down)
    assert reap_all() == {holder: 0}
    assert machine.kernel.read(USERS) == ""


def test_a_lasting_limit_lasts_while_the_heart_beats(machine: Tree) -> None:
    lease = guard.Lease(partial(throttle.release, machine.kernel))
    lease.begin()
    assert machine.kernel.read(USERS) == HELD
    assert psutil.Process().children()
    lease.end()
    assert machine.kernel.read(USERS) == ""


def test_a_lasting_limit_stays_while_it_is_replaced(machine: Tree) -> None:
    lease = guard.Lease(partial(throttle.release, machine.kernel))
    lease.begin()
    lease.begin()
    assert machine.kernel.read(USERS) == HELD
    assert len(psutil.Process().children()) == 1
    lease.end()


def test_a_lasting_limit_that_is_handed_over_stays_and_its_guard_ends(machine: Tree) -> None:
    lease = guard.Lease(partial(throttle.release, machine.kernel))
    lease.begin()
    lease.hand_over()
    assert machine.kernel.read(USERS) == HELD
    assert not psutil.Process().children()


def test_a_lasting_limit_ends_with_the_process_that_set_it(machine: Tree) -> None:
    lease = guard.Lease(partial(throttle.release, machine.kernel))
    in_child(lease.begin)
    reap_all()
    assert machine.kernel.read(USERS) == ""
