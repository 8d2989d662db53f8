"""A signal ends the daemon: at once where the device is left as it is, after the flush where that is asked for."""

from __future__ import annotations

import os
import selectors
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from elastio.agent.event_loop import EventLoop
from elastio.core.policy import StopPolicy
from elastio.core.state import Phase
from elastio.host.clock import SystemClock
from elastio.host.sdnotify import Notifier
from elastio.sim.run import Simulation

from .simulated import STEADY, in_phase, machine


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
    assert sim.agent is not None
    turns = 0

    def after_step() -> None:
        nonlocal turns
        turns += 1
        sim.world.advance(0.5)
        if turns in signals:
            os.kill(os.getpid(), signals[turns])
        assert turns < 2000

    driver = EventLoop(sim.agent, (), Notifier())
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
    assert any(b"EXTEND_TIMEOUT_USEC=30000000" in m for m in messages(said))


@pytest.mark.usefixtures("_one_clock")
def test_a_second_signal_does_not_wait(said: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    sim = boosting(on_stop=StopPolicy(flush=True, limit_s=600.0))
    monkeypatch.setattr(SystemClock, "now", lambda _: sim.world.clock.now())
    assert drive(sim, {3: signal.SIGTERM, 5: signal.SIGTERM}) < 10
    assert sim.world.volumes_left() == 1
    assert messages(said)
