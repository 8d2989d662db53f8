"""Progress on stderr: only on a terminal, only of what takes long, and gone in the end."""

from __future__ import annotations

import io
import os
import pty
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TextIO

import pytest

from elastio_cli.terminal import FIRST_S, ProgressLine, busy


@dataclass
class Ticks:
    """A clock that a test sets."""

    at_s: float = 0.0

    def __call__(self) -> float:
        return self.at_s


class Tty(io.StringIO):
    """A terminal that keeps what is written."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def xterm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")


def test_a_line_appears_after_two_seconds_and_is_cleared() -> None:
    out, ticks = Tty(), Ticks()
    line = ProgressLine(out, ticks)
    line.show("flushing")
    line.clear()
    assert out.getvalue() == ""
    ticks.at_s = FIRST_S
    line.show("flushing")
    assert "flushing" in out.getvalue()
    line.clear()
    line.clear()
    assert out.getvalue().endswith("\r\x1b[K")
    assert out.getvalue().count("\r\x1b[K") == 1


def test_a_line_is_never_wider_than_the_terminal() -> None:
    out, ticks = Tty(), Ticks()
    line = ProgressLine(out, ticks)
    ticks.at_s = FIRST_S
    line.show("x" * 500 + "\n\x1b[2J")
    assert len(out.getvalue().removeprefix("\r").removesuffix("\x1b[K")) < 80


@pytest.mark.parametrize(("kind", "term"), [(io.StringIO, "xterm"), (Tty, "dumb")])
def test_without_a_terminal_nothing_is_shown(
    kind: type[io.StringIO], term: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", term)
    out, ticks = kind(), Ticks()
    line = ProgressLine(out, ticks)
    ticks.at_s = 60.0
    line.show("flushing")
    line.clear()
    assert out.getvalue() == ""


@pytest.fixture
def tty() -> Iterator[tuple[int, TextIO]]:
    master, slave = pty.openpty()
    with os.fdopen(slave, "w") as out:
        yield master, out
    os.close(master)


def test_work_that_takes_long_is_shown_while_it_lasts(tty: tuple[int, TextIO], monkeypatch: pytest.MonkeyPatch) -> None:
    master, out = tty
    monkeypatch.setattr(sys, "stderr", out)
    shown = b""
    with busy("replaying the trace", 0.0):
        while b"replaying the trace" not in shown:  # the work ends when it was seen
            shown += os.read(master, 1000)
    assert os.read(master, 1000).endswith(b"\r\x1b[K")


def test_an_error_of_the_work_passes_and_the_line_is_cleared(
    tty: tuple[int, TextIO], monkeypatch: pytest.MonkeyPatch
) -> None:
    master, out = tty
    monkeypatch.setattr(sys, "stderr", out)

    def work() -> None:
        with busy("dividing", 0.0):
            while b"dividing" not in os.read(master, 1000):
                pass
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()
    assert os.read(master, 1000).endswith(b"\r\x1b[K")
