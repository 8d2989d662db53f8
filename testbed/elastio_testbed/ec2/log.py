"""The endpoint's event log."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

# Enough for hours of a small fleet's polling; older entries are dropped.
_KEEP = 100_000


@dataclass(frozen=True)
class LogEntry:
    """One event: `at` in seconds of the Unix epoch, its kind, and the details of the kind."""

    at: float
    event: str
    detail: Mapping[str, object]

    def as_dict(self) -> dict[str, object]:
        """The entry as plain data."""
        return {"at": self.at, "event": self.event, **self.detail}


class EventLog:
    """An append-only log of the last 100,000 events.

    Events: `call` (action, status, code, fault, elapsed_s), `volume` (volume, state), `attachment` (volume,
    instance, state), `bridge` (volume, instance, did), `transition_failed` (transition, error), `handler_failed`.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: deque[LogEntry] = deque(maxlen=_KEEP)

    def add(self, event: str, **detail: object) -> None:
        """Append one event with the present wall-clock time."""
        entry = LogEntry(time.time(), event, MappingProxyType(detail))
        with self._lock:
            self._entries.append(entry)

    def entries(self, event: str | None = None) -> list[LogEntry]:
        """The entries of this kind (None: all), oldest first."""
        with self._lock:
            return [entry for entry in self._entries if event in (None, entry.event)]

    def calls(self, action: str | None = None) -> list[LogEntry]:
        """All API calls, or those of one action."""
        return [entry for entry in self.entries("call") if action in (None, entry.detail["action"])]
