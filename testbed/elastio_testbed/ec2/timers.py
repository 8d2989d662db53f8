"""Timers for the transitions of volumes and attachments; each action runs in a thread of a pool."""

from __future__ import annotations

import heapq
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

_WORKERS = 16


@dataclass(order=True)
class _Timer:
    due: float
    number: int
    name: str = field(compare=False)
    action: Callable[[], None] = field(compare=False)
    counted: bool = field(compare=False)


class StateTimers:
    """Runs actions after a delay, many at a time.

    A *counted* timer is pending from the call of `after` until its action has returned; `settle` waits for these. An
    exception is passed to `on_failure` and goes no further: the resource then stays in its state, as a stuck one does
    in a real cloud.
    """

    def __init__(self, on_failure: Callable[[str, Exception], None]) -> None:
        self._on_failure = on_failure
        self._changed = threading.Condition()
        self._queue: list[_Timer] = []
        self._number = 0
        self._pending: Counter[str] = Counter()
        self._closed = False
        self._pool = ThreadPoolExecutor(_WORKERS, thread_name_prefix="ec2-transition")
        self._thread = threading.Thread(target=self._run, name="ec2-timers", daemon=True)
        self._thread.start()

    def after(self, delay_s: float, name: str, action: Callable[[], None], *, counted: bool = True) -> None:
        """Run `action` in `delay_s` seconds, unless closed by then."""
        with self._changed:
            if self._closed:
                return
            self._number += 1
            heapq.heappush(self._queue, _Timer(time.monotonic() + delay_s, self._number, name, action, counted))
            if counted:
                self._pending[name] += 1
            self._changed.notify_all()

    def settle(self, timeout_s: float, only: str | None = None) -> None:
        """Wait until no counted timer, or none of that name, is pending. Raises TimeoutError after `timeout_s`."""
        with self._changed:
            if not self._changed.wait_for(lambda: not self._pending[only] if only else not self._pending, timeout_s):
                pending = ", ".join(f"{name} x{count}" for name, count in sorted(self._pending.items()))
                raise TimeoutError(f"after {timeout_s} s still pending: {pending}")

    def close(self, timeout_s: float) -> None:
        """Start no more actions and wait for the running ones. Raises TimeoutError after `timeout_s`."""
        with self._changed:
            self._closed = True
            for timer in self._queue:
                self._discount(timer)
            self._queue.clear()
            self._changed.notify_all()
        self._thread.join(timeout_s)
        self._pool.shutdown(wait=False)  # queued actions see `_closed` and return at once
        self.settle(timeout_s)

    def _run(self) -> None:
        while (timer := self._next()) is not None:
            self._pool.submit(self._do, timer)

    def _next(self) -> _Timer | None:
        with self._changed:
            while not self._closed:
                wait_s = self._queue[0].due - time.monotonic() if self._queue else None
                if wait_s is not None and wait_s <= 0:
                    return heapq.heappop(self._queue)
                self._changed.wait(wait_s)
        return None

    def _do(self, timer: _Timer) -> None:
        try:
            if not self._closed:
                timer.action()
        except Exception as error:
            self._on_failure(timer.name, error)
        finally:
            with self._changed:
                self._discount(timer)
                self._changed.notify_all()

    def _discount(self, timer: _Timer) -> None:
        if timer.counted:
            self._pending[timer.name] -= 1
            self._pending += Counter()  # drops names that reached zero
