"""Notices that EC2 is about to interrupt this instance, from the metadata service, without the SDK.

Sources: EC2 user guide, "Spot Instance interruption notices": `spot/instance-action` is 404 until about two minutes
before the interruption, then `{"action": "terminate", "time": "2017-09-18T08:22:00Z"}`. AWS recommends a check every
5 s. "Scheduled events for your instances": `events/maintenance/scheduled` is a list of
`{"NotBefore": "21 Jan 2019 09:00:43 GMT", "Code": "instance-stop", "State": "active", ...}`, empty where there is none,
and known days in advance. A reboot keeps the volumes attached, so it is not a notice here.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any

from elastio.core.model import Notice
from elastio.errors import TransientError
from elastio_aws.metadata import TOKEN_TTL_S, Rejected, Session

PATH = "/latest/meta-data/spot/instance-action"
MAINTENANCE_PATH = "/latest/meta-data/events/maintenance/scheduled"
NOT_FOUND = 404
# A session is renewed before it ends, so that a poll is one request.
RENEW_S = 0.8 * TOKEN_TTL_S
# The poll runs in the same worker as purchases: a service that does not respond may delay them only briefly.
TIMEOUT_S, ATTEMPTS = 1.0, 1
MAINTENANCE_INTERVAL_S = 60.0
# It is known for days: it counts from when dirty data should be flushed.
MAINTENANCE_LEAD_S = 1800.0
_ACTIONS = {"instance-stop": "stop", "instance-retirement": "terminate"}


class NoticeReader:
    """Polls for the notice of one instance; keeps its session of the metadata service between polls."""

    def __init__(
        self,
        base_url: str,
        seconds: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._base_url, self._seconds, self._wall = base_url, seconds, wall
        self._session: Session | None = None
        self._opened_at = 0.0
        self._scheduled: tuple[Notice, ...] = ()
        self._read_at: float | None = None

    def read(self) -> Notice | None:
        """The current notice, or None. Raises TransientError, or RefusedError without IMDSv2."""
        body = self._get(PATH)
        if body is not None:
            return parse(body)
        now = self._seconds()
        if self._read_at is None or now - self._read_at >= MAINTENANCE_INTERVAL_S:
            listed = self._get(MAINTENANCE_PATH)
            self._scheduled = parse_scheduled(listed) if listed is not None else ()
            self._read_at = now
        near = (notice for notice in self._scheduled if notice.at_wall - self._wall() <= MAINTENANCE_LEAD_S)
        return min(near, key=lambda notice: notice.at_wall, default=None)

    def _get(self, path: str) -> bytes | None:
        session = self._opened()
        try:
            return session.get(path)
        except Rejected as error:
            if error.status == NOT_FOUND:
                return None
            self._session = None  # the next poll opens a new one
            text = f"The metadata service at {self._base_url} returned HTTP status {error.status}; it is polled again."
            raise TransientError(text, code=f"metadata.{error.status}") from error

    def _opened(self) -> Session:
        if self._session is None or self._seconds() - self._opened_at >= RENEW_S:
            self._session = Session.open(self._base_url, TIMEOUT_S, ATTEMPTS)
            self._opened_at = self._seconds()
        return self._session


def parse(body: bytes) -> Notice:
    """The notice in a response. Raises TransientError for a malformed one, which proves neither notice nor absence."""
    try:
        document: Any = json.loads(body)
        action, at = document["action"], datetime.fromisoformat(document["time"])
    except (ValueError, KeyError, TypeError) as error:
        text = "The metadata service returned a malformed spot action; it is polled again."
        raise TransientError(text, code="notice.malformed") from error
    if at.tzinfo is None or action not in ("terminate", "stop", "hibernate"):
        text = f"The metadata service returned an unknown spot action, {str(action)[:40]!r}; it is polled again."
        raise TransientError(text, code="notice.malformed")
    return Notice(action, at.timestamp())


def parse_scheduled(body: bytes) -> tuple[Notice, ...]:
    """Every scheduled stop and retirement. Raises TransientError for a malformed response."""
    try:
        rows = [row for row in json.loads(body) if row["State"] == "active" and row["Code"] in _ACTIONS]
        return tuple(Notice(_ACTIONS[row["Code"]], _gmt(row["NotBefore"])) for row in rows)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        text = "The metadata service returned malformed maintenance events; it is polled again."
        raise TransientError(text, code="notice.malformed") from error


def _gmt(text: str) -> float:
    at = parsedate_to_datetime(text)
    if at.tzinfo is None:
        raise ValueError(f"{text} has no time zone")
    return at.timestamp()
