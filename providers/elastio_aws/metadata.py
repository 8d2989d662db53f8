"""A client of the instance metadata service, version 2 only, without the SDK.

Two requests, each with a time-out and one retry: a machine without the service costs seconds, not minutes. Proxies are
not used: the address is link-local.
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

    Takes at most 4 times `timeout_s`. Raises TransientError if the service does not respond, RefusedError if it is
    disabled for this instance or returns something else.
    """
    session = Session.open(base_url, timeout_s)
    try:
        body = session.get("/latest/dynamic/instance-identity/document")
    except Rejected as error:
        raise _refused(base_url, error) from error
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise _malformed(base_url) from error
    if not isinstance(document, dict):
        raise _malformed(base_url)
    return document


class Rejected(Exception):  # not of `elastio.errors`: what it means depends on the status
    """The service returned a client error, so a retry does not help."""

    def __init__(self, status: int) -> None:
        super().__init__(f"HTTP Error {status}")
        self.status = status


@dataclass(frozen=True, slots=True)
class Session:
    """A session of the metadata service, valid for TOKEN_TTL_S."""

    base_url: str
    token: str
    timeout_s: float
    attempts: int = ATTEMPTS

    @classmethod
    def open(cls, base_url: str, timeout_s: float = TIMEOUT_S, attempts: int = ATTEMPTS) -> Session:
        """Raises TransientError if the service does not respond, RefusedError if version 2 is disabled."""
        headers = {"X-aws-ec2-metadata-token-ttl-seconds": str(TOKEN_TTL_S)}
        try:
            response = _request(base_url, "/latest/api/token", "PUT", headers, timeout_s, attempts)
        except Rejected as error:
            raise _refused(base_url, error) from error
        token = response.decode("latin-1").strip()
        if not (token.isascii() and token.isprintable()):
            raise _malformed(base_url)
        return cls(base_url, token, timeout_s, attempts)

    def get(self, path: str) -> bytes:
        """The body at the path. Raises Rejected, or TransientError if the service does not respond."""
        headers = {"X-aws-ec2-metadata-token": self.token}
        return _request(self.base_url, path, "GET", headers, self.timeout_s, self.attempts)


def _request(base_url: str, path: str, method: str, headers: dict[str, str], timeout_s: float, attempts: int) -> bytes:
    request = urllib.request.Request(base_url + path, method=method, headers=headers)
    for attempt in range(1, attempts + 1):
        try:
            with _opener.open(request, timeout=timeout_s) as response:
                body: bytes = response.read(_MAX_BYTES)
                return body
        except (OSError, HTTPException) as error:  # URLError, HTTPError and time-outs are OSErrors
            if isinstance(error, urllib.error.HTTPError):
                error.close()
                if _is_final(error.code):
                    raise Rejected(error.code) from error
            if attempt == attempts:
                raise _unreachable(base_url, error) from error
    raise AssertionError("unreachable: the last attempt returns or raises")


def _is_final(status: int) -> bool:
    return 400 <= status < 500 and status != 429


def _refused(base_url: str, error: Rejected) -> RefusedError:
    return RefusedError(
        f"The metadata service at {base_url} refused the request ({error}); enable IMDSv2 for this instance, "
        "or set provider.aws.instance_id, region, availability_zone and account_id.",
        code="metadata.refused",
    )


def _unreachable(base_url: str, error: Exception) -> TransientError:
    return TransientError(
        f"The metadata service at {base_url} does not respond ({error}); check that this is an EC2 instance with "
        "IMDSv2, and in a container that the hop limit is 2.",
        code="metadata.unreachable",
    )


def _malformed(base_url: str) -> RefusedError:
    text = f"{base_url} did not return an EC2 identity document; check provider.aws.metadata_url."
    return RefusedError(text, code="metadata.malformed")
