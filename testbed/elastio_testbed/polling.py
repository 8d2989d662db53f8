"""Bounded waits for a condition."""

from __future__ import annotations

import time
from collections.abc import Callable


def until(condition: Callable[[], bool], timeout_s: float, poll_s: float = 0.5) -> bool:
    """Poll until the condition holds. Returns False if it does not hold in time."""
    end = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(poll_s)
    return True
