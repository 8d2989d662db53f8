"""The exit codes of `elastio` and `elastiod`, and which error ends in which."""

from __future__ import annotations

from enum import IntEnum

from elastio.control.protocol import RefusedByAgentError, UnreachableError
from elastio.errors import ConfigError, ElastioError, LockedError


class TimedOutError(ElastioError):
    """What was waited for did not happen in time; it may still."""


class Exit(IntEnum):
    OK = 0
    FAILED = 1
    USAGE = 2  # what click itself exits with
    CONFIG = 3
    UNREACHABLE = 4
    REFUSED = 5
    TIMED_OUT = 6


def exit_of(error: ElastioError) -> Exit:
    """The exit code that stands for an error."""
    match error:
        case ConfigError():
            return Exit.CONFIG
        case UnreachableError():
            return Exit.UNREACHABLE
        case RefusedByAgentError() | LockedError():
            return Exit.REFUSED
        case TimedOutError():
            return Exit.TIMED_OUT
    return Exit.FAILED


def sentence(error: ElastioError) -> str:
    """What an operator reads on stderr: one line that begins with the program's name."""
    return "elastio: " + " ".join(str(error).split())
