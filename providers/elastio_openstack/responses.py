"""Reads parts of a response by their type. A malformed response is a transient error: the call is repeated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from elastio.errors import TransientError

_UNREADABLE = (KeyError, TypeError, ValueError, AttributeError, ArithmeticError)


def object_in(response: Mapping[str, Any], key: str) -> dict[str, Any]:
    """The object under `key`. Raises TransientError."""
    found = response.get(key)
    if not isinstance(found, dict):
        raise _malformed(key)
    return found


def list_in(response: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    """The list of objects under `key`. Raises TransientError."""
    found = response.get(key)
    if not isinstance(found, list) or not all(isinstance(row, dict) for row in found):
        raise _malformed(key)
    return found


@contextmanager
def parsing(what: str) -> Iterator[None]:
    """A context in which a missing or malformed value raises TransientError."""
    try:
        yield
    except _UNREADABLE as error:
        raise _malformed(what) from error


def _malformed(what: str) -> TransientError:
    text = f"The cloud returned {what} in an unknown form; the call will be repeated."
    return TransientError(text, code="response.malformed")
