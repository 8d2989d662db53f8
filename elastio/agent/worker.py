"""A worker: a child process that runs one job at a time, so that no job can delay a sample.

A cloud call may hang until TCP gives up, and every access to bcache's sysfs takes an uninterruptible kernel lock. A
child can be abandoned: it is killed, its job counts as unanswered, and a new child serves the next job. While a killed
child is stuck in the kernel, the worker stays busy, because its job may still have an effect.
"""

from __future__ import annotations

import ctypes
import logging
import multiprocessing
import os
import pickle
import signal
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import ForkProcess
from typing import Generic, Protocol, TypeVar

from elastio.errors import ElastioError
from elastio.host.machine import stay_in_memory

Job = TypeVar("Job")
Result = TypeVar("Result")

# Time-out of a warm-up, after which the child is killed; the next one has twice as long. Trimming the data of a new SDK
# release takes up to two minutes.
WARM_UP_S = 300.0
PR_SET_PDEATHSIG = 1  # include/uapi/linux/prctl.h

# The parent's ends of all workers' pipes. A child inherits them and has to close them: while a sibling keeps one open,
# the pipe does not end when its worker closes it, and a selector goes on reporting it.
_parents_ends: weakref.WeakSet[Connection] = weakref.WeakSet()

_log = logging.getLogger(__name__)


class Between(Protocol):
    """What a child does between two jobs. It must return at once, and raise nothing but for a bug."""

    def wait_s(self) -> float | None:
        """How long until the next turn; None: nothing is to be done."""

    def turn(self) -> None:
        """Do it."""


@dataclass(frozen=True, slots=True)
class Warm:
    """A child's message after its warm-up, before its first result. `trouble`: the error of the warm-up, or empty."""

    trouble: str


class ForkWorker(Generic[Job, Result]):
    """Runs `work(job)` in a forked child. `lost(job, seconds)` makes the result of a job without an answer.

    While it has no job the child takes the turns of `between`. `is_resident`: its memory is never paged out, which
    costs a copy of the parent's.

    `warm_up` runs once in every new child, before its first job, for slow imports; the time-out of that job begins
    after it. Its error is available as `trouble`; the job is tried anyway. An exception in `work` is a bug: it is
    logged, the child ends, because its state is unknown, and the job counts as lost.
    """

    def __init__(
        self,
        name: str,
        work: Callable[[Job], Result],
        lost: Callable[[Job, float], Result],
        warm_up: Callable[[], None] | None = None,
        between: Between | None = None,
        *,
        is_resident: bool = True,
    ) -> None:
        self.name, self._between, self._is_resident = name, between, is_resident
        self._work, self._lost, self._warm_up = work, lost, warm_up
        self._child: ForkProcess | None = None
        self._pipe: Connection | None = None
        self._job: Job | None = None
        self._began = self._deadline = self._timeout_s = 0.0
        self._given_up = self._warming = False
        self._warm_up_s = WARM_UP_S
        self.trouble = ""

    # --- the parent's side -------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the child now instead of with the first job."""
        context = multiprocessing.get_context("fork")
        ours, theirs = context.Pipe()
        _parents_ends.add(ours)
        self._child = context.Process(target=self._serve, args=(theirs,), name=f"elastio-{self.name}", daemon=True)
        self._child.start()
        theirs.close()
        self._pipe = ours
        self._warming = self._warm_up is not None
        self._deadline = time.monotonic() + self._warm_up_s

    def wake(self) -> None:
        """Start the child ahead of the next job, unless it runs."""
        if self._child is None:
            self.start()

    def rest(self) -> None:
        """End a child without a job; the next job starts a new one."""
        if not self.busy and not self._warming:
            self.close(0.0)

    @property
    def busy(self) -> bool:
        """A job runs, or may still run in a child that was killed."""
        if self._given_up and self._child is not None and not self._child.is_alive():
            self._reap()
        return self._job is not None or self._given_up

    @property
    def stuck(self) -> bool:
        """A child was killed and has not ended: it hangs in the kernel."""
        return self.busy and self._given_up

    def readable_pipe(self) -> Connection | None:
        """For a selector: the pipe that becomes readable when the child is warm, has a result, or ends. None: no job.

        Another job may have another connection with the same descriptor: compare connections, not numbers.
        """
        return self._pipe if self._job is not None or self._warming else None

    def submit(self, job: Job, timeout_s: float) -> None:
        """Start the job. After `timeout_s` without a result it counts as lost. Raises RuntimeError while busy."""
        if self.busy:
            raise RuntimeError(f"worker {self.name} is busy")
        if self._child is None or not self._child.is_alive():
            self._reap()
            self.start()
        self._job, self._began, self._timeout_s = job, time.monotonic(), timeout_s
        if not self._warming:
            self._deadline = self._began + timeout_s
        if self._pipe is None:
            raise RuntimeError(f"worker {self.name} has no child")
        try:
            self._pipe.send(job)
        except OSError as error:  # the child has just died: `poll` notices it, and the job counts as lost
            _log.warning("worker %s: the child did not take a job: %s", self.name, error)

    def poll(self) -> Result | None:
        """The result, once: the child's, or that of `lost` after the time-out or the child's end. None: none yet."""
        if self._pipe is None or self.readable_pipe() is None:
            return None
        try:
            while self._pipe.poll():
                message: Result | Warm = self._pipe.recv()
                if not isinstance(message, Warm):
                    self._job = None
                    return message
                self._warmed(message)
                if self._job is None:
                    return None
        except (EOFError, OSError, pickle.UnpicklingError):
            return self._give_up()
        return self._give_up() if time.monotonic() > self._deadline else None

    def next_event_at(self) -> float | None:
        """Monotonic time of the time-out, at which `poll` returns a result even if the child sends none."""
        return self._deadline if self.readable_pipe() is not None else None

    def _warmed(self, message: Warm) -> None:
        self._warming, self.trouble = False, message.trouble
        self._deadline = time.monotonic() + self._timeout_s
        if message.trouble:
            _log.error("worker %s: %s", self.name, message.trouble)

    def _give_up(self) -> Result | None:
        job, self._job = self._job, None
        if self._child is not None and self._child.is_alive():
            self._child.kill()
        self._given_up = True
        if self._warming:
            self._warming = False
            self._warm_up_s *= 2  # on a slow machine a limit that is too short would fail for ever
            self.trouble = "the child ended during its start, or was not ready in time"
            _log.error("worker %s: %s", self.name, self.trouble)
        return None if job is None else self._lost(job, time.monotonic() - self._began)

    def _reap(self) -> None:
        if self._child is not None:
            self._child.join(timeout=0)
        if self._pipe is not None:
            self._pipe.close()
        self._child, self._pipe, self._given_up, self._warming = None, None, False, False

    def close(self, wait_s: float) -> None:
        """Wait up to `wait_s` seconds for a running job, then end the child."""
        if self._job is not None and self._pipe is not None:
            self._pipe.poll(wait_s)
        if self._child is not None and self._child.is_alive():
            self._child.terminate()
            self._child.join(timeout=1)
        self._reap()

    # --- the child's side --------------------------------------------------------------------------------

    def _serve(self, pipe: Connection) -> None:
        for end in list(_parents_ends):
            end.close()
        die_with_parent()
        if self._is_resident:
            stay_in_memory()  # not inherited; if it is not allowed, the daemon has logged so
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        if self._warm_up is not None:
            pipe.send(Warm(self._warmed_up(self._warm_up)))
        while True:
            try:
                self._idle(pipe)
                job: Job = pipe.recv()
            except (EOFError, OSError):
                os._exit(0)
            try:
                result = self._work(job)
            except Exception:
                _log.exception("worker %s: a bug in a job, whose outcome is unknown: %r", self.name, job)
                os._exit(1)
            pipe.send(result)

    def _idle(self, pipe: Connection) -> None:
        """Take the turns that are due until there is a job, or the parent has ended."""
        while self._between is not None and not pipe.poll(self._between.wait_s()):
            try:
                self._between.turn()
            except Exception:
                _log.exception("worker %s: a bug between two jobs", self.name)
                os._exit(1)

    def _warmed_up(self, warm_up: Callable[[], None]) -> str:
        """The error of the warm-up, or an empty string. The first job fails with it too, as an outcome."""
        try:
            warm_up()
        except ElastioError as error:
            return str(error)
        except Exception as error:
            _log.exception("worker %s: the start of the child failed", self.name)
            return f"the start of the child failed: {error}"
        return ""


def die_with_parent() -> None:
    """Make the kernel kill this process when its parent ends, for whatever reason."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
