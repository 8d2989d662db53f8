"""What the host knows of a writer: the lines that the guest has sent. Times: seconds of the guest's monotonic clock."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_LINE = re.compile(r"(ack|failed) (\S+) (\d+) (\d+\.\d+)(?: (\d+))? ([0-9a-f]{8})")


@dataclass(frozen=True, slots=True)
class WriteOutcome:
    """Record `number` was acknowledged, or failed with the error `code` (errno)."""

    number: int
    at_s: float
    code: int = 0


def acknowledged(text: str) -> dict[str, WriteOutcome]:
    """The last acknowledgement of each writer. Incomplete lines and lines that run into another are ignored."""
    last: dict[str, WriteOutcome] = {}
    for name, word in _lines(text, "ack"):
        if name not in last or word.number > last[name].number:
            last[name] = word
    return last


def failures(text: str) -> dict[str, WriteOutcome]:
    """The error that stopped each writer."""
    return dict(_lines(text, "failed"))


def _lines(text: str, wanted: str) -> Iterator[tuple[str, WriteOutcome]]:
    for line in text.splitlines():
        found = _LINE.fullmatch(line)
        if not found or found[1] != wanted or (found[5] is None) != (wanted == "ack"):
            continue
        checked = line.removeprefix(f"{wanted} ").rpartition(" ")[0]
        if int(found[6], 16) == zlib.crc32(checked.encode()):
            yield found[2], WriteOutcome(int(found[3]), float(found[4]), int(found[5] or 0))


def text_of(path: Path) -> str:
    """Everything that came through a guest's port; empty while the file does not exist."""
    return path.read_text(errors="replace") if path.exists() else ""


def read(path: Path) -> dict[str, int]:
    """The highest acknowledged number of each writer."""
    return {name: word.number for name, word in acknowledged(text_of(path)).items()}


def count_lines(path: Path, word: str) -> int:
    """The number of lines that begin with this word."""
    return sum(line.split(" ")[0] == word for line in text_of(path).splitlines())
