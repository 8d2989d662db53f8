"""Several jobs in parallel threads: the first failure cancels all, and every wait has a timeout."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass


class CancelledError(Exception):
    """Another job has failed, so this one ended."""


@dataclass(frozen=True, slots=True)
class Job:
    """`run` is called after `start_s` seconds. It raises CancelledError soon after its event is set."""

    start_s: float
    run: Callable[[threading.Event], None]


def run_in_parallel(jobs: Sequence[Job], limit_s: float, end_s: float) -> None:
    """Run all jobs. Raises the error of the first that failed, once the others have ended or after `end_s`.

    Raises TimeoutError if not all are done after `limit_s`.
    """
    cancelled = threading.Event()
    began = time.monotonic()

    def start(job: Job) -> None:
        if cancelled.wait(max(0.0, began + job.start_s - time.monotonic())):
            raise CancelledError
        job.run(cancelled)

    pool = ThreadPoolExecutor(len(jobs), thread_name_prefix="set-up")
    try:
        futures = [pool.submit(start, job) for job in jobs]
        _, late = wait(futures, limit_s, FIRST_EXCEPTION)
        cancelled.set()
        wait(late, end_s)
        _raise_first(futures, limit_s)
    finally:
        cancelled.set()
        pool.shutdown(wait=False, cancel_futures=True)


def _raise_first(futures: Sequence[Future[None]], limit_s: float) -> None:
    errors = [error for future in futures if future.done() and (error := future.exception()) is not None]
    for error in errors:
        if not isinstance(error, CancelledError):
            raise error
    if errors or not all(future.done() for future in futures):
        raise TimeoutError(f"not done after {limit_s:.0f} s")
