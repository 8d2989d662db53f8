"""The code blocks of README, tutorials and how-to pages, and whether they are run.

A block is run if the line before it is the comment `<!-- run -->`, which no reader of the rendered page sees. Every
other block is listed in `not_run.toml` by its page and its first line, with one of the reasons that are explained
there.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGES = ("README.md", "docs/tutorial/*.md", "docs/how-to/*.md")
RUN = "<!-- run -->"
ADOPTION = "docs/how-to/adopt.md"
ITEM = re.compile(r"\s*(?:\d+\.|[-*]) ")


@dataclass(frozen=True)
class Block:
    """`page` is relative to the repository. `text` has no indentation of the page."""

    page: str
    line: int
    text: str
    is_run: bool

    @property
    def first(self) -> str:
        return self.text.partition("\n")[0].strip()

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> dict[str, str]:
    """The text of every page, by its path."""
    paths = sorted(path for pattern in PAGES for path in ROOT.glob(pattern))
    return {str(path.relative_to(ROOT)): path.read_text() for path in paths}


def blocks(page: str, text: str) -> Iterator[Block]:
    """Fenced blocks, and those that are indented by four and follow an empty line."""
    lines, at = text.splitlines(), 0
    while at < len(lines):
        end = _end_of_fence(lines, at) or _end_of_indented(lines, at)
        if end is None:
            at += 1
            continue
        is_fence = lines[at].startswith("```")
        body = lines[at + 1 : end - 1] if is_fence else [line[4:] for line in lines[at:end]]
        yield Block(page, at + 1, "\n".join(body) + "\n", _is_marked(lines, at))
        at = end


def block(page: str, first: str, nth: int = 0) -> str:
    """The text of the block with this first line, of several the nth. Raises IndexError."""
    return [found.text for found in blocks(page, pages()[page]) if found.first == first][nth]


def _end_of_fence(lines: list[str], at: int) -> int | None:
    return lines.index("```", at + 1) + 1 if lines[at].startswith("```") else None


def _end_of_indented(lines: list[str], at: int) -> int | None:
    if not lines[at].startswith("    ") or (at and lines[at - 1].strip()) or ITEM.match(lines[at]):
        return None
    end = at
    while end < len(lines) and (lines[end].startswith("    ") or not lines[end].strip()):
        end += 1
    while not lines[end - 1].strip():
        end -= 1
    return end


def _is_marked(lines: list[str], at: int) -> bool:
    before = [line for line in lines[max(0, at - 2) : at] if line.strip()]
    return bool(before) and before[-1].strip() == RUN


def not_run() -> tuple[dict[str, str], dict[tuple[str, str], str]]:
    """What each reason means; the reason of each block that is not run, by page and first line."""
    table = tomllib.loads((Path(__file__).parent / "not_run.toml").read_text())
    return table.pop("reasons"), {(page, first): why for page, found in table.items() for first, why in found.items()}
