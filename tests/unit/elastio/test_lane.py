"""Workers with real children: answers, children given up, children that die, and a driver that is woken by them."""

from __future__ import annotations

import logging
import multiprocessing
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import wait
from pathlib import Path

import pytest

from elastio.agent.event_loop import EventLoop
from elastio.agent.worker import ForkWorker, Result
from elastio.core.model import Request
from elastio.core.observation import Answer
from elastio.core.state import AgentState
from elastio.errors import ConfigError
from elastio.host.sdnotify import Notifier

LONG_S = 30.0
TextLane = ForkWorker[str, str]


def work(job: str) -> str:
    match job.split(":"):
        case ["hang"]:
            signal.pause()
        case ["die"]:
            os.kill(os.getpid(), signal.SIGKILL)
        case ["exit"]:
            os._exit(0)
        case ["bug"]:
            raise ZeroDivisionError("of all things")
        case ["large", size]:
            return "x" * int(size)
        case ["locked"]:
            return next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmLck:"))
        case ["pid"]:
            return str(os.getpid())
        case ["sockets"]:
            links = [str(p.readlink()) for p in Path("/proc/self/fd").iterdir() if p.is_symlink()]
            return str(sum(link.startswith("socket:") for link in links))
    return job.upper()


def lost(job: str, seconds: float) -> str:
    assert seconds >= 0
    return f"lost {job}"


def wait_until(condition: Callable[[], bool]) -> bool:
    """Bounded."""
    end = time.monotonic() + LONG_S
    while not condition() and time.monotonic() < end:
        select.select([], [], [], 0.001)
    return condition()


def answer(worker: ForkWorker[str, Result]) -> Result:
    """What `poll` says in the end; bounded."""
    end = time.monotonic() + LONG_S
    while time.monotonic() < end:
        result = worker.poll()
        if result is not None:
            return result
        due = worker.next_event_at()
        assert due is not None
        awaited = worker.readable_pipe()
        assert awaited is not None
        select.select([awaited.fileno()], [], [], max(0.001, due - time.monotonic() + 0.001))
    raise AssertionError("the worker said nothing")


def let_die(worker: TextLane) -> None:
    """Wait until the worker's child, which was killed or told to end, is dead."""
    mine = [c for c in multiprocessing.active_children() if c.name == f"elastio-{worker.name}"]
    for child in mine:
        child.join(LONG_S)
        assert not child.is_alive()


def do(worker: TextLane, job: str, timeout_s: float = LONG_S) -> str:
    worker.submit(job, timeout_s)
    return answer(worker)


@pytest.fixture
def make() -> Iterator[Callable[..., TextLane]]:
    made: list[TextLane] = []

    def new(name: str = "test", warm_up: Callable[[], None] | None = None) -> TextLane:
        worker: TextLane = ForkWorker(name, work, lost, warm_up)
        made.append(worker)
        return worker

    yield new
    for worker in made:
        worker.close(0.0)


@pytest.fixture
def worker(make: Callable[..., TextLane]) -> TextLane:
    return make()


# --- answers -----------------------------------------------------------------------------------------------


def test_a_result_comes_back_once(worker: TextLane) -> None:
    assert do(worker, "one") == "ONE"
    assert worker.poll() is None
    assert worker.readable_pipe() is None
    assert worker.next_event_at() is None


def test_one_child_serves_all_jobs(worker: TextLane) -> None:
    assert do(worker, "pid") == do(worker, "pid") != str(os.getpid())


def test_a_child_keeps_its_pages_in_memory_where_that_is_allowed(worker: TextLane, runs_programs: None) -> None:
    program = "from elastio.host.mlock import stay_in_memory; print(stay_in_memory())"
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert (int(do(worker, "locked")) > 0) == (told.strip() == "None")


def test_is_busy_from_the_job_to_its_answer(worker: TextLane) -> None:
    assert not worker.busy
    worker.submit("one", LONG_S)
    assert worker.busy
    assert not worker.stuck
    answer(worker)
    assert not worker.busy


def test_a_busy_lane_takes_no_job(worker: TextLane) -> None:
    worker.submit("hang", LONG_S)
    with pytest.raises(RuntimeError, match="worker test is busy"):
        worker.submit("two", LONG_S)


def test_a_result_larger_than_a_pipe_comes_back_whole(worker: TextLane) -> None:
    assert do(worker, "large:5000000") == "x" * 5_000_000


def test_an_answer_that_is_there_counts_even_after_the_deadline(worker: TextLane) -> None:
    worker.submit("one", 0.0)
    awaited = worker.readable_pipe()
    assert awaited is not None
    assert wait([awaited], LONG_S)
    assert worker.poll() == "ONE"


# --- no answer ---------------------------------------------------------------------------------------------


def test_a_job_past_its_deadline_is_lost_and_the_next_one_works(worker: TextLane) -> None:
    first = do(worker, "pid")
    assert do(worker, "hang", 0.02) == "lost hang"
    let_die(worker)
    assert not worker.busy
    assert do(worker, "pid") not in (first, "lost pid")


@pytest.mark.parametrize("job", ["die", "exit"])
def test_a_job_whose_child_dies_is_lost_at_once(worker: TextLane, job: str) -> None:
    assert do(worker, job) == f"lost {job}"
    let_die(worker)
    assert not worker.busy
    assert do(worker, "two") == "TWO"


def test_a_child_that_died_between_two_jobs_is_replaced(worker: TextLane) -> None:
    os.kill(int(do(worker, "pid")), signal.SIGKILL)
    let_die(worker)
    assert do(worker, "two") == "TWO"


def test_a_child_that_dies_just_before_it_takes_the_job_loses_it(
    worker: TextLane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The death is seen only when the job is sent: then it must not be the agent that fails."""
    os.kill(int(do(worker, "pid")), signal.SIGKILL)
    let_die(worker)
    with monkeypatch.context() as looks_alive:
        looks_alive.setattr("multiprocessing.process.BaseProcess.is_alive", lambda self: True)
        worker.submit("two", LONG_S)
    assert answer(worker) == "lost two"


def test_a_bug_in_a_job_loses_the_job_and_is_logged(worker: TextLane, capfd: pytest.CaptureFixture[str]) -> None:
    handler = logging.StreamHandler(sys.__stderr__)
    logging.getLogger("elastio.agent.worker").addHandler(handler)
    try:
        assert do(worker, "bug") == "lost bug"
    finally:
        logging.getLogger("elastio.agent.worker").removeHandler(handler)
    let_die(worker)
    assert do(worker, "two") == "TWO"
    said = capfd.readouterr().err
    assert "worker test" in said
    assert "ZeroDivisionError: of all things" in said


def test_a_start_that_fails_does_not_take_the_jobs_with_it(make: Callable[..., TextLane]) -> None:
    def fail() -> None:
        raise ImportError("no SDK here")

    worker = make("cold", fail)
    assert do(worker, "one") == "ONE"


def test_a_child_is_warm_before_its_first_job(make: Callable[..., TextLane]) -> None:
    warmed: list[int] = []
    worker: ForkWorker[str, int] = ForkWorker("warm", lambda _: len(warmed), lambda _, __: -1, lambda: warmed.append(1))
    worker.submit("one", LONG_S)
    assert answer(worker) == 1
    assert warmed == []  # in the child, not here
    assert worker.trouble == ""
    worker.close(0.0)


def test_the_time_of_a_job_counts_from_the_end_of_the_warm_up(make: Callable[..., TextLane]) -> None:
    """Else an import that takes longer than the first job may would be killed and begun anew for ever."""
    warm, go_on = os.pipe()
    worker = make("slow", lambda: os.read(warm, 1))
    worker.submit("pid", 0.0)
    assert wait_until(lambda: time.monotonic() > worker._began)
    assert worker.poll() is None
    assert worker.busy
    due = worker.next_event_at()
    assert due is not None
    assert due > time.monotonic() + LONG_S
    os.write(go_on, b"x")
    assert answer(worker)  # in time or not: it was tried
    assert worker.next_event_at() is None
    os.close(warm)
    os.close(go_on)


def test_a_warm_up_that_never_ends_is_given_up_and_the_next_one_has_longer(
    make: Callable[..., TextLane], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("elastio.agent.worker.WARM_UP_S", 0.02)
    worker = make("never", signal.pause)
    assert do(worker, "one") == "lost one"
    assert "was not ready in time" in worker.trouble
    assert worker._warm_up_s == 0.04
    let_die(worker)


def test_what_is_wrong_with_a_start_is_known_before_the_first_job(
    make: Callable[..., TextLane], caplog: pytest.LogCaptureFixture
) -> None:
    def refuse() -> None:
        raise ConfigError("no such provider is installed")

    worker = make("cloud", refuse)
    worker.start()
    awaited = worker.readable_pipe()
    assert awaited is not None  # a driver is woken by it
    assert wait([awaited], LONG_S)
    assert worker.poll() is None
    assert worker.trouble == "no such provider is installed"
    assert "worker cloud: no such provider is installed" in caplog.text
    assert worker.readable_pipe() is None
    assert do(worker, "one") == "ONE"


def test_a_child_that_dies_while_it_warms_up_wakes_nobody_twice(make: Callable[..., TextLane]) -> None:
    worker = make("dying", lambda: os._exit(1))
    worker.start()
    awaited = worker.readable_pipe()
    assert awaited is not None
    assert wait([awaited], LONG_S)
    assert worker.poll() is None
    assert worker.readable_pipe() is None
    assert "ended" in worker.trouble
    let_die(worker)
    assert not worker.busy


# --- the end -----------------------------------------------------------------------------------------------


def test_closing_waits_for_a_job_and_ends_the_child(worker: TextLane) -> None:
    pid = int(do(worker, "pid"))
    worker.submit("two", LONG_S)
    worker.close(LONG_S)
    assert worker.readable_pipe() is None
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_hanging_child_does_not_outlive_the_worker(worker: TextLane) -> None:
    pid = int(do(worker, "pid"))
    worker.submit("hang", LONG_S)
    worker.close(0.0)
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


def test_a_child_holds_no_pipe_of_another_worker(make: Callable[..., TextLane]) -> None:
    """Else a pipe that its worker has closed would not end, and a selector would report it for ever."""
    alone = do(make("alone"), "sockets")
    for name in ("b", "c", "d"):
        do(make(name), "one")
    assert do(make("last"), "sockets") == alone


# --- driven by a selector ----------------------------------------------------------------------------------


class Script:
    """Stands where the agent does: one function per turn of the driver, then it asks to stop."""

    state = AgentState()

    def __init__(self, *turns: Callable[[], None]) -> None:
        self._turns = list(turns)

    def request(self, request: Request, answered: Callable[[Answer], None]) -> None:
        answered(Answer(request, True, "stopping"))

    def wake_at(self) -> float:
        return 0.0

    def step(self) -> None:
        if self._turns:
            self._turns.pop(0)()
        else:
            signal.raise_signal(signal.SIGTERM)


@pytest.fixture
def signals() -> Iterator[None]:
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = [signal.getsignal(n) for n in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


def drive(workers: tuple[TextLane, ...], script: Callable[[EventLoop], list[Callable[[], None]]]) -> list[str]:
    """Run a driver over the script; returns what `on_hangup` was called for."""
    hangups: list[str] = []
    driver = EventLoop(Script(lambda: None), workers, Notifier({}))  # type: ignore[arg-type]
    driver._agent = Script(*script(driver))  # type: ignore[assignment]
    driver.run(lambda: hangups.append("hangup"), lambda: None)
    driver.selector.close()
    return hangups


def reported(driver: EventLoop) -> list[object]:
    """The workers that the selector says are ready, now."""
    return [key.data for key, _ in driver.selector.select(0) if isinstance(key.data, ForkWorker)]


@pytest.mark.usefixtures("signals")
def test_a_driver_is_woken_by_the_child_that_replaced_a_killed_one(make: Callable[..., TextLane]) -> None:
    """The new pipe often has the number of the old one, which the kernel has dropped from the selector."""
    first, second = make("first"), make("second")
    first.start()
    second.start()
    seen: list[list[object]] = []

    def script(driver: EventLoop) -> list[Callable[[], None]]:
        def replace() -> None:
            assert answer(first) == "lost hang"
            let_die(first)
            first.submit("two", LONG_S)

        def scan() -> None:
            awaited = first.readable_pipe()
            assert awaited is not None
            assert wait([awaited], LONG_S)
            seen.append(reported(driver))
            assert first.poll() == "TWO"

        return [lambda: first.submit("hang", 0.02), lambda: None, replace, scan, lambda: seen.append(reported(driver))]

    drive((first, second), script)
    assert seen == [[first], []]


@pytest.mark.usefixtures("signals")
def test_a_child_that_dies_idle_wakes_nobody(make: Callable[..., TextLane]) -> None:
    """A pipe without a writer is readable for ever: watched, it would keep the agent awake."""
    worker = make()
    pid = int(do(worker, "pid"))
    seen: list[list[object]] = []

    def script(driver: EventLoop) -> list[Callable[[], None]]:
        def kill() -> None:
            os.kill(pid, signal.SIGKILL)
            let_die(worker)

        return [kill, lambda: None, lambda: seen.append(reported(driver))]

    drive((worker,), script)
    assert seen == [[]]


@pytest.mark.usefixtures("signals")
def test_a_hangup_reloads_and_a_termination_stops(make: Callable[..., TextLane]) -> None:
    hangups = drive((make(),), lambda driver: [lambda: signal.raise_signal(signal.SIGHUP), lambda: None])
    assert hangups == ["hangup"]
