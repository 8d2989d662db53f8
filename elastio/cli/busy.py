"""Progress of what takes longer than two seconds: one line on stderr, only where that is a terminal.

The line is gone when the work is over, so that nothing of it stays between the lines of a result.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from elastio.cli import terminal
from elastio.cli.charts import clean, clip
from elastio.units import format_duration

FIRST_S = 2.0
EVERY_S = 0.5


class ProgressLine:
    """The last line of the terminal. `now` is a clock in seconds; before `first_s` nothing is shown."""

    def __init__(
        self, out: TextIO | None = None, now: Callable[[], float] = time.monotonic, first_s: float = FIRST_S
    ) -> None:
        self._out = sys.stderr if out is None else out
        self._now, self._begun, self._first_s = now, now(), first_s
        self._is_shown = False
        self.is_live = terminal.is_live(self._out)

    def show(self, text: str) -> None:
        """Show the text and how long it has taken so far, from `first_s` on."""
        taken_s = self._now() - self._begun
        if not self.is_live or taken_s < self._first_s:
            return
        line = clean(f"{text} ({format_duration(taken_s)})")
        columns = terminal.size(self._out).columns - 1  # in the last column the cursor would go to the next line
        self._write(f"\r{clip(line, columns, terminal.symbols_of(self._out))}\x1b[K")
        self._is_shown = True

    def clear(self) -> None:
        """Take the line away; before anything else is printed."""
        if self._is_shown:
            self._write("\r\x1b[K")
            self._is_shown = False

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()


@contextmanager
def busy(what: str, first_s: float = FIRST_S) -> Iterator[None]:
    """Show `what` while the block runs. The block prints nothing and starts no process by fork."""
    line = ProgressLine(first_s=first_s)
    if not line.is_live:
        yield
        return
    is_over = threading.Event()

    def tell() -> None:
        wait_s = first_s
        while not is_over.wait(wait_s):
            line.show(what)
            wait_s = EVERY_S

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        is_over.set()
        teller.join()
        line.clear()
