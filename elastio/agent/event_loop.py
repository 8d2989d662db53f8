"""Runs the agent on a real machine: one thread that waits for timers, workers, udev, the control socket and signals."""

from __future__ import annotations

import logging
import selectors
import signal
import socket
from collections.abc import Callable
from multiprocessing.connection import Connection
from types import FrameType
from typing import Any, Protocol

from elastio.agent.loop import Agent
from elastio.agent.worker import ForkWorker
from elastio.core.model import HostView, Request, RequestKind
from elastio.core.state import AgentState, Answer, InhibitionReason
from elastio.host.machine import SystemClock
from elastio.host.systemd import Notifier
from elastio.ports import Clock

# The longest sleep: the watchdog, and the time-outs of workers and clients, are checked after each.
LONGEST_SLEEP_S = 1.0
# By how much the service manager is asked, again and again, to extend the time-out while the cache is flushed.
EXTEND_US = 30_000_000
# Time-out of the decision on the stop; an agent that does not decide must still end.
ANSWER_S = 10.0

_log = logging.getLogger(__name__)


class Source(Protocol):
    """Whatever a selector can wait for."""

    def fileno(self) -> int: ...


class GracefulShutdown:
    """One stop of one agent, at once or after the flush that `shutdown.on_stop` asks for.

    Call `ask` once, then `exit_reason` after every step.
    """

    def __init__(self, agent: Agent, clock: Clock) -> None:
        self._agent, self._clock = agent, clock
        self._give_up_at = clock.now() + ANSWER_S
        self._is_answered = False

    def ask(self) -> None:
        """Request the stop. A shutdown of the machine that has been prepared already needs no second request."""
        inhibition = self._agent.state.inhibition
        if inhibition is not None and inhibition.reason in (InhibitionReason.SHUTDOWN, InhibitionReason.NOTICE):
            self._is_answered = True
            return

        def answered(answer: Answer) -> None:
            self._is_answered = True

        self._agent.request(Request(RequestKind.STOP), answered)

    def exit_reason(self) -> str:
        """Why the daemon may end now; empty: it may not yet."""
        now = self._clock.now()
        if not self._is_answered:
            return "no decision was made in time" if now >= self._give_up_at else ""
        return stop_reason(self._agent.state, self._agent.view, now)


class EventLoop:
    """Runs `agent` until a signal asks it to stop."""

    def __init__(self, agent: Agent, workers: tuple[ForkWorker[Any, Any], ...], notifier: Notifier) -> None:
        self._agent, self._workers, self._notifier = agent, workers, notifier
        self.selector = selectors.DefaultSelector()
        self._clock = SystemClock()
        self._watched: dict[ForkWorker[Any, Any], tuple[Connection, int]] = {}
        self._stop = False
        self._shutdown: GracefulShutdown | None = None
        self._signals: set[int] = set()
        self._woken, self._waker = socket.socketpair()
        self._on_hangup: Callable[[], None] = lambda: None
        self._after_step: Callable[[], None] = lambda: None

    def watch(self, source: Source, callback: Callable[[], None]) -> None:
        """Call `callback` whenever the source is readable."""
        self.selector.register(source, selectors.EVENT_READ, callback)

    def run(self, on_hangup: Callable[[], None], after_step: Callable[[], None]) -> None:
        """Returns when the agent may end. `on_hangup` reloads the configuration, `after_step` runs after each step."""
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
        self._end_if_done()
        self._notifier.beat(self._clock.now())

    def _sleep_s(self) -> float:
        until = self._agent.wake_at() - self._clock.now()
        return max(0.0, min(until, LONGEST_SLEEP_S))

    def _dispatch(self, key: selectors.SelectorKey, mask: int) -> None:
        if isinstance(key.data, ForkWorker):
            return  # the agent's step takes the result
        if callable(key.data):
            key.data()
        else:
            key.data.on_ready(key, mask)

    def _watch_workers(self) -> None:
        """Wait only for workers with a job: a dead child's pipe is always readable. A new child has a new pipe."""
        news = [(worker, worker.readable_pipe()) for worker in self._workers]
        news = [(worker, new) for worker, new in news if new is not self._watched.get(worker, (None, 0))[0]]
        for worker, _ in news:  # unregister all of them first: a new pipe may have the number of an old one
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
        if self._shutdown is not None:
            _log.info("asked to stop again: stopping at once")
            self._stop = True
            return
        self._shutdown = GracefulShutdown(self._agent, self._clock)
        self._shutdown.ask()

    def _end_if_done(self) -> None:
        """After a signal: end once the agent may; until then, ask the service manager for more time."""
        if self._shutdown is None or self._stop:
            return
        reason = self._shutdown.exit_reason()
        if reason:
            _log.info("stopping: %s; the next start continues from there", reason)
            self._stop = True
        else:
            self._notifier.send(f"EXTEND_TIMEOUT_USEC={EXTEND_US}")


def stop_reason(state: AgentState, host: HostView | None, now: float) -> str:
    """Why the agent may end now; empty while it works towards its inhibition."""
    inhibition = state.inhibition
    if inhibition is None or not inhibition.flush:
        return "the device keeps its state"
    if state.fault:
        return "the agent is faulted and changes nothing"
    backing = host.backing if host else None
    if state.recovered and state.cycle is None and not (backing is not None and backing.may_lose_tombstone):
        return "no cache is left"
    return "the time to flush is over; what is left stays on its volume" if now >= inhibition.until else ""
