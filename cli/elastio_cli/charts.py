"""Text that fits a terminal: columns of a text, bars, and charts of block characters. Pure.

A column is one cell of the terminal. East Asian wide characters take two, combining ones none. Control characters
become `?`: an error of a cloud must not be able to move the cursor.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

_HIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
_COMBINING = {"Mn", "Me"}


class Style(Enum):
    """How a line is shown where colours are used."""

    PLAIN = "plain"
    HEAD = "head"
    QUIET = "quiet"
    ACTIVE = "active"
    WARNING = "warning"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class Line:
    text: str
    style: Style = Style.PLAIN


@dataclass(frozen=True, slots=True)
class Symbols:
    """`levels` are nine characters, from an empty cell to a full one; `full` and `empty` those of a bar."""

    levels: str
    full: str
    empty: str
    more: str


BLOCKS = Symbols(" ▁▂▃▄▅▆▇█", "█", "░", "…")
ASCII = Symbols(" ...:::##", "#", "-", "~")
# What fits over the narrowest picture that is drawn.
CAPTION = 80


def clean(text: str) -> str:
    """The text on one line, without characters that a terminal interprets."""
    return "".join("?" if unicodedata.category(c) in _HIDDEN else c for c in " ".join(text.split()))


def caption(text: str) -> str:
    """The text as a title of a picture: on one line, of at most CAPTION columns."""
    return clip(clean(text), CAPTION, ASCII)


def width(text: str) -> int:
    """The columns that a clean text takes."""
    return sum(_cells(c) for c in text)


def _cells(character: str) -> int:
    if unicodedata.category(character) in _COMBINING:
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def clip(text: str, columns: int, symbols: Symbols) -> str:
    """A clean text in at most `columns` columns; what is cut off is shown by `symbols.more`."""
    if width(text) <= columns:
        return text
    kept, taken = [], 0
    for character in text:
        taken += _cells(character)
        if taken > columns - 1:
            break
        kept.append(character)
    return "".join(kept) + (symbols.more if columns > 0 else "")


def wrap(text: str, columns: int, most: int, symbols: Symbols) -> list[str]:
    """A clean text on at most `most` lines, broken between words; the last line is cut."""
    lines: list[str] = []
    rest = text
    while width(rest) > columns and len(lines) < most - 1 and " " in rest[:columns]:
        cut = rest.rfind(" ", 0, _fitting(rest, columns) + 1)
        if cut <= 0:
            break
        lines.append(rest[:cut])
        rest = rest[cut + 1 :]
    return [*lines, clip(rest, columns, symbols)]


def _fitting(text: str, columns: int) -> int:
    """How many characters fit into `columns`."""
    taken = 0
    for count, character in enumerate(text):
        taken += _cells(character)
        if taken > columns:
            return count
    return len(text)


def bar(share: float, columns: int, symbols: Symbols) -> str:
    """A bar of `columns` columns in brackets, full from 1.0 on; a share above 0 shows at least one cell."""
    inside = max(0, columns - 2)
    filled = min(inside, max(1 if share > 0 else 0, int(min(share, 1.0) * inside)))
    return f"[{symbols.full * filled}{symbols.empty * (inside - filled)}]"


def chart(values: Sequence[float | None], most: float, height: int, symbols: Symbols) -> list[str]:
    """One column for each value, `height` lines from the top down; None and 0 are empty, `most` is full.

    A value above 0 shows at least the lowest level.
    """
    eighths = [_eighths(value, most, height) for value in values]
    lines = []
    for row in reversed(range(height)):
        lines.append("".join(symbols.levels[min(8, max(0, each - 8 * row))] for each in eighths))
    return lines


def _eighths(value: float | None, most: float, height: int) -> int:
    if value is None or value <= 0 or most <= 0:
        return 0
    return max(1, round(8 * height * min(value, most) / most))
