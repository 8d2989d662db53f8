"""The instance metadata service, version 2 only: one small client without the SDK.

Two requests, each with its own time-out and one retry, so that a machine without the service costs seconds,
not minutes. Proxies are never used: the address is link-local.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any

from elastio.errors import RefusedError, TransientError

TOKEN_TTL_S = 300
TIMEOUT_S = 2.0
ATTEMPTS = 2
_MAX_BYTES = 65536
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def identity_document(base_url: str, timeout_s: float = TIMEOUT_S) -> dict[str, Any]:
    """The instance's identity document (instanceId, region, availabilityZone, instanceType, accountId).

    Bounded by 4 times `timeout_s`. Raises TransientError when nothing answers, RefusedError when the service
    is switched off for this instance or answers with something else.
    """
    session = Session.open(base_url, timeout_s)
    try:
        body = session.get("/latest/dynamic/instance-identity/document")
    except Rejected as error:
        raise _refused(base_url, error) from error
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise _not_a_document(base_url) from error
    if not isinstance(document, dict):
        raise _not_a_document(base_url)
    return document


class Rejected(Exception):  # no error of ours until somebody has judged the status
    """The service answers with a client error, which asking again will not cure."""

    def __init__(self, status: int) -> None:
        super().__init__(f"HTTP Error {status}")
        self.status = status


@dataclass(frozen=True, slots=True)
class Session:
    """A session of the metadata service, good for TOKEN_TTL_S."""

    base_url: str
    token: str
    timeout_s: float
    attempts: int = ATTEMPTS

    @classmethod
    def open(cls, base_url: str, timeout_s: float = TIMEOUT_S, attempts: int = ATTEMPTS) -> Session:
        """Raises TransientError when nothing answers, RefusedError where version 2 is switched off."""
        headers = {"X-aws-ec2-metadata-token-ttl-seconds": str(TOKEN_TTL_S)}
        try:
            answered = _ask(base_url, "/latest/api/token", "PUT", headers, timeout_s, attempts)
        except Rejected as error:
            raise _refused(base_url, error) from error
        token = answered.decode("latin-1").strip()
        if not (token.isascii() and token.isprintable()):
            raise _not_a_document(base_url)
        return cls(base_url, token, timeout_s, attempts)

    def get(self, path: str) -> bytes:
        """What lies under the path. Raises Rejected, or TransientError when nothing answers."""
        headers = {"X-aws-ec2-metadata-token": self.token}
        return _ask(self.base_url, path, "GET", headers, self.timeout_s, self.attempts)


def _ask(base_url: str, path: str, method: str, headers: dict[str, str], timeout_s: float, attempts: int) -> bytes:
    request = urllib.request.Request(base_url + path, method=method, headers=headers)
    for attempt in range(1, attempts + 1):
        try:
            with _opener.open(request, timeout=timeout_s) as answer:
                body: bytes = answer.read(_MAX_BYTES)
                return body
        except (OSError, HTTPException) as error:  # URLError, HTTPError and time-outs are OSErrors
            if isinstance(error, urllib.error.HTTPError):
                error.close()
                if _is_final(error.code):
                    raise Rejected(error.code) from error
            if attempt == attempts:
                raise _silent(base_url, error) from error
    raise AssertionError("unreachable: the last attempt returns or raises")


def _is_final(status: int) -> bool:
    return 400 <= status < 500 and status != 429


def _refused(base_url: str, error: Rejected) -> RefusedError:
    return RefusedError(
        f"The metadata service at {base_url} refuses ({error}); enable IMDSv2 for this instance, "
        "or set provider.aws.instance_id, region, availability_zone and account_id.",
        code="metadata.refused",
    )


def _silent(base_url: str, error: Exception) -> TransientError:
    return TransientError(
        f"No metadata service answers at {base_url} ({error}); is this an EC2 instance with IMDSv2, "
        "and inside a container with a hop limit of 2?",
        code="metadata.unreachable",
    )


def _not_a_document(base_url: str) -> RefusedError:
    text = f"{base_url} answers, but not with an EC2 identity document; check provider.aws.metadata_url."
    return RefusedError(text, code="metadata.malformed")
