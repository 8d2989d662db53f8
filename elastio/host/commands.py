"""Runs programs; no other module does. Fixed search path, no shell, always a time-out.

`start` is for the command that an operator measures: it runs as the operator would run it, for as long as it takes.
"""

from __future__ import annotations

import math
import os
import select
import shlex
import subprocess
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Protocol, Self

from elastio.errors import HostError
from elastio.host.sysfs import Sysfs

FOLDERS = ("usr/sbin", "usr/bin", "sbin", "bin")
SEARCH_PATH = ":".join(f"/{folder}" for folder in FOLDERS)
STANDARD_ERROR = 2


class Run(Protocol):
    """How a program is run: `run`, or a test's stand-in for it."""

    def __call__(self, argv: Sequence[str], *, timeout_s: float) -> str: ...


def run(argv: Sequence[str], *, timeout_s: float = 30.0) -> str:
    """Standard output of the program. Raises HostError when it is missing, fails or takes too long."""
    shown = shlex.join(argv)
    try:
        done = subprocess.run(
            list(argv),
            env={"PATH": SEARCH_PATH, "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
        )
    except FileNotFoundError as error:
        raise HostError(f"{argv[0]} is not installed", code="program.missing") from error
    except subprocess.TimeoutExpired as error:
        raise HostError(f"`{shown}` did not end within {timeout_s:g} s", code="program.timeout") from error
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()
        text = f"`{shown}` failed ({done.returncode}): {said[-1] if said else 'no message'}"
        raise HostError(text, code="program.failed")
    return done.stdout


def is_installed(sysfs: Sysfs, name: str, folders: Sequence[str] = FOLDERS) -> bool:
    """Whether one of the folders, below the root of this machine, has the file: a program, a unit or a rule."""
    return any(sysfs.exists(f"{folder}/{name}") for folder in folders)


class Started(Protocol):
    """A command that was started: `Command`, or a test's stand-in for it."""

    pid: int

    def wait(self, seconds: float) -> bool:
        """Whether it has ended, after at most so many seconds."""

    def end(self) -> None:
        """Ask it to end, as systemd does."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None: ...

    @property
    def exit_code(self) -> int:
        """As a shell shows it: 128 and the signal for one that a signal ended. Only after its end."""


Start = Callable[[Sequence[str]], Started]


class Command:
    """`Started`, with the operator's environment and input; what it prints goes to standard error.

    Leaving the block ends it, if it still runs.
    """

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process, self.pid = process, process.pid
        self._descriptor = os.pidfd_open(process.pid)
        self._ended = select.poll()
        self._ended.register(self._descriptor, select.POLLIN)

    def wait(self, seconds: float) -> bool:
        return bool(self._ended.poll(None if math.isinf(seconds) else max(0.0, seconds) * 1000))

    def end(self) -> None:
        self._process.terminate()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if not self.wait(0):
            self.end()
        self._process.wait()
        os.close(self._descriptor)

    @property
    def exit_code(self) -> int:
        code = self._process.wait()
        return code if code >= 0 else 128 - code


def start(argv: Sequence[str]) -> Command:
    """Start a command of the operator's. Raises HostError if it cannot be started."""
    try:
        return Command(subprocess.Popen(list(argv), stdout=STANDARD_ERROR))
    except FileNotFoundError as error:
        raise HostError(f"{argv[0]} is not installed", code="program.missing") from error
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise HostError(f"{argv[0]} cannot be started: {reason}", code="program.failed") from error
