"""The selector that drives the agent on a real machine: timer, workers, udev, control socket, signals. One thread."""

from __future__ import annotations

import logging
import selectors
import signal
import socket
from collections.abc import Callable
from multiprocessing.connection import Connection
from types import FrameType
from typing import Any, Protocol

from elastio.agent.graceful_shutdown import GracefulShutdown
from elastio.agent.loop import Agent
from elastio.agent.worker import ForkWorker
from elastio.host.clock import SystemClock
from elastio.host.sdnotify import Notifier

# Never sleep longer: the watchdog and time-outs of workers and clients are looked after on the way.
LONGEST_SLEEP_S = 1.0
# A step that takes in an answer may start the next action, whose answer may be there at once.
STEPS_AT_ONCE = 3
# What the service manager is asked to grant again and again while the cache is flushed before a stop.
EXTEND_US = 30_000_000

_log = logging.getLogger(__name__)


class Source(Protocol):
    def fileno(self) -> int: ...


class EventLoop:
    """Runs `agent` until a signal asks to stop."""

    def __init__(self, agent: Agent, workers: tuple[ForkWorker[Any, Any], ...], notifier: Notifier) -> None:
        self._agent, self._workers, self._notifier = agent, workers, notifier
        self.selector = selectors.DefaultSelector()
        self._clock = SystemClock()
        self._watched: dict[ForkWorker[Any, Any], tuple[Connection, int]] = {}
        self._stop = False
        self._departure: GracefulShutdown | None = None
        self._signals: set[int] = set()
        self._woken, self._waker = socket.socketpair()
        self._on_hangup: Callable[[], None] = lambda: None
        self._after_step: Callable[[], None] = lambda: None

    def watch(self, source: Source, callback: Callable[[], None]) -> None:
        """Call back whenever the source is readable."""
        self.selector.register(source, selectors.EVENT_READ, callback)

    def run(self, on_hangup: Callable[[], None], after_step: Callable[[], None]) -> None:
        """`on_hangup` reloads the configuration; `after_step` runs after every step of the agent."""
        self._on_hangup, self._after_step = on_hangup, after_step
        self._catch_signals()
        try:
            while not self._stop:
                self._turn()
        finally:
            signal.set_wakeup_fd(-1)
            self.selector.unregister(self._woken)
            self._woken.close()
            self._waker.close()

    def _turn(self) -> None:
        self._watch_workers()
        for key, mask in self.selector.select(self._sleep_s()):
            self._dispatch(key, mask)
        self._handle_signals()
        self._agent.step()
        self._after_step()
        self._depart()
        self._notifier.beat(self._clock.now())

    def _sleep_s(self) -> float:
        until = self._agent.wake_at() - self._clock.now()
        return max(0.0, min(until, LONGEST_SLEEP_S))

    def _dispatch(self, key: selectors.SelectorKey, mask: int) -> None:
        if isinstance(key.data, ForkWorker):
            return  # the step takes the answer in
        if callable(key.data):
            key.data()
        else:
            key.data.on_ready(key, mask)

    def _watch_workers(self) -> None:
        """Only workers with a job: the pipe of a dead child is readable for ever. A new child has a new pipe."""
        news = [(worker, worker.awaited()) for worker in self._workers]
        news = [(worker, new) for worker, new in news if new is not self._watched.get(worker, (None, 0))[0]]
        for worker, _ in news:  # all of them first: a new pipe may have the number of another worker's old one
            if worker in self._watched:
                self.selector.unregister(self._watched.pop(worker)[1])
        for worker, new in news:
            if new is not None:
                self.selector.register(new, selectors.EVENT_READ, worker)
                self._watched[worker] = new, new.fileno()

    # --- signals -----------------------------------------------------------------------------------------

    def _catch_signals(self) -> None:
        self._woken.setblocking(False)
        self._waker.setblocking(False)
        self.watch(self._woken, self._drain_wakeups)
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._note_signal)

    def _note_signal(self, number: int, _frame: FrameType | None) -> None:
        self._signals.add(number)

    def _drain_wakeups(self) -> None:
        self._woken.recv(64)

    def _handle_signals(self) -> None:
        signals, self._signals = self._signals, set()
        if signal.SIGHUP in signals:
            self._on_hangup()
        if not signals & {signal.SIGTERM, signal.SIGINT}:
            return
        if self._departure is not None:
            _log.info("asked to stop again: not waiting any longer")
            self._stop = True
            return
        self._departure = GracefulShutdown(self._agent, self._clock)
        self._departure.ask()

    def _depart(self) -> None:
        """After a signal: go on until the agent may end, and keep the service manager waiting as long."""
        if self._departure is None or self._stop:
            return
        over = self._departure.is_over()
        if over:
            _log.info("stopping: %s; the next start goes on from there", over)
            self._stop = True
        else:
            self._notifier.send(f"EXTEND_TIMEOUT_USEC={EXTEND_US}")
