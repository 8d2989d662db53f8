"""Recorded exchanges with a real cloud in their order, without secrets: one JSON file for each test."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

# The credentials in requests, and in responses to a login.
_SECRET_KEYS = ("secret", "password")
_HIDDEN = "hidden"
NEVER = "2126-01-01T00:00:00.000000Z"
# Headers that clients use; the value of X-Subject-Token, the token itself, is replaced.
KEPT_HEADERS = ("content-type", "retry-after", "location", "openstack-api-version", "vary", "x-subject-token")


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request and its response; `status` 0: the connection was closed without a response."""

    service: str
    method: str
    path: str
    request: Any
    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Any = None


class CassetteError(AssertionError):
    """A request that differs from the recorded one."""


class Cassette:
    """Exchanges and notes of one test. A note is a value that the test itself got from the cloud."""

    def __init__(self, entries: list[dict[str, Any]] | None = None) -> None:
        self._entries = entries or []
        self._at = 0
        self.failure: str | None = None

    @classmethod
    def load(cls, path: Path) -> Cassette:
        return cls(json.loads(path.read_text(encoding="utf-8")))

    def save(self, path: Path) -> None:
        """Write it, one entry on a line."""
        path.parent.mkdir(parents=True, exist_ok=True)
        rows = ",\n".join(json.dumps(entry, separators=(",", ":"), sort_keys=True) for entry in self._entries)
        path.write_text(f"[\n{rows}\n]\n", encoding="utf-8")

    # --- recording ---------------------------------------------------------------------------------------

    def record(self, exchange: Exchange) -> None:
        self._entries.append(
            {
                **asdict(exchange),
                "request": _without_secrets(exchange.request),
                "body": _never_expiring(exchange.body),
                "headers": {k: _HIDDEN if k == "x-subject-token" else v for k, v in exchange.headers.items()},
            }
        )

    def note(self, value: Any) -> None:
        self._entries.append({"note": copy.deepcopy(value)})

    # --- playing -----------------------------------------------------------------------------------------

    def play(self, service: str, method: str, path: str, request: Any) -> Exchange:
        """The recorded response to the next request. Raises CassetteError when another request was recorded."""
        entry = self._next()
        asked = (service, method, path, _without_secrets(request))
        known = tuple(entry.get(key) for key in ("service", "method", "path", "request"))
        if asked != known:
            self.failure = f"the next recorded request is {known}, but this one is {asked}; record the exchanges again"
            raise CassetteError(self.failure)
        return Exchange(**entry)

    def noted(self) -> Any:
        """The next note."""
        entry = self._next()
        if "note" not in entry:
            raise CassetteError(f"the next record is {entry.get('method')} {entry.get('path')}, not a note")
        return entry["note"]

    def finished(self) -> bool:
        """Whether all records were used."""
        return self._at == len(self._entries)

    def _next(self) -> dict[str, Any]:
        if self.finished():
            self.failure = "there are more requests than recorded ones; record the exchanges again"
            raise CassetteError(self.failure)
        self._at += 1
        return self._entries[self._at - 1]


def _never_expiring(value: Any) -> Any:
    """A token is valid for a day; a client whose token has expired logs in again, which was not recorded."""
    if isinstance(value, dict):
        return {k: NEVER if k == "expires_at" and isinstance(v, str) else _never_expiring(v) for k, v in value.items()}
    return [_never_expiring(item) for item in value] if isinstance(value, list) else value


def _without_secrets(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _HIDDEN if _is_secret(k, v) else _without_secrets(v) for k, v in value.items()}
    return [_without_secrets(item) for item in value] if isinstance(value, list) else value


def _is_secret(key: str, value: object) -> bool:
    return isinstance(value, str) and key in _SECRET_KEYS
