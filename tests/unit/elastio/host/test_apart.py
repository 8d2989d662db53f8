"""A write by a process of its own: at once, or by one that was started ahead."""

from __future__ import annotations

import os
import select
import signal
from pathlib import Path

import pytest

from elastio.errors import HostError
from elastio.host.sysfs import Sysfs, wait_for
from tests.fixtures.errors import refused


@pytest.fixture
def sysfs(tmp_path: Path) -> Sysfs:
    (tmp_path / "percent").write_text("10\n")
    return Sysfs(tmp_path)


def test_a_write_apart_is_a_write(sysfs: Sysfs) -> None:
    sysfs.write_apart("percent", 40, 10)
    assert sysfs.read("percent") == "40"
    with refused(HostError, "ENOENT"):
        sysfs.write_apart("gone", 1, 10)
    with refused(HostError, "ENOSPC"):
        Sysfs(Path("/dev")).write_apart("full", "x", 10)


@pytest.fixture
def slow(tmp_path: Path) -> Sysfs:
    """A file whose writes wait until somebody reads it."""
    os.mkfifo(tmp_path / "slow")
    return Sysfs(tmp_path)


def test_a_write_apart_outlives_a_killed_process(slow: Sysfs) -> None:
    ours, theirs = os.pipe()
    caller = os.fork()
    if caller == 0:
        try:
            with refused(HostError, "ETIMEDOUT"):
                slow.write_apart("slow", "late", 0.05)
            os.write(theirs, b"-")
            signal.pause()
        finally:
            os._exit(1)
    assert os.read(ours, 1) == b"-"
    os.kill(caller, signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(caller, 0)[1]) == -signal.SIGKILL
    assert slow.read("slow") == "late"
    os.close(ours)
    os.close(theirs)


def test_a_write_apart_leaves_the_unit_of_its_caller(sysfs: Sysfs) -> None:
    own = "sys/fs/cgroup/cgroup.procs"
    sysfs.path(own).parent.mkdir(parents=True)
    sysfs.path(own).touch()
    sysfs.write_apart("percent", 40, 10)
    assert int(sysfs.read(own)) != os.getpid()


def test_no_second_write_apart_begins_while_one_hangs(slow: Sysfs) -> None:
    for _ in range(2):
        with refused(HostError, "ETIMEDOUT"):
            slow.write_apart("slow", "late", 0.05)
    children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children")
    assert len([child for child in children.read_text().split() if os.getsid(int(child)) == int(child)]) == 1
    assert slow.read("slow") == "late"
    (slow.root / "next").touch()
    assert wait_for(lambda: takes(slow), 10), "the one that has ended is reaped"
    assert slow.read("next") == "1"


def takes(kernel: Sysfs) -> bool:
    try:
        kernel.write_apart("next", 1, 10)
    except HostError:
        return False
    return True


def test_a_write_apart_may_take_effect_after_its_time(slow: Sysfs) -> None:
    ours, theirs = os.pipe()
    with refused(HostError, "ETIMEDOUT"):
        slow.write_apart("slow", "late", 0.05)
    os.close(theirs)
    is_closed = bool(select.select([ours], [], [], 5)[0])
    os.close(ours)
    assert slow.read("slow") == "late"
    os.wait()
    assert is_closed, "the process that writes keeps nothing of its parent's open"


def own_children() -> set[int]:
    return set(map(int, Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()))


def test_a_process_that_was_started_ahead_writes_once(sysfs: Sysfs) -> None:
    before = own_children()
    sysfs.expect_apart(is_expected=True)
    sysfs.expect_apart(is_expected=True)
    assert len(own_children() - before) == 1
    sysfs.write_apart("percent", 40, 10)
    assert (sysfs.read("percent"), own_children()) == ("40", before)
    sysfs.write_apart("percent", 41, 10)
    assert (sysfs.read("percent"), own_children()) == ("41", before)


def test_one_that_waits_is_ended_without_a_write(sysfs: Sysfs) -> None:
    before = own_children()
    sysfs.expect_apart(is_expected=True)
    sysfs.expect_apart(is_expected=False)
    assert wait_for(lambda: has_reaped(sysfs, before), 10)
    assert sysfs.read("percent") == "10"


def has_reaped(sysfs: Sysfs, before: set[int]) -> bool:
    sysfs.expect_apart(is_expected=False)
    return own_children() == before


def test_one_that_was_killed_while_it_waited_is_replaced(sysfs: Sysfs) -> None:
    before = own_children()
    sysfs.expect_apart(is_expected=True)
    (waiting,) = own_children() - before
    ended = os.pidfd_open(waiting)
    os.kill(waiting, signal.SIGKILL)
    assert select.select([ended], [], [], 10)[0]
    os.close(ended)
    sysfs.write_apart("percent", 40, 10)
    assert (sysfs.read("percent"), own_children()) == ("40", before)


def test_one_that_waits_ends_with_its_parent(sysfs: Sysfs) -> None:
    """It has left its parent's session and unit: nobody else ends it."""
    ours, theirs = os.pipe()
    parent = os.fork()
    if parent == 0:
        try:
            before = own_children()
            sysfs.expect_apart(is_expected=True)
            (waiting,) = own_children() - before
            os.write(theirs, str(waiting).encode())
            signal.pause()
        finally:
            os._exit(1)
    waiting = os.pidfd_open(int(os.read(ours, 20)))
    os.kill(parent, signal.SIGKILL)
    os.waitpid(parent, 0)
    has_ended = bool(select.select([waiting], [], [], 10)[0])
    for descriptor in (ours, theirs, waiting):
        os.close(descriptor)
    assert has_ended
    assert sysfs.read("percent") == "10"
