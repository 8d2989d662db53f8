"""The terminal of a live view: the alternate screen, without cursor and echo, and given back as it was.

Theory of operation. SIGINT, SIGTERM and SIGHUP end the view by KeyboardInterrupt, whatever it does at that moment. A
change of the size (SIGWINCH) and a stop by Ctrl-Z (SIGTSTP) are blocked, so that they wait until `Screen.wait` takes
them: nothing is ever drawn from within a signal handler.

Progress of what takes longer than two seconds is one line on stderr, only where that is a terminal. The line is gone
when the work is over, so that nothing of it stays between the lines of a result.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from types import FrameType
from typing import TextIO

from elastio.errors import ElastioError
from elastio.units import format_duration
from elastio_cli.charts import ASCII, BLOCKS, Line, Style, Symbols, clean, clip, width

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
TAKEN = (signal.SIGWINCH, signal.SIGTSTP)
ENTER, LEAVE = "\x1b[?1049h\x1b[?25l\x1b[2J", "\x1b[?25h\x1b[?1049l"
COLOURS = {Style.HEAD: "1", Style.QUIET: "2", Style.ACTIVE: "1;32", Style.WARNING: "33", Style.BAD: "1;31"}


@contextmanager
def handled(numbers: Sequence[signal.Signals], handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """These signals have this handler inside, and their own again after it."""
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, own in before.items():
            signal.signal(number, own)


def ended_by_signals() -> AbstractContextManager[None]:
    """Turn SIGTERM and SIGHUP into SystemExit with the exit code that a shell uses for them."""
    return handled((signal.SIGTERM, signal.SIGHUP), lambda number, _: sys.exit(128 + number))


@contextmanager
def only_waiting(goes_on: str) -> Iterator[None]:
    """Ctrl-C ends the wait and not what the agent does: raises ElastioError, which says what goes on."""
    try:
        yield
    except KeyboardInterrupt:
        raise ElastioError(f"interrupted: {goes_on}", code="interrupted") from None


def is_live(out: TextIO) -> bool:
    """True if lines can be drawn in place: a terminal that knows more than to print."""
    return out.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def symbols_of(out: TextIO) -> Symbols:
    """Block characters if the encoding has them."""
    try:
        (BLOCKS.levels + BLOCKS.full + BLOCKS.empty + BLOCKS.more).encode(out.encoding or "ascii")
    except UnicodeEncodeError:
        return ASCII
    return BLOCKS


def size(out: TextIO) -> os.terminal_size:
    """Columns and rows of the terminal; 80 x 24 where it does not tell."""
    try:
        found = os.get_terminal_size(out.fileno())
    except OSError:
        found = os.terminal_size((0, 0))
    return os.terminal_size((found.columns or 80, found.lines or 24))


def drawing(lines: Sequence[Line], columns: int, is_coloured: bool) -> str:
    """What draws the lines from the top of the screen. A full line is not cleared: that would erase its last cell."""
    drawn = []
    for number, line in enumerate(lines, 1):
        text = line.text
        if is_coloured and line.style in COLOURS:
            text = f"\x1b[{COLOURS[line.style]}m{text}\x1b[0m"
        end = "" if width(line.text) >= columns else "\x1b[K"
        drawn.append(f"\x1b[{number};1H{text}{end}")
    return "".join(drawn) + "\x1b[J" * (not lines or width(lines[-1].text) < columns)


class Screen:
    """The terminal while a view has it. `draw` and `wait` are called in turn."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self.is_coloured = not os.environ.get("NO_COLOR")

    @property
    def size(self) -> os.terminal_size:
        return size(self._out)

    def draw(self, lines: Sequence[Line], columns: int) -> None:
        self._write(drawing(lines, columns, self.is_coloured))

    def wait(self, seconds: float) -> None:
        """Return after `seconds`, or at once when the size has changed or the view was stopped and continued."""
        taken = signal.sigtimedwait(TAKEN, seconds)
        if taken is None:
            return
        if taken.si_signo == signal.SIGTSTP:
            self.leave()
            os.kill(os.getpid(), signal.SIGSTOP)
            self.enter()
        self._write("\x1b[2J")

    def enter(self) -> None:
        self._write(ENTER)

    def leave(self) -> None:
        self._write(LEAVE)

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()


@contextmanager
def screen(out: TextIO) -> Iterator[Screen]:
    """The terminal of `out`; in the end, however it comes, it is as it was before."""
    before = {number: signal.signal(number, signal.default_int_handler) for number in ENDING}
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, TAKEN)
    view = Screen(out)
    try:
        with _without_echo(sys.stdin):
            view.enter()
            yield view
    finally:
        for number in ENDING:  # a second Ctrl-C must not interrupt this
            signal.signal(number, signal.SIG_IGN)
        with contextlib.suppress(OSError):  # the terminal is gone
            view.leave()
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _without_echo(keys: TextIO) -> Iterator[None]:
    """Keys are not shown, and those that were pressed meanwhile are discarded."""
    if not keys.isatty():
        yield
        return
    before = termios.tcgetattr(keys)
    changed = termios.tcgetattr(keys)
    changed[3] &= ~(termios.ECHO | termios.ICANON)
    termios.tcsetattr(keys, termios.TCSADRAIN, changed)
    try:
        yield
    finally:
        with contextlib.suppress(termios.error):
            termios.tcsetattr(keys, termios.TCSAFLUSH, before)


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
        self.is_live = is_live(self._out)

    def show(self, text: str) -> None:
        """Show the text and how long it has taken so far, from `first_s` on."""
        taken_s = self._now() - self._begun
        if not self.is_live or taken_s < self._first_s:
            return
        line = clean(f"{text} ({format_duration(taken_s)})")
        columns = size(self._out).columns - 1  # in the last column the cursor would go to the next line
        self._write(f"\r{clip(line, columns, symbols_of(self._out))}\x1b[K")
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
