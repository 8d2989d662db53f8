"""Plain values, as JSON holds them, into the values of this package: every type and magnitude is checked. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from elastio.units import GB
from elastio_calibration.errors import CalibrationError

# Of whatever is counted in bytes, seconds or MB/s. Products of some such numbers are still finite.
MOST = 1e18
MOST_GB = MOST / GB
MOST_DIGITS = 30

T = TypeVar("T")


def parse(text: str) -> Any:
    """JSON. Raises ValueError, also for `NaN` and `Infinity`, which are none, for hundreds of digits and for brackets
    without end."""
    try:
        return json.loads(text, parse_constant=_refuse, parse_int=_whole)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


def _whole(text: str) -> int:
    if len(text) > MOST_DIGITS:
        raise ValueError(f"a number of {len(text)} digits is too large")
    return int(text)


def build(kind: type[T], document: Any) -> T:
    """A dataclass from an object with its fields, which may be built already.

    Raises ValueError naming the field that is wrong, missing or not known.
    """
    if not isinstance(document, Mapping):
        raise ValueError(f"what should be {kind.__name__.lower()} is no object")
    hints = get_type_hints(kind)
    unknown = sorted(set(document) - set(hints))
    if unknown:
        raise ValueError(f"{unknown[0]} is not known")
    for spec in fields(kind):  # type: ignore[arg-type]
        if spec.name not in document and spec.default is MISSING:
            raise ValueError(f"{spec.name} is missing")
    return kind(**{name: _value(name, hints[name], value) for name, value in document.items()})


def _value(name: str, hint: Any, value: Any) -> Any:
    if get_origin(hint) is tuple:
        if not isinstance(value, list | tuple):
            raise ValueError(f"{name} is no list")
        return tuple(build(get_args(hint)[0], each) for each in value)
    kinds: tuple[type, ...] = get_args(hint) or (hint,)
    kind = kinds[0]
    if value is None and type(None) in kinds:
        return None
    if is_dataclass(kind):
        return value if isinstance(value, kind) else build(kind, value)
    if issubclass(kind, Enum):
        return kind(value)
    if kind in (str, bool):
        if not isinstance(value, kind):
            raise ValueError(f"{name} is no text" if kind is str else f"{name} is neither true nor false")
        return value
    return _number(name, value, is_whole=kind is int)


def _number(name: str, value: Any, *, is_whole: bool) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name} is no number")
    if not 0 <= value <= MOST:
        raise ValueError(f"{name} does not lie between 0 and {MOST:g}")
    if is_whole and value != int(value):
        raise ValueError(f"{name} is no whole number")
    return int(value) if is_whole else float(value)


def size_bytes(size_gb: float) -> int:
    """From GB, as people give them. Raises CalibrationError where that is less than a byte or beyond all volumes."""
    if not 1 / GB <= size_gb <= MOST_GB:
        raise CalibrationError(
            f"{size_gb:g} GB is no size of a volume: it must lie between one byte and {MOST_GB:g} GB"
        )
    return round(size_gb * GB)
