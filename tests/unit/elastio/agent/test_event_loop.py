"""The event loop: a signal ends it, at once or after the flush, and workers wake it."""

from __future__ import annotations

import os
import selectors
import signal
import socket
from collections.abc import Callable, Iterator
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import pytest

from elastio.agent.event_loop import EventLoop, stop_reason
from elastio.agent.worker import ForkWorker
from elastio.core.model import Request
from elastio.core.policy import StopPolicy
from elastio.core.state import AgentState, Answer, Inhibition, InhibitionReason, Phase
from elastio.host.machine import SystemClock
from elastio.host.systemd import Notifier
from elastio_sim.run import Simulation
from tests.simulated import STEADY, in_phase, machine
from tests.values import NOW, SET, backing, cycle, host, present, state

from .children import LONG_S, TextWorker, answer, do, let_die


@pytest.fixture
def said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """What the service manager hears."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind(str(tmp_path / "notify"))
        heard.setblocking(False)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        yield heard


@pytest.fixture(autouse=True)
def _signals_of_the_test() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def messages(heard: socket.socket) -> list[bytes]:
    found = []
    with selectors.DefaultSelector() as selector:
        selector.register(heard, selectors.EVENT_READ)
        while selector.select(0):
            found.append(heard.recv(4096))
    return found


def boosting(**policy: object) -> Simulation:
    sim = machine(STEADY, **policy)  # type: ignore[arg-type]
    in_phase(sim, Phase.BOOSTING)
    sim.run_for(3)
    return sim


def drive(sim: Simulation, signals: dict[int, int]) -> int:
    """Run the driver, with so much simulated time per turn that it gets somewhere; the number of its turns."""
    turns = 0

    def after_step() -> None:
        nonlocal turns
        turns += 1
        sim.world.advance(0.5)
        if turns in signals:
            os.kill(os.getpid(), signals[turns])
        assert turns < 2000

    driver = EventLoop(present(sim.agent), (), Notifier())
    driver.run(lambda: None, after_step)
    return turns


@pytest.fixture
def _one_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver asks the real clock when to wake, which the simulated agent does not know: never sleep."""
    monkeypatch.setattr(EventLoop, "_sleep_s", lambda _: 0.0)


@pytest.mark.usefixtures("_one_clock")
def test_a_stop_that_leaves_ends_at_once(said: socket.socket) -> None:
    sim = boosting()
    assert drive(sim, {3: signal.SIGTERM}) < 10
    assert sim.phase is Phase.BOOSTING
    assert not [m for m in messages(said) if b"EXTEND_TIMEOUT_USEC" in m]


@pytest.mark.usefixtures("_one_clock")
def test_a_stop_that_flushes_asks_for_more_time_until_the_volume_is_gone(
    said: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    sim = boosting(on_stop=StopPolicy(flush=True, limit_s=600.0))
    monkeypatch.setattr(SystemClock, "now", lambda _: sim.world.clock.now())
    drive(sim, {3: signal.SIGTERM})
    assert sim.phase is Phase.IDLE
    assert sim.world.volumes_left() == 0
    assert not sim.world.lost(power_cut=True)
    assert any(b"EXTEND_TIMEOUT_USEC=30000000" in m for m in messages(said))


@pytest.mark.usefixtures("_one_clock")
def test_a_second_signal_does_not_wait(said: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    sim = boosting(on_stop=StopPolicy(flush=True, limit_s=600.0))
    monkeypatch.setattr(SystemClock, "now", lambda _: sim.world.clock.now())
    assert drive(sim, {3: signal.SIGTERM, 5: signal.SIGTERM}) < 10
    assert sim.world.volumes_left() == 1
    assert messages(said)


class Script:
    """Stands where the agent does: one function per turn of the driver, then it asks to stop."""

    state = AgentState()
    view = None

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


def run_script(workers: tuple[TextWorker, ...], script: Callable[[EventLoop], list[Callable[[], None]]]) -> list[str]:
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


def test_the_event_loop_is_woken_by_the_child_that_replaced_a_killed_one(make: Callable[..., TextWorker]) -> None:
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
            awaited = present(first.readable_pipe())
            assert wait([awaited], LONG_S)
            seen.append(reported(driver))
            assert first.poll() == "TWO"

        return [lambda: first.submit("hang", 0.02), lambda: None, replace, scan, lambda: seen.append(reported(driver))]

    run_script((first, second), script)
    assert seen == [[first], []]


def test_a_child_that_dies_idle_wakes_nobody(make: Callable[..., TextWorker]) -> None:
    """A pipe without a writer is readable for ever: watched, it would keep the agent awake."""
    worker = make()
    pid = int(do(worker, "pid"))
    seen: list[list[object]] = []

    def script(driver: EventLoop) -> list[Callable[[], None]]:
        def kill() -> None:
            os.kill(pid, signal.SIGKILL)
            let_die(worker)

        return [kill, lambda: None, lambda: seen.append(reported(driver))]

    run_script((worker,), script)
    assert seen == [[]]


def test_a_hangup_reloads_and_a_termination_stops(make: Callable[..., TextWorker]) -> None:
    hangups = run_script((make(),), lambda driver: [lambda: signal.raise_signal(signal.SIGHUP), lambda: None])
    assert hangups == ["hangup"]


@pytest.mark.parametrize(
    ("changes", "over"),
    [
        ({}, True),
        ({"inhibition": Inhibition(InhibitionReason.STOP, NOW + 60, flush=False), "cycle": cycle()}, True),
        ({"inhibition": Inhibition(InhibitionReason.STOP, NOW + 60), "cycle": cycle(cache_set=SET)}, False),
        ({"inhibition": Inhibition(InhibitionReason.STOP, NOW + 60)}, True),
        ({"inhibition": Inhibition(InhibitionReason.STOP, NOW + 60), "recovered": False}, False),
        ({"inhibition": Inhibition(InhibitionReason.STOP, NOW), "cycle": cycle()}, True),
        ({"inhibition": Inhibition(InhibitionReason.STOP, NOW + 60), "cycle": cycle(), "fault": "x"}, True),
    ],
)
def test_the_agent_ends_when_nothing_is_left_or_its_time_is_over(changes: dict[str, Any], over: bool) -> None:
    assert bool(stop_reason(state(Phase.FLUSHING, **changes), host(backing()), NOW)) is over


def test_an_agent_that_has_flushed_does_not_end_before_the_tombstone_is_removed() -> None:
    idle = state(Phase.IDLE, None, inhibition=Inhibition(InhibitionReason.STOP, NOW + 60))
    assert not stop_reason(idle, host(backing(has_tombstone=True)), NOW)
    assert stop_reason(idle, host(backing(has_tombstone=True)), NOW + 60), "at the latest"
    assert stop_reason(idle, host(backing(has_tombstone=False)), NOW)
