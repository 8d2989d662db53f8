"""Several waiting jobs at once, in threads: the first failure ends them all, and no wait is for ever."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass


class CancelledError(Exception):
    """Another job has failed: this one ends, too."""


@dataclass(frozen=True, slots=True)
class Job:
    """`run` is called `start_s` after the first could start; it raises CancelledError soon after its event is set."""

    start_s: float
    run: Callable[[threading.Event], None]


def run_in_parallel(jobs: Sequence[Job], limit_s: float, end_s: float) -> None:
    """Run all to their ends. Raises what the first that failed raised, once the others have ended or `end_s` is over.

    Raises TimeoutError when not all are done after `limit_s`.
    """
    cancelled = threading.Event()
    began = time.monotonic()

    def live(job: Job) -> None:
        if cancelled.wait(max(0.0, began + job.start_s - time.monotonic())):
            raise CancelledError
        job.run(cancelled)

    pool = ThreadPoolExecutor(len(jobs), thread_name_prefix="set-up")
    try:
        lives = [pool.submit(live, job) for job in jobs]
        _, late = wait(lives, limit_s, FIRST_EXCEPTION)
        cancelled.set()
        wait(late, end_s)
        _raise_first(lives, limit_s)
    finally:
        cancelled.set()
        pool.shutdown(wait=False, cancel_futures=True)


def _raise_first(lives: Sequence[Future[None]], limit_s: float) -> None:
    errors = [error for future in lives if future.done() and (error := future.exception()) is not None]
    for error in errors:
        if not isinstance(error, CancelledError):
            raise error
    if errors or not all(future.done() for future in lives):
        raise TimeoutError(f"not done after {limit_s:.0f} s")
