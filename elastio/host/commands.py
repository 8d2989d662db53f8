"""Runs programs; no other module does. Fixed search path, no shell, always a time-out."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Sequence
from typing import Protocol

from elastio.errors import HostError

SEARCH_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


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
