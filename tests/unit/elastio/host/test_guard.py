"""The process that holds back applications may die, hang or be stopped at any moment: its limits are removed."""

from __future__ import annotations

import ctypes
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from elastio.errors import HostError
from elastio.host import guard, throttle
from tests.fixtures.errors import refused
from tests.fixtures.sysfs_tree import Tree
from tests.values import present

LONG_S = 30.0
USERS = "sys/fs/cgroup/user.slice/io.max"
HELD = f"251:0 {throttle.STOP}"
PR_SET_CHILD_SUBREAPER = 36  # include/uapi/linux/prctl.h


@pytest.fixture
def machine(tree: Tree) -> Iterator[Tree]:
    """A machine with a limit set; guards whose holder died become children of the test."""
    tree.kernel.lay(USERS, HELD)
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1)
    yield tree
    libc.prctl(PR_SET_CHILD_SUBREAPER, 0)


def has_ended(watch: guard.Guard) -> bool:
    """Whether its process is no longer there; one that was not waited for is there as a zombie."""
    return not psutil.pid_exists(watch.process) or psutil.Process(watch.process).status() == psutil.STATUS_ZOMBIE


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


def test_limits_are_removed_when_the_holder_is_killed(machine: Tree, watch: guard.Guard) -> None:
    said, say = os.pipe()

    def hold() -> None:
        with throttle.limited(watch, machine.kernel, ("bcache0",), throttle.STOP):
            os.write(say, b"-")
            signal.pause()

    holder = in_child(hold)
    assert os.read(said, 1)
    assert machine.kernel.read(USERS) == HELD
    os.kill(holder, signal.SIGKILL)
    reap_all()
    assert machine.kernel.read(USERS) == ""


def test_limits_are_removed_when_the_holder_dies_before_an_order_is_acknowledged(
    machine: Tree, watch: guard.Guard
) -> None:
    said, say = os.pipe()

    def order() -> None:
        watch.begin_lease()
        os.kill(watch.process, signal.SIGSTOP)
        os.write(say, watch.process.to_bytes(4, "little"))
        signal.signal(signal.SIGALRM, lambda *_: os._exit(0))
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        watch.begin_lease()

    holder = in_child(order)
    stopped = int.from_bytes(os.read(said, 4), "little")
    os.waitpid(holder, 0)
    assert machine.kernel.read(USERS) == HELD
    os.kill(stopped, signal.SIGCONT)
    reap_all()
    assert machine.kernel.read(USERS) == ""


def test_no_limit_is_set_before_the_guard_of_a_killed_holder_has_removed_its_own(
    machine: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(go_on := tmp_path / "go-on")

    def remove() -> None:
        go_on.read_text()  # waits for a writer
        throttle.release(machine.kernel)

    slow, next_holder = guard.Guard(remove), guard.Guard(partial(throttle.release, machine.kernel))
    next_holder.removers = slow.removers
    os.waitpid(in_child(slow.begin_lease), 0)
    with monkeypatch.context() as patch, refused(HostError, "limit.removers"):
        patch.setattr(guard, "ANSWER_S", 0.1)
        next_holder.begin_lease()
    go_on.write_text("")
    next_holder.begin_lease()
    machine.kernel.lay(USERS, HELD)
    assert [child.pid for child in psutil.Process().children() if child.status() != psutil.STATUS_ZOMBIE] == [
        next_holder.process
    ]
    assert machine.kernel.read(USERS) == HELD
    next_holder.dismiss()
    reap_all()


def test_the_time_of_an_order_begins_again_with_another_guard(
    machine: Tree, watch: guard.Guard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes a hundred seconds to find that the first one does not answer."""

    monkeypatch.setattr(guard, "ANSWER_S", 0.1)

    def hold() -> None:
        watch.begin_lease()
        first = watch.process
        monkeypatch.setattr(time, "monotonic", lambda: 0.0 if psutil.pid_exists(first) else 100.0)
        watch.pulse.beat()
        os.kill(first, signal.SIGSTOP)
        with watch.holding(50.0):
            select.select([], [], [], 0.5)

    holder = in_child(hold)
    assert reap_all()[holder] == 0


@pytest.mark.parametrize("hang", [signal.pause, stop])
@pytest.mark.parametrize("earlier", [lambda _: None, guard.Guard.begin_lease], ids=["nothing", "a lasting limit"])
def test_a_holder_that_takes_too_long_is_killed_before_limits_are_removed(
    machine: Tree, watch: guard.Guard, hang: Callable[[], object], earlier: Callable[[guard.Guard], object]
) -> None:
    def hold() -> None:
        earlier(watch)
        with watch.holding(0.0):
            hang()

    holder = in_child(hold)
    assert reap_all()[holder] == -signal.SIGKILL
    assert machine.kernel.read(USERS) == ""


def test_a_holder_that_was_in_time_is_not_killed_later(machine: Tree, watch: guard.Guard) -> None:
    def hold() -> None:
        with watch.holding(1.0):
            pass
        select.select([], [], [], 1.5)

    holder = in_child(hold)
    assert reap_all()[holder] == 0


def test_a_guard_that_does_not_answer_is_replaced(
    machine: Tree, watch: guard.Guard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "ANSWER_S", 0.1)
    watch.begin_lease()
    first = watch.process
    os.kill(first, signal.SIGSTOP)
    with watch.holding():
        assert not psutil.pid_exists(first)
        assert not has_ended(watch)


def test_a_holder_whose_guard_was_killed_removes_its_limits_and_has_another_guard(
    machine: Tree, watch: guard.Guard
) -> None:
    with throttle.limited(watch, machine.kernel, ("bcache0",), throttle.STOP):
        first = watch.process
        os.kill(first, signal.SIGKILL)
    assert machine.kernel.read(USERS) == ""
    with throttle.limited(watch, machine.kernel, ("bcache0",), throttle.STOP):
        assert watch.process != first
        assert not has_ended(watch)


def test_nothing_is_limited_without_a_guard(machine: Tree, watch: guard.Guard, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", refuse)
    with pytest.raises(HostError), throttle.limited(watch, machine.kernel, ("bcache0",), throttle.STOP):
        pytest.fail("it was entered")
    assert machine.kernel.writes == []


def test_a_guard_keeps_its_pages_in_memory_where_that_is_allowed_and_shares_them(
    machine: Tree, watch: guard.Guard, runs_programs: None
) -> None:
    program = "from elastio.host.machine import stay_in_memory; print(stay_in_memory())"
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    watch.begin_lease()
    assert (memory_kb(watch.process, "status", "VmLck") > 0) == (told.strip() == "None")
    own, all_ = (memory_kb(watch.process, "smaps_rollup", name) for name in ("Private_Dirty", "Rss"))
    assert own < all_ / 4, "what it shared with its holder was copied"


def memory_kb(process: int, file: str, name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+) kB", Path(f"/proc/{process}/{file}").read_text(), re.MULTILINE)
    return int(present(found)[1])


def test_nothing_is_limited_before_the_guard_is_locked_in_memory(
    machine: Tree, watch: guard.Guard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mlockall(flags: int) -> int:
        time.sleep(0.2)
        (tmp_path / "locked").touch()
        return 0

    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: SimpleNamespace(mlockall=mlockall))
    with throttle.limited(watch, machine.kernel, ("bcache0",), throttle.STOP):
        assert (tmp_path / "locked").exists()


def test_nothing_is_limited_where_the_guard_does_not_come_up(
    machine: Tree, watch: guard.Guard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "START_S", 0.1)
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: SimpleNamespace(mlockall=lambda _: signal.pause()))
    with pytest.raises(HostError), throttle.limited(watch, machine.kernel, ("bcache0",), throttle.STOP):
        pytest.fail("it was entered")
    assert machine.kernel.writes == []
    assert not psutil.pid_exists(watch.process)


def test_one_guard_serves_every_limit_of_its_holder(machine: Tree, watch: guard.Guard) -> None:
    watch.begin_lease()
    first = watch.process
    for _ in range(2):
        with watch.holding():
            pass
        watch.begin_lease()
        watch.end_lease()
    assert watch.process == first
    watch.dismiss()
    assert has_ended(watch)


def test_what_is_left_after_a_failure_is_removed_before_it_is_told(machine: Tree, watch: guard.Guard) -> None:
    with pytest.raises(KeyError), watch.holding():
        raise KeyError
    assert machine.kernel.read(USERS) == ""


def test_a_guard_keeps_no_inherited_descriptor_open(machine: Tree, watch: guard.Guard) -> None:
    reader, writer = os.pipe()
    with watch.holding():
        os.close(writer)
        assert select.select([reader], [], [], LONG_S)[0]
    os.close(reader)


@pytest.mark.parametrize(("term_s", "beat_at"), [(guard.TERM_S, 0.0), (0.0, 1e12)])
def test_a_lasting_limit_ends_without_a_heartbeat_and_at_its_term(
    machine: Tree, watch: guard.Guard, monkeypatch: pytest.MonkeyPatch, term_s: float, beat_at: float
) -> None:
    monkeypatch.setattr(guard, "TERM_S", term_s)

    def slow_down() -> None:
        watch.begin_lease()
        os.waitpid(-1, 0)

    watch.pulse.beat(beat_at)
    holder = in_child(slow_down)
    assert reap_all() == {holder: 0}
    assert machine.kernel.read(USERS) == ""


def test_a_guard_that_removes_limits_ends_before_others_are_set(machine: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "ANSWER_S", 0.1)
    slow = guard.Guard(signal.pause)
    slow.pulse.beat(0.0)
    slow.begin_lease()
    first = slow.process
    with throttle.limited(slow, machine.kernel, ("bcache0",), throttle.STOP):
        assert not psutil.pid_exists(first)
    os.kill(slow.process, signal.SIGKILL)
    slow.dismiss()


def test_a_lasting_limit_lasts_while_the_heart_beats(machine: Tree, watch: guard.Guard) -> None:
    watch.begin_lease()
    assert machine.kernel.read(USERS) == HELD
    watch.begin_lease()
    assert machine.kernel.read(USERS) == HELD
    assert not has_ended(watch)
    watch.end_lease()
    assert machine.kernel.read(USERS) == ""


def test_a_lasting_limit_stays_while_requests_are_held_back(machine: Tree, watch: guard.Guard) -> None:
    watch.begin_lease()
    with watch.holding():
        assert machine.kernel.read(USERS) == HELD


def test_a_lasting_limit_ends_with_the_process_that_set_it(machine: Tree, watch: guard.Guard) -> None:
    in_child(watch.begin_lease)
    reap_all()
    assert machine.kernel.read(USERS) == ""
