"""Notices that EC2 takes a spot instance away, from the metadata service: no SDK, one small request at a time.

Source: EC2 user guide, "Spot Instance interruption notices": `spot/instance-action` is 404 until about two minutes
before the interruption, then `{"action": "terminate", "time": "2017-09-18T08:22:00Z"}`. AWS advises to look every 5 s.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

from elastio.errors import TransientError
from elastio.model import Notice
from elastio_aws.metadata import TOKEN_TTL_S, Rejected, Session

PATH = "/latest/meta-data/spot/instance-action"
NOT_FOUND = 404
UNAUTHORIZED = 401
# A session is renewed before it ends, so that a look is one request.
RENEW_S = 0.8 * TOKEN_TTL_S


class NoticeReader:
    """Looks for the notice of one instance; the session of the metadata service is kept between looks."""

    def __init__(self, base_url: str, seconds: Callable[[], float] = time.monotonic) -> None:
        self._base_url, self._seconds = base_url, seconds
        self._session: Session | None = None
        self._opened_at = 0.0

    def read(self) -> Notice | None:
        """The notice that stands, or None. Raises TransientError, or RefusedError without IMDSv2."""
        session = self._opened()
        try:
            body = session.get(PATH)
        except Rejected as error:
            if error.status == NOT_FOUND:
                return None
            self._session = None  # a new one at the next look
            raise TransientError(f"The metadata service at {self._base_url} answers {error.status}.") from error
        return parse(body)

    def _opened(self) -> Session:
        if self._session is None or self._seconds() - self._opened_at >= RENEW_S:
            self._session, self._opened_at = Session.open(self._base_url), self._seconds()
        return self._session


def parse(body: bytes) -> Notice:
    """The notice in an answer. Raises TransientError where it is none: half a notice is no reason to flush or not."""
    try:
        document: Any = json.loads(body)
        action, at = document["action"], datetime.fromisoformat(document["time"])
    except (ValueError, KeyError, TypeError) as error:
        raise TransientError("The metadata service shows a spot action that is not understood.") from error
    if at.tzinfo is None or action not in ("terminate", "stop", "hibernate"):
        raise TransientError(f"The metadata service shows a spot action that is not known: {str(action)[:40]!r}.")
    return Notice(action, at.timestamp())
