"""Workers with real children: results, children that are given up, and children that die."""

from __future__ import annotations

import logging
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import wait

import pytest

from elastio.agent.worker import ForkWorker
from elastio.errors import ConfigError
from tests.values import present

from .children import LONG_S, TextWorker, answer, do, let_die


def wait_until(condition: Callable[[], bool]) -> bool:
    """Bounded."""
    end = time.monotonic() + LONG_S
    while not condition() and time.monotonic() < end:
        select.select([], [], [], 0.001)
    return condition()


def test_is_busy_from_the_job_to_its_answer_which_comes_once(worker: TextWorker) -> None:
    assert not worker.busy
    worker.submit("one", LONG_S)
    assert (worker.busy, worker.stuck) == (True, False)
    assert answer(worker) == "ONE"
    assert not worker.busy
    assert worker.poll() is None
    assert worker.readable_pipe() is None
    assert worker.next_event_at() is None


def test_one_child_serves_all_jobs(worker: TextWorker) -> None:
    assert do(worker, "pid") == do(worker, "pid") != str(os.getpid())


class Turns:
    """Takes a turn whenever asked, and counts; after `most` nothing is to be done, or the next turn is a bug."""

    def __init__(self, most: int, *, is_buggy: bool = False) -> None:
        self.most, self.taken, self.is_buggy = most, 0, is_buggy

    def wait_s(self) -> float | None:
        return 0.0 if self.taken < self.most else None

    def turn(self) -> None:
        self.taken += 1
        if self.is_buggy:
            raise ZeroDivisionError


def test_turns_are_taken_between_jobs_and_never_delay_one() -> None:
    turns = Turns(3)
    worker: TextWorker = ForkWorker("test", lambda job: f"{job} {turns.taken}", lambda job, s: "lost", between=turns)
    worker.start()
    assert wait_until(lambda: do(worker, "turns") == "turns 3")
    turns.most = 10**9
    endless: TextWorker = ForkWorker("test", str.upper, lambda job, s: "lost", between=turns)
    assert do(endless, "one") == "ONE"
    for each in (worker, endless):
        each.close(0.0)


def test_a_bug_in_a_turn_ends_the_child_and_the_next_one_serves(caplog: pytest.LogCaptureFixture) -> None:
    worker: TextWorker = ForkWorker("test", str.upper, lambda job, s: "lost", between=Turns(1, is_buggy=True))
    worker.start()
    child = present(worker._child)
    assert wait_until(lambda: not child.is_alive())
    worker._between = None
    assert do(worker, "one") == "ONE"
    worker.close(0.0)


def test_a_child_keeps_its_pages_in_memory_where_that_is_allowed(worker: TextWorker, runs_programs: None) -> None:
    program = "from elastio.host.machine import stay_in_memory; print(stay_in_memory())"
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert (int(do(worker, "locked")) > 0) == (told.strip() == "None")


def test_a_busy_worker_takes_no_job(worker: TextWorker) -> None:
    worker.submit("hang", LONG_S)
    with pytest.raises(RuntimeError):
        worker.submit("two", LONG_S)


def test_a_result_larger_than_a_pipe_comes_back_whole(worker: TextWorker) -> None:
    assert do(worker, "large:5000000") == "x" * 5_000_000


def test_an_answer_that_is_there_counts_even_after_the_deadline(worker: TextWorker) -> None:
    worker.submit("one", 0.0)
    awaited = present(worker.readable_pipe())
    assert wait([awaited], LONG_S)
    assert worker.poll() == "ONE"


def test_a_job_past_its_deadline_is_lost_and_the_next_one_works(worker: TextWorker) -> None:
    first = do(worker, "pid")
    assert do(worker, "hang", 0.02) == "lost hang"
    let_die(worker)
    assert not worker.busy
    assert do(worker, "pid") not in (first, "lost pid")


@pytest.mark.parametrize("job", ["die", "exit"])
def test_a_job_whose_child_dies_is_lost_at_once(worker: TextWorker, job: str) -> None:
    assert do(worker, job) == f"lost {job}"
    let_die(worker)
    assert not worker.busy
    assert do(worker, "two") == "TWO"


def test_a_child_that_died_between_two_jobs_is_replaced(worker: TextWorker) -> None:
    os.kill(int(do(worker, "pid")), signal.SIGKILL)
    let_die(worker)
    assert do(worker, "two") == "TWO"


def test_a_child_that_dies_just_before_it_takes_the_job_loses_it(
    worker: TextWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The death is seen only when the job is sent: then it must not be the agent that fails."""
    os.kill(int(do(worker, "pid")), signal.SIGKILL)
    let_die(worker)
    with monkeypatch.context() as looks_alive:
        looks_alive.setattr("multiprocessing.process.BaseProcess.is_alive", lambda self: True)
        worker.submit("two", LONG_S)
    assert answer(worker) == "lost two"


def test_a_bug_in_a_job_loses_the_job_and_is_logged(worker: TextWorker, capfd: pytest.CaptureFixture[str]) -> None:
    handler = logging.StreamHandler(sys.__stderr__)
    logging.getLogger("elastio.agent.worker").addHandler(handler)
    try:
        assert do(worker, "bug") == "lost bug"
    finally:
        logging.getLogger("elastio.agent.worker").removeHandler(handler)
    let_die(worker)
    assert do(worker, "two") == "TWO"
    assert "ZeroDivisionError: of all things" in capfd.readouterr().err


def test_a_child_is_warm_before_its_first_job(make: Callable[..., TextWorker]) -> None:
    warmed: list[int] = []
    worker: ForkWorker[str, int] = ForkWorker("warm", lambda _: len(warmed), lambda _, __: -1, lambda: warmed.append(1))
    worker.submit("one", LONG_S)
    assert answer(worker) == 1
    assert warmed == []  # in the child, not here
    assert worker.trouble == ""
    worker.close(0.0)


def test_the_time_of_a_job_counts_from_the_end_of_the_warm_up(make: Callable[..., TextWorker]) -> None:
    """Else an import that takes longer than the first job may would be killed and started again for ever."""
    warm, go_on = os.pipe()
    worker = make("slow", lambda: os.read(warm, 1))
    worker.submit("pid", 0.0)
    assert wait_until(lambda: time.monotonic() > worker._began)
    assert worker.poll() is None
    assert worker.busy
    due = present(worker.next_event_at())
    assert due > time.monotonic() + LONG_S
    os.write(go_on, b"x")
    assert answer(worker)  # in time or not: it was tried
    assert worker.next_event_at() is None
    os.close(warm)
    os.close(go_on)


def test_a_warm_up_that_never_ends_is_given_up_and_the_next_one_has_longer(
    make: Callable[..., TextWorker], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("elastio.agent.worker.WARM_UP_S", 0.02)
    worker = make("never", signal.pause)
    assert do(worker, "one") == "lost one"
    assert worker.trouble
    assert worker._warm_up_s == 0.04
    let_die(worker)


@pytest.mark.parametrize("error", [ConfigError("no such provider is installed"), ImportError("no SDK here")])
def test_what_is_wrong_with_a_start_is_known_before_the_first_job_and_takes_none_with_it(
    error: Exception, make: Callable[..., TextWorker], caplog: pytest.LogCaptureFixture
) -> None:
    def refuse() -> None:
        raise error

    worker = make("cloud", refuse)
    worker.start()
    awaited = worker.readable_pipe()
    assert awaited is not None  # a driver is woken by it
    assert wait([awaited], LONG_S)
    assert worker.poll() is None
    assert str(error) in worker.trouble
    assert caplog.records
    assert worker.readable_pipe() is None
    assert do(worker, "one") == "ONE"


def test_a_child_that_dies_while_it_warms_up_wakes_nobody_twice(make: Callable[..., TextWorker]) -> None:
    worker = make("dying", lambda: os._exit(1))
    worker.start()
    awaited = present(worker.readable_pipe())
    assert wait([awaited], LONG_S)
    assert worker.poll() is None
    assert worker.readable_pipe() is None
    assert worker.trouble
    let_die(worker)
    assert not worker.busy


@pytest.mark.parametrize(("job", "wait_s"), [("two", LONG_S), ("hang", 0.0)])
def test_closing_ends_the_child_and_waits_for_its_job_no_longer_than_told(
    job: str, wait_s: float, worker: TextWorker
) -> None:
    pid = int(do(worker, "pid"))
    worker.submit(job, LONG_S)
    worker.close(wait_s)
    assert worker.readable_pipe() is None
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


PARENT = """
import os, signal, sys
from elastio.agent.worker import ForkWorker
def work(job):
    print(os.getpid(), flush=True)
    signal.pause()
worker = ForkWorker("orphan", work, lambda job, s: None)
worker.submit("hang", 60.0)
signal.pause()
"""


@pytest.mark.runs_programs
def test_the_child_dies_with_its_parent_however_that_dies() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        assert select.select([parent.stdout], [], [], LONG_S)[0]
        child = os.pidfd_open(int(parent.stdout.readline()))
        parent.kill()
        try:
            assert select.select([child], [], [], LONG_S)[0]
        finally:
            os.close(child)


def test_a_child_holds_no_pipe_of_another_worker(make: Callable[..., TextWorker]) -> None:
    """Else a pipe that its worker has closed would not end, and a selector would report it for ever."""
    alone = do(make("alone"), "sockets")
    for name in ("b", "c", "d"):
        do(make(name), "one")
    assert do(make("last"), "sockets") == alone
