"""stdout and stderr of the program: what an encoding lacks is replaced, and an output that fails is one sentence.

An error of the system while something is written has a class of its own here, so that nothing else is taken for it. A
closed pipe is left to click, which ends the program in silence.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from elastio.control.exit_codes import Exit

NAMES = ("stdout", "stderr")


class OutputError(OSError):
    """stdout or stderr cannot be written."""


class _Output(io.FileIO):
    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise
            raise OutputError(error.errno, error.strerror) from error


@contextmanager
def guarded() -> Iterator[None]:
    """Ends the program with Exit.FAILED if its output cannot be written. Streams that a test has put there stay."""
    for name in NAMES:
        if type(stream := getattr(sys, name)) is io.TextIOWrapper:
            setattr(sys, name, _tolerant(stream))
    try:
        yield
    except OutputError as error:
        with contextlib.suppress(OSError):
            sys.stderr.write(f"elastio: the output cannot be written: {error.strerror}\n")
            sys.stderr.flush()
        _discard()
        sys.exit(Exit.FAILED)


def _tolerant(stream: io.TextIOWrapper) -> io.TextIOWrapper:
    raw = _Output(stream.fileno(), "w", closefd=False)
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=stream.encoding,
        errors="replace" if stream.errors in ("strict", "surrogateescape") else stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


def _discard() -> None:
    """What is still in the buffers goes nowhere: the interpreter would fail on it once more."""
    null = os.open(os.devnull, os.O_WRONLY)
    for number in (1, 2):
        os.dup2(null, number)
