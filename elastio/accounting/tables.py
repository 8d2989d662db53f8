"""What the text and JSON forms of the report and of the history share. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, tzinfo
from textwrap import shorten


@dataclass(frozen=True, slots=True)
class Table:
    """Rows below their heads. `left_out`: how many earlier rows there are."""

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left_out: int = 0

    def lines(self) -> list[str]:
        return table(self.heads, self.rows, self.left_out)


def table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]], left_out: int) -> list[str]:
    """The lines of a table and a blank one. `left_out`: how many earlier rows there are."""
    widths = [max(len(cell) for cell in column) for column in zip(heads, *rows, strict=True)]
    text = [0, len(heads) - 1] if heads[-1] == "note" else [0]
    lines = []
    for row in (heads, *rows):
        cells = (c.ljust(w) if i in text else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True)))
        lines.append("  ".join(cells).rstrip())
    return [lines[0], *([f"({left_out} earlier)"] if left_out else []), *lines[1:], ""]


def note(text: str) -> str:
    """A failure as a cell of a table."""
    return shorten(text, 30, placeholder="…")


def begun(wall: float, tz: tzinfo) -> str:
    """The beginning of a boost as a cell of a table."""
    return datetime.fromtimestamp(wall, tz).strftime("%m-%d %H:%M:%S")


def iso(wall: float | None, tz: tzinfo) -> str | None:
    """ISO 8601 with the offset; None for None."""
    return None if wall is None else datetime.fromtimestamp(wall, tz).isoformat(timespec="milliseconds")
