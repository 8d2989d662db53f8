"""Converts frozen dataclasses to JSON and back, by their type hints: for the journal, which reads its own records.

Also the text of a file that another program wrote.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import types
import typing
from collections.abc import Mapping
from enum import Enum
from typing import Annotated, Any, TypeVar

T = TypeVar("T")
_KEPT = "kept"
Kept = Annotated[T, _KEPT]
"""A field that the journal keeps."""

PLAIN = frozenset({bool, int, float, str, type(None)})

_hints = functools.cache(typing.get_type_hints)


@functools.cache
def _fields(kind: type) -> tuple[str, ...] | None:
    """The names of a dataclass's fields; None for another type."""
    return tuple(f.name for f in dataclasses.fields(kind)) if dataclasses.is_dataclass(kind) else None


def encode(value: object) -> Any:
    """The value for `json.dumps`: dataclasses become objects of their fields, enums their value, tuples lists."""
    kind: type = type(value)
    if kind in PLAIN:
        return value
    names = _fields(kind)
    if names is not None:
        return {name: encode(getattr(value, name)) for name in names}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(k): encode(v) for k, v in value.items()}
    if isinstance(value, list | tuple | frozenset):
        return [encode(v) for v in value]
    return value


@functools.cache
def kept_fields(kind: type[Any]) -> tuple[str, ...]:
    """The names of the fields that are `Kept`, in their order."""
    if not dataclasses.is_dataclass(kind):
        return ()
    hints = typing.get_type_hints(kind, include_extras=True)
    return tuple(name for name, hint in hints.items() if _KEPT in getattr(hint, "__metadata__", ()))


def encode_kept(value: object) -> Any:
    """`encode` of the fields that are `Kept`, also in a value that is kept and has such fields."""
    kind: Any = type(value)
    names = kept_fields(kind)
    return {name: encode_kept(getattr(value, name)) for name in names} if names else encode(value)


def decode(kind: type[T], data: object) -> T:
    """The value of type `kind` from what `encode` returned. Unknown fields are ignored, missing ones get their default.

    Raises ValueError or TypeError if the data does not fit `kind`.
    """
    return typing.cast(T, _decode(kind, data))


def text_of(raw: bytes) -> str:
    """The text of a file in UTF-8, or in UTF-16 or UTF-32 as its byte order mark says; without the mark.

    Without a mark, zero bytes among the first four tell (RFC 4627, 3). Raises UnicodeDecodeError.
    """
    return raw.decode(json.detect_encoding(raw)).removeprefix("\ufeff")


def _decode(kind: Any, data: Any) -> Any:
    while hasattr(kind, "__supertype__"):  # NewType
        kind = kind.__supertype__
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        return None if data is None else _decode(next(a for a in arguments if a is not type(None)), data)
    if origin is tuple:
        return tuple(_decode(arguments[0], v) for v in _require(list, data))
    if origin is not None and issubclass(origin, Mapping):
        return {k: _decode(arguments[1], v) for k, v in _require(dict, data).items()}
    if dataclasses.is_dataclass(kind):
        return _decode_fields(kind, data)
    if isinstance(kind, type) and issubclass(kind, tuple):  # of typing.NamedTuple
        return kind(*map(_decode, _hints(kind).values(), _require(list, data)))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(data)
    if kind is float and type(data) is int:
        return float(data)
    return _require(kind, data)


def _require(kind: type[T], data: object) -> T:
    if not isinstance(data, kind) or (isinstance(data, bool) and kind is not bool):
        raise TypeError(f"{data!r} is not {kind.__name__}")
    return data


def _decode_fields(kind: Any, data: Any) -> Any:
    _require(dict, data)
    hints = _hints(kind)
    return kind(**{f.name: _decode(hints[f.name], data[f.name]) for f in dataclasses.fields(kind) if f.name in data})
