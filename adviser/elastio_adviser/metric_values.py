"""Numbers and times in documents of monitoring systems, within bounds. Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from elastio_adviser.rates import TraceError

# The end of year 9999, which no later time can be printed after.
_LAST_S = 253402300800.0


def time(text: str | float) -> float:
    """Seconds since the epoch; a time without a zone counts as UTC: only differences matter. Raises ValueError."""
    if isinstance(text, str):
        at = datetime.fromisoformat(text)
        seconds = (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    else:
        seconds = float(text)
    if not 0 <= seconds < _LAST_S:
        raise ValueError(f"{text} is no time since 1970")
    return seconds


def number(value: Any, name: str) -> float:
    """Bytes, or bytes a second. Raises TraceError if they are out of range, and TypeError for what is no number."""
    if isinstance(value, bool):
        raise TypeError(f"{value} is not a number")
    found = float(value)
    if not 0 <= found < 1e18:
        raise TraceError(f"{name}: {value!r} is out of range: bytes are from 0 to 1e18", code="range")
    return found
