"""The exit codes of `elastio` and `elastiod`, and the exit code of each error."""

from __future__ import annotations

from enum import IntEnum

from elastio.control.protocol import RefusedByAgentError, UnreachableError
from elastio.errors import ConfigError, ElastioError, LockedError


class TimedOutError(ElastioError):
    """A wait took too long. What was waited for may still happen."""


class Exit(IntEnum):
    OK = 0
    FAILED = 1
    USAGE = 2  # click's own
    CONFIG = 3
    UNREACHABLE = 4
    REFUSED = 5
    TIMED_OUT = 6
    DEGRADED = 7  # `status --check`: the agent answers, and something is wrong
    FAULTED = 8  # `status --check`: an operator must decide


def exit_of(error: ElastioError) -> Exit:
    """The exit code for an error."""
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
    """The error as one line for stderr."""
    return "elastio: " + " ".join(str(error).split())
