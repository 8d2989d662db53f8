"""Turns the SDK's exceptions and the services' error responses into errors of the agent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from keystoneauth1 import exceptions as ksa
from openstack.exceptions import SDKException

from elastio.errors import AuthError, ProviderError, QuotaError, RefusedError, TransientError

SDK_ERRORS = (ksa.ClientException, SDKException, OSError)

_PASSING = (
    ksa.ConnectFailure,
    ksa.ConnectTimeout,
    ksa.RetriableConnectionFailure,
    ksa.UnknownConnectionError,
    ksa.DiscoveryFailure,
)
_MAX_TEXT = 200
Cause: TypeAlias = tuple[type[ProviderError], str]
# Of responses 400 and 404: the state of a volume or server that is still changing, and what the service asks to repeat.
_PASSING_WORDS = ("try again", "retry", "status must be", "is currently", "task_state", "already in progress")
_QUOTA_WORDS = ("quota", "maximum allowed number", "exceeds allowed", "limitexceeded")


class CloudError(Exception):
    """A response with a status of 400 or above, before it is classified."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text}")
        self.status, self.text = status, text


def translate(operation: str, error: Exception) -> ProviderError:
    """An error that names the operation, the reason and what to do. The caller raises it `from error`.

    `code` is the HTTP status of the service's response, `login.STATUS` for Keystone's response to a login, or the name
    of the SDK's exception if no service responded.
    """
    if isinstance(error, CloudError):
        kind, text = _refused(error.status, error.text)
        return kind(f"{operation} {text}.", code=str(error.status))
    if isinstance(error, ksa.HttpError) and not isinstance(error, _PASSING):
        # only Keystone's responses are raised; its 404 is a deleted credential, not a volume that is gone
        status = int(error.http_status or 0)
        kind, text = _refused_at_login(status, _short(str(error)))
        return kind(f"{operation} {text}.", code=f"login.{status}")
    kind, text = _unanswered(error)
    return kind(f"{operation} {text}.", code=type(error).__name__)


def _unanswered(error: Exception) -> Cause:
    said = _short(str(error))
    if isinstance(error, _PASSING):
        return TransientError, (
            f"got no response ({said}) and will be repeated; if this persists, check the network and the auth_url in "
            "clouds.yaml"
        )
    if isinstance(error, ksa.EndpointNotFound | ksa.EmptyCatalog):
        return RefusedError, (
            f"found no such service in the catalog ({said}); check the region and the project of the credential"
        )
    if isinstance(error, ksa.AuthorizationFailure | ksa.AuthPluginException | SDKException):
        return AuthError, (
            f"has no usable credentials ({said}); check provider.openstack.cloud and its entry in clouds.yaml"
        )
    return TransientError, (
        f"got no usable response ({said}) and will be repeated; if this persists, check the network, and auth_url and "
        "cacert in clouds.yaml"
    )


def _refused_at_login(status: int, said: str) -> Cause:
    if status >= 500 or status in (408, 413, 429):
        return TransientError, f"needs a login, and Keystone returned {status}; it will be repeated"
    if status == 404 and "application credential" not in said.lower():
        return AuthError, f"found no Keystone ({status}, {said}); correct the auth_url in clouds.yaml"
    if "cannot request a scope" in said:
        return AuthError, (
            f"was refused at login with {status} ({said}); remove project and domain from the entry in clouds.yaml: an "
            "application credential has its own"
        )
    return AuthError, (
        f"was refused at login with {status} ({said}); make a new application credential and put it into clouds.yaml"
    )


def _refused(status: int, text: str) -> Cause:
    """The cause of a service's error response."""
    said = f" ({_short(text)})" if text.strip() else ""
    if status in (403, 413) and any(word in text.lower() for word in _QUOTA_WORDS):
        return QuotaError, f"exceeds a quota{said}: ask the cloud's operator for more, or delete unused volumes"
    if status in (401, 403):
        return AuthError, (
            f"is not allowed, {status}{said}: give the application credential the role `member`, and access rules that "
            "include this call"
        )
    if status in (408, 413, 429):
        return TransientError, f"is throttled, {status}{said}; it will be repeated"
    if status >= 500:
        return TransientError, f"failed in the service, {status}{said}; it will be repeated"
    if status == 409:
        return TransientError, f"conflicts with another change, {status}{said}; it will be repeated"
    if any(words in text.lower() for words in _PASSING_WORDS):
        return TransientError, f"cannot be done at the moment, {status}{said}; it will be repeated"
    return RefusedError, f"was refused, {status}{said}; check the settings of [provider.openstack]"


def message_of(body: Any) -> str:
    """The message in an OpenStack error body, `{"badRequest": {"code": 400, "message": ...}}`."""
    if isinstance(body, Mapping):
        for part in body.values():
            if isinstance(part, Mapping) and "message" in part:
                return str(part["message"])
    return ""


def _short(text: str) -> str:
    line = " ".join(text.split()).rstrip(".")
    return line if len(line) <= _MAX_TEXT else line[: _MAX_TEXT - 1] + "…"
