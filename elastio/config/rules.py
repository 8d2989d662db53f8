"""What a key of the configuration may hold. A rule returns the value of a TOML document or raises ConfigError."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from elastio.errors import ConfigError
from elastio.units import MOST_SOCKET_BYTES

# A larger number is a typing error, and what is computed from it fits no 64-bit integer.
LARGEST = 2**63 - 1
SHOWN_CHARACTERS = 80
# path_resolution(7); a directory gets files below it.
MOST_NAME_BYTES, MOST_PATH_BYTES = 255, 3840


def refuse(key: str, value: object, allowed: str) -> ConfigError:
    """The error for a value that is not allowed. Its code is the key."""
    return ConfigError(f"{key} is {_shown(value)}; allowed: {allowed}", code=key)


def _shown(value: object) -> str:
    """The value as in the file, at most SHOWN_CHARACTERS long."""
    if isinstance(value, int) and abs(value) > LARGEST:
        return "too large"  # int to str raises ValueError for thousands of digits
    text = f'"{value}"' if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else str(value)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."


def _bounds(above: float | None, least: float | None, most: float | None) -> str:
    if above is not None:
        return f"above {above:g}" + ("" if most is None else f" and at most {most:g}")
    return f"at least {least:g}" if most is None else f"from {least:g} to {most:g}"


@dataclass(frozen=True, slots=True)
class Number:
    """A finite number within bounds."""

    meaning: str
    above: float | None = None
    least: float | None = None
    most: float | None = None
    is_whole: bool = False

    @property
    def allowed(self) -> str:
        return f"a {'whole ' if self.is_whole else ''}number {_bounds(self.above, self.least, self.most)}"

    def read(self, key: str, value: object) -> float:
        """An int if `is_whole`, else a float."""
        if isinstance(value, bool) or not isinstance(value, int if self.is_whole else int | float):
            raise refuse(key, value, self.allowed)
        if not self._fits(value):
            raise refuse(key, value, self.allowed)
        return value if self.is_whole else float(value)

    def _fits(self, value: float) -> bool:
        # The comparison first: an integer can be too large for a float.
        if not (-LARGEST <= value <= LARGEST and math.isfinite(value)):
            return False
        above, least, most = self.above, self.least, self.most
        return (
            (above is None or value > above) and (least is None or value >= least) and (most is None or value <= most)
        )


def whole(meaning: str, *, least: int) -> Number:
    """A whole number."""
    return Number(meaning, least=least, is_whole=True)


@dataclass(frozen=True, slots=True)
class Flag:
    """True or false."""

    meaning: str
    allowed: str = "true or false"

    def read(self, key: str, value: object) -> bool:
        if not isinstance(value, bool):
            raise refuse(key, value, self.allowed)
        return value


# The UUID as bcache-tools print it; groups as useradd accepts them.
_PATTERNS = {
    "uuid": (
        re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"),
        "a UUID such as the one in /sys/block/bcache0/bcache/backing_dev_uuid",
    ),
    "path": (re.compile(r"/[^\0]*"), "an absolute path"),
    "socket": (re.compile(r"/[^\0]*"), f"an absolute path of at most {MOST_SOCKET_BYTES} bytes"),
    "group": (re.compile(r"|[a-z_][a-z0-9_-]*"), "the name of a group, or an empty string"),
    "word": (re.compile(r"[a-z][a-z0-9_-]*"), "a name of lower-case letters, digits, - and _"),
}


@dataclass(frozen=True, slots=True)
class Text:
    """A string of one kind: `uuid`, `path`, `socket`, `group`, `word`, or `choice` (one of `choices`)."""

    meaning: str
    kind: str
    choices: tuple[str, ...] = ()

    @property
    def allowed(self) -> str:
        return f"one of {', '.join(self.choices)}" if self.choices else _PATTERNS[self.kind][1]

    def read(self, key: str, value: object) -> Any:
        """A Path for `path` and `socket`, lower case for `uuid`, else the string."""
        if not isinstance(value, str) or not self._fits(value):
            raise refuse(key, value, self.allowed)
        if self.kind in ("path", "socket"):
            return Path(value)
        return value.lower() if self.kind == "uuid" else value

    def _fits(self, value: str) -> bool:
        if self.choices:
            return value in self.choices
        is_path = self.kind in ("path", "socket")
        return bool(_PATTERNS[self.kind][0].fullmatch(value)) and (not is_path or self._is_short(value))

    def _is_short(self, path: str) -> bool:
        raw = path.encode(errors="replace")
        most = MOST_SOCKET_BYTES if self.kind == "socket" else MOST_PATH_BYTES
        return len(raw) <= most and max(map(len, raw.split(b"/"))) <= MOST_NAME_BYTES


@dataclass(frozen=True, slots=True)
class Amounts:
    """A table of names and numbers above 0."""

    meaning: str
    allowed: str = "a table of names and numbers above 0"

    def read(self, key: str, value: object) -> dict[str, float]:
        """The numbers by name."""
        if not isinstance(value, Mapping) or not all(name.strip() for name in value):
            raise refuse(key, value, self.allowed)
        amount = Number(self.meaning, above=0)
        return {name: amount.read(f"{key}.{name}", number) for name, number in value.items()}


@dataclass(frozen=True, slots=True)
class Patterns:
    """A list of paths below a root, in which `*`, `?` and `[...]` stand for a part of a name."""

    meaning: str
    allowed: str = "a list of paths with * for parts of names"

    def read(self, key: str, value: object) -> tuple[str, ...]:
        if not isinstance(value, list) or not all(isinstance(each, str) and self._fits(each) for each in value):
            raise refuse(key, value, self.allowed)
        return tuple(value)

    def _fits(self, pattern: str) -> bool:
        names = pattern.split("/")
        return len(pattern) <= MOST_PATH_BYTES and not any(name in ("", ".", "..") or "\0" in name for name in names)


Rule: TypeAlias = Number | Flag | Text | Amounts | Patterns


def key(rule: Rule, default: Any = MISSING) -> Any:
    """A key of a section. Without a default it must be set; a default of None means unlimited, or derived."""
    return field(metadata={"rule": rule}) if default is MISSING else field(default=default, metadata={"rule": rule})
