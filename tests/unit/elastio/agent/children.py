"""Jobs for workers with real children, and how a test waits for them."""

from __future__ import annotations

import multiprocessing
import os
import select
import signal
import time
from pathlib import Path

from elastio.agent.worker import ForkWorker, Result
from tests.values import present

LONG_S = 30.0
TextWorker = ForkWorker[str, str]


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


def answer(worker: ForkWorker[str, Result]) -> Result:
    """What `poll` says in the end; bounded."""
    end = time.monotonic() + LONG_S
    while time.monotonic() < end:
        result = worker.poll()
        if result is not None:
            return result
        due = present(worker.next_event_at())
        awaited = present(worker.readable_pipe())
        select.select([awaited.fileno()], [], [], max(0.001, due - time.monotonic() + 0.001))
    raise AssertionError("the worker said nothing")


def let_die(worker: TextWorker) -> None:
    """Wait until the worker's child, which was killed or told to end, is dead."""
    mine = [c for c in multiprocessing.active_children() if c.name == f"elastio-{worker.name}"]
    for child in mine:
        child.join(LONG_S)
        assert not child.is_alive()


def do(worker: TextWorker, job: str, timeout_s: float = LONG_S) -> str:
    worker.submit(job, timeout_s)
    return answer(worker)
