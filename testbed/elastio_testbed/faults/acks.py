"""What the host knows to be acknowledged: the lines that a guest has sent before it was cut off."""

from __future__ import annotations

import re
import zlib
from pathlib import Path

_LINE = re.compile(r"ack (\S+) (\d+) ([0-9a-f]{8})")


def acknowledged(text: str) -> dict[str, int]:
    """The highest number of each writer. A line that was torn, or runs into another, acknowledges nothing."""
    highest: dict[str, int] = {}
    for line in text.splitlines():
        found = _LINE.fullmatch(line)
        if found and int(found[3], 16) == zlib.crc32(f"{found[1]} {found[2]}".encode()):
            highest[found[1]] = max(int(found[2]), highest.get(found[1], 0))
    return highest


def read(path: Path) -> dict[str, int]:
    """Those in the file of a guest's port; none while there is no file."""
    return acknowledged(path.read_text(errors="replace")) if path.exists() else {}


def told(path: Path, word: str) -> int:
    """How many lines with this first word a guest has sent."""
    lines = path.read_text(errors="replace").splitlines() if path.exists() else []
    return sum(line.split(" ")[0] == word for line in lines)
