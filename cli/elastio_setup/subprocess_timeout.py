"""Run a function that may never return in a child process, with a timeout.

Each access to bcache's /sys takes an uninterruptible lock: a process that reads it while bcache hangs cannot even be
killed. So a child process reads it, and is abandoned when it hangs.
"""

from __future__ import annotations

import os
import pickle
import select
import signal
import time
from collections.abc import Callable
from typing import TypeVar

from elastio.errors import ElastioError, HostError

T = TypeVar("T")


def call_with_timeout(work: Callable[[], T], timeout_s: float) -> T:
    """The result of `work`, which must be picklable.

    Raises the ElastioError that `work` raised; HostError with the code `child.timeout` if it did not end within
    `timeout_s`, or `child.died` if the child ended without a result.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        _answer(work, writer)
    os.close(writer)
    try:
        result = _read(reader, time.monotonic() + timeout_s)
    finally:
        os.close(reader)
        os.kill(child, signal.SIGKILL)
        _reap(child)
    if result is None:
        raise HostError(
            f"the kernel did not answer within {timeout_s:.0f} s: bcache may hang, see `dmesg`", code="child.timeout"
        )
    if not result:
        raise HostError("the process that asked the kernel died", code="child.died")
    answer = pickle.loads(result)
    if isinstance(answer, ElastioError):
        raise answer
    value: T = answer
    return value


def _answer(work: Callable[[], object], writer: int) -> None:
    """Run by the child. Never returns, so that the child does not continue with the parent's code."""
    try:
        try:
            answer = work()
        except ElastioError as error:
            answer = error
        with os.fdopen(writer, "wb") as pipe:
            pickle.dump(answer, pipe)
    finally:
        os._exit(0)


def _read(reader: int, deadline: float) -> bytes | None:
    """Everything the child wrote; None after the deadline."""
    received = b""
    while (left := deadline - time.monotonic()) > 0:
        if select.select([reader], [], [], left)[0]:
            chunk = os.read(reader, 65536)
            if not chunk:
                return received
            received += chunk
    return None


def _reap(child: int) -> None:
    """Reap a child that was just killed. A child that hangs in the kernel is left to init."""
    for _ in range(20):
        if os.waitpid(child, os.WNOHANG)[0]:
            return
        time.sleep(0.005)
