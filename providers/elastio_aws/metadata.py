"""The instance metadata service, version 2 only: one small client without the SDK.

Two requests, each with its own time-out and one retry, so that a machine without the service costs seconds,
not minutes. Proxies are never used: the address is link-local.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from http.client import HTTPException
from typing import Any

from elastio.errors import ProviderError, RefusedError, TransientError

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
    answered = _ask(
        base_url,
        "/latest/api/token",
        "PUT",
        {"X-aws-ec2-metadata-token-ttl-seconds": str(TOKEN_TTL_S)},
        timeout_s,
    )
    token = answered.decode("latin-1").strip()
    if not (token.isascii() and token.isprintable()):
        raise _not_a_document(base_url)
    headers = {"X-aws-ec2-metadata-token": token}
    body = _ask(base_url, "/latest/dynamic/instance-identity/document", "GET", headers, timeout_s)
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise _not_a_document(base_url) from error
    if not isinstance(document, dict):
        raise _not_a_document(base_url)
    return document


def _ask(base_url: str, path: str, method: str, headers: dict[str, str], timeout_s: float) -> bytes:
    request = urllib.request.Request(base_url + path, method=method, headers=headers)
    for attempt in range(1, ATTEMPTS + 1):
        try:
            with _opener.open(request, timeout=timeout_s) as answer:
                body: bytes = answer.read(_MAX_BYTES)
                return body
        except (OSError, HTTPException) as error:  # URLError, HTTPError and time-outs are OSErrors
            if attempt == ATTEMPTS or _is_final(error):
                raise _translated(base_url, error) from error
    raise AssertionError("unreachable: the last attempt returns or raises")


def _is_final(error: Exception) -> bool:
    return isinstance(error, urllib.error.HTTPError) and 400 <= error.code < 500 and error.code != 429


def _translated(base_url: str, error: Exception) -> ProviderError:
    if _is_final(error):
        return RefusedError(
            f"The metadata service at {base_url} refuses ({error}); enable IMDSv2 for this instance, "
            "or set provider.aws.instance_id, region, availability_zone and account_id."
        )
    return TransientError(
        f"No metadata service answers at {base_url} ({error}); is this an EC2 instance with IMDSv2, "
        "and inside a container with a hop limit of 2?"
    )


def _not_a_document(base_url: str) -> RefusedError:
    return RefusedError(f"{base_url} answers, but not with an EC2 identity document; check provider.aws.metadata_url.")
