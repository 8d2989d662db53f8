"""Ask the kernel something that may never answer.

Each access to bcache's /sys takes an uninterruptible lock: a process that asks while bcache hangs cannot even be
killed. So a child asks, and is left behind when it hangs.
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


def in_child(work: Callable[[], T], timeout_s: float) -> T:
    """The result of `work`, which must be picklable. Raises what it raised of `elastio.errors`, or HostError when
    it did not end in time or died."""
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
        raise HostError(f"the kernel did not answer within {timeout_s:.0f} s: bcache may hang, see `dmesg`")
    answer = pickle.loads(result) if result else HostError("the process that asked the kernel died")
    if isinstance(answer, ElastioError):
        raise answer
    value: T = answer
    return value


def _answer(work: Callable[[], object], writer: int) -> None:
    """The child's life. It must not run into the parent's code after the fork, whatever happens."""
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
    """Everything the child wrote; None when its time was over before."""
    received = b""
    while (left := deadline - time.monotonic()) > 0:
        if select.select([reader], [], [], left)[0]:
            chunk = os.read(reader, 65536)
            if not chunk:
                return received
            received += chunk
    return None


def _reap(child: int) -> None:
    """Collect a child that has just been killed. One that hangs in the kernel is left to init."""
    for _ in range(20):
        if os.waitpid(child, os.WNOHANG)[0]:
            return
        time.sleep(0.005)
