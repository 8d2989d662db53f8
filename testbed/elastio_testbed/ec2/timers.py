"""Timers for the transitions of volumes and attachments; each action runs in a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable


class StateTimers:
    """Runs actions after a delay, many at a time.

    A *counted* timer is pending from the call of `after` until its action has returned; `settle` waits for these. An
    exception is passed to `on_failure` and goes no further: the resource then stays in its state, as a stuck one does
    in a real cloud.
    """

    def __init__(self, on_failure: Callable[[str, Exception], None]) -> None:
        self._on_failure = on_failure
        self._changed = threading.Condition()
        # What has not begun yet, with the name under which it is pending, and what is pending.
        self._waiting: dict[threading.Timer, str | None] = {}
        self._pending: list[str] = []
        self._closed = False

    def after(self, delay_s: float, name: str, action: Callable[[], None], *, counted: bool = True) -> None:
        """Run `action` in `delay_s` seconds, unless closed by then."""

        def run() -> None:
            with self._changed:
                if timer not in self._waiting:
                    return  # closed meanwhile
                pending = self._waiting.pop(timer)
            try:
                action()
            except Exception as error:
                self._on_failure(name, error)
            finally:
                self._discount(pending)

        timer = threading.Timer(delay_s, run)
        timer.daemon = True
        with self._changed:
            if self._closed:
                return
            self._waiting[timer] = name if counted else None
            self._pending += [name] if counted else []
            timer.start()

    def settle(self, timeout_s: float, only: str | None = None) -> None:
        """Wait until no counted timer, or none of that name, is pending. Raises TimeoutError after `timeout_s`."""
        with self._changed:
            if not self._changed.wait_for(lambda: not [p for p in self._pending if only in (None, p)], timeout_s):
                raise TimeoutError(f"after {timeout_s} s still pending: {', '.join(sorted(self._pending))}")

    def close(self, timeout_s: float) -> None:
        """Start no more actions and wait for the running ones. Raises TimeoutError after `timeout_s`."""
        with self._changed:
            self._closed = True
            for timer, pending in self._waiting.items():
                timer.cancel()
                self._discount(pending)
            self._waiting.clear()
        self.settle(timeout_s)

    def _discount(self, pending: str | None) -> None:
        with self._changed:
            if pending is not None:
                self._pending.remove(pending)
            self._changed.notify_all()
