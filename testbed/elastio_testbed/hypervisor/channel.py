"""Synchronous calls on QMP connections, which an asyncio loop in a background thread serves."""

import asyncio
import functools
import socket
import threading
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

from qemu.qmp import ExecInterruptedError, ExecuteError, QMPClient, QMPError

from elastio_testbed.hypervisor.errors import HypervisorError

T = TypeVar("T")
# Added to the time-out of the work itself, for the background thread.
_MARGIN_S = 5.0
_LOOP_LOCK = threading.Lock()


class CommandRefused(HypervisorError):
    """QEMU or the guest agent answered a command with an error; `error_class` is QAPI's class."""

    def __init__(self, command: str, error: ExecuteError) -> None:
        super().__init__(f"{command}: {error}")
        self.error_class = error.error_class


class ChannelClosed(HypervisorError):
    """The connection is closed."""


class ChannelTimeout(HypervisorError):
    """No answer in time."""


@functools.cache
def _started_loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="qmp", daemon=True).start()
    return loop


def _loop() -> asyncio.AbstractEventLoop:
    # Without the lock, two first callers would start a loop each.
    with _LOOP_LOCK:
        return _started_loop()


def in_background(work: Coroutine[Any, Any, T], timeout_s: float) -> T:
    """Run a coroutine on the background thread and return its result; TimeoutError after `timeout_s`."""
    future = asyncio.run_coroutine_threadsafe(asyncio.wait_for(work, timeout_s), _loop())
    return future.result(timeout_s + _MARGIN_S)


def call_in_background(function: Callable[[], T], timeout_s: float) -> T:
    """Run a short function on the background thread, which does not end before the process."""

    async def call() -> T:
        return function()

    return in_background(call(), timeout_s)


class Channel:
    """One QMP connection over a connected socket, to QEMU's monitor or to a guest agent."""

    def __init__(self, name: str, connected: socket.socket, *, greeting: bool, timeout_s: float = 30.0) -> None:
        """Take over `connected`. `greeting`: a monitor greets and negotiates capabilities, an agent does not."""
        self._client = QMPClient(name)
        self._client.await_greeting = self._client.negotiate = greeting
        self._run("connect", self._client.connect(connected), timeout_s)

    def execute(self, command: str, arguments: Mapping[str, object] | None = None, *, timeout_s: float) -> Any:
        """Run one command and return its value.

        Raises CommandRefused, ChannelClosed, or ChannelTimeout, after which a late response is ignored.
        """
        return self._run(command, self._client.execute(command, arguments), timeout_s)

    def execute_and_await(
        self, command: str, arguments: Mapping[str, object], *, events: set[str], timeout_s: float
    ) -> Mapping[str, Any]:
        """Run one command, then return the first of `events` that names the same device as `arguments["id"]`.

        Raises what `execute` does; ChannelTimeout covers the event too.
        """
        return self._run(command, self._command_then_event(command, arguments, events), timeout_s)

    def close(self, timeout_s: float = 5.0) -> None:
        """Close the connection, also one that was broken by the other end."""
        try:
            self._run("disconnect", self._client.disconnect(), timeout_s)
        except ChannelClosed:
            return  # disconnect() reports how the connection ended

    def _run(self, command: str, work: Coroutine[Any, Any, T], timeout_s: float) -> T:
        try:
            return in_background(work, timeout_s)
        except TimeoutError as error:
            raise ChannelTimeout(f"{command}: no answer within {timeout_s:.1f} s") from error
        except ExecuteError as error:
            raise CommandRefused(command, error) from error
        except (QMPError, ExecInterruptedError, EOFError, OSError) as error:
            raise ChannelClosed(f"{command}: the connection is closed ({error})") from error

    async def _command_then_event(
        self, command: str, arguments: Mapping[str, object], events: set[str]
    ) -> Mapping[str, Any]:
        # Start listening before the command, or an early event would be missed.
        with self._client.listener(events) as listener:
            await self._client.execute(command, arguments)
            while True:
                event: Mapping[str, Any] = await listener.get()
                if event["data"].get("device") == arguments["id"]:
                    return event
