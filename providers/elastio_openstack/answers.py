"""Parts of an answer, by their kind: one that has another shape is no answer, and is asked for again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from elastio.errors import TransientError

_UNREADABLE = (KeyError, TypeError, ValueError, AttributeError, ArithmeticError)


def table(answer: Mapping[str, Any], key: str) -> dict[str, Any]:
    """The object under `key`. Raises TransientError."""
    found = answer.get(key)
    if not isinstance(found, dict):
        raise _other_shape(key)
    return found


def rows(answer: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    """The list of objects under `key`. Raises TransientError."""
    found = answer.get(key)
    if not isinstance(found, list) or not all(isinstance(row, dict) for row in found):
        raise _other_shape(key)
    return found


@contextmanager
def read_as(what: str) -> Iterator[None]:
    """Around the reading of values: one that is none raises TransientError."""
    try:
        yield
    except _UNREADABLE as error:
        raise _other_shape(what) from error


def _other_shape(what: str) -> TransientError:
    text = f"The cloud answered, but not with {what} of a known shape; it is asked again."
    return TransientError(text, code="answer.malformed")
