"""Steps of a life cycle, done later by threads of their own."""

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
class _Step:
    due: float
    number: int
    name: str = field(compare=False)
    action: Callable[[], None] = field(compare=False)
    counted: bool = field(compare=False)


class Steps:
    """Runs actions after a delay, many at a time.

    A *counted* step is in flight from the moment it is asked for until its action returned; `settle` waits
    for those. An action that raises is given to `on_failure` and ends there: what it left half done is what a
    real cloud would show as stuck.
    """

    def __init__(self, on_failure: Callable[[str, Exception], None]) -> None:
        self._on_failure = on_failure
        self._changed = threading.Condition()
        self._queue: list[_Step] = []
        self._number = 0
        self._in_flight: Counter[str] = Counter()
        self._closed = False
        self._pool = ThreadPoolExecutor(_WORKERS, thread_name_prefix="ec2-step")
        self._timer = threading.Thread(target=self._run, name="ec2-steps", daemon=True)
        self._timer.start()

    def later(self, delay_s: float, name: str, action: Callable[[], None], *, counted: bool = True) -> None:
        """Do `action` in `delay_s` seconds; dropped without a word when closed by then."""
        with self._changed:
            if self._closed:
                return
            self._number += 1
            heapq.heappush(self._queue, _Step(time.monotonic() + delay_s, self._number, name, action, counted))
            if counted:
                self._in_flight[name] += 1
            self._changed.notify_all()

    def settle(self, timeout_s: float, only: str | None = None) -> None:
        """Wait until no counted step, or none of that name, is in flight.

        Raises TimeoutError, naming those in flight, after `timeout_s`.
        """
        with self._changed:
            if not self._changed.wait_for(
                lambda: not self._in_flight[only] if only else not self._in_flight, timeout_s
            ):
                steps = ", ".join(f"{name} x{count}" for name, count in sorted(self._in_flight.items()))
                raise TimeoutError(f"after {timeout_s} s still in flight: {steps}")

    def close(self, timeout_s: float) -> None:
        """Start nothing more and wait up to `timeout_s` for the actions that run. Raises TimeoutError."""
        with self._changed:
            self._closed = True
            for step in self._queue:
                self._count_off(step)
            self._queue.clear()
            self._changed.notify_all()
        self._timer.join(timeout_s)
        self._pool.shutdown(wait=False)  # what it still holds sees `closed` and counts itself off
        self.settle(timeout_s)

    def _run(self) -> None:
        while (step := self._next()) is not None:
            self._pool.submit(self._do, step)

    def _next(self) -> _Step | None:
        with self._changed:
            while not self._closed:
                wait_s = self._queue[0].due - time.monotonic() if self._queue else None
                if wait_s is not None and wait_s <= 0:
                    return heapq.heappop(self._queue)
                self._changed.wait(wait_s)
        return None

    def _do(self, step: _Step) -> None:
        try:
            if not self._closed:
                step.action()
        except Exception as error:
            self._on_failure(step.name, error)
        finally:
            with self._changed:
                self._count_off(step)
                self._changed.notify_all()

    def _count_off(self, step: _Step) -> None:
        if step.counted:
            self._in_flight[step.name] -= 1
            self._in_flight += Counter()  # drops the names that fell to zero
