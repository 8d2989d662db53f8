"""`make words`: retired terms that still stand in code, messages or documentation, by file and line.

The list is the two tables under "Retired" of docs/reference/glossary.md. The exit code is 1 when there are any.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
GLOSSARY = "docs/reference/glossary.md"
# Texts of their time, the list itself, and what others wrote or what was recorded from them.
EXEMPT = (
    "tests/fixtures/release_0_1_0/",
    GLOSSARY,
    "CHANGELOG.md",
    "LICENSE",
    "docs/adr/",
    "docs/results/",
    "requirements/",
    "tests/contract/recorded/",
)
READ = {".py", ".md", ".toml", ".txt", ".css", ".service", ".rules", ".conf", ".nft", ""}
# Between two words of a phrase: the end of a line, with what begins the next one in a comment, a string or a quote.
GAP = r"(?:[\s#>|]|\"\s*f?\")+"
# What earlier releases wrote, under the names of today: the one place in code where those names belong.
RENAMED = re.compile(r"^RENAMED = \{[^}]*\}", re.MULTILINE)


@dataclass(frozen=True)
class Term:
    text: str
    pattern: re.Pattern[str]
    instead: str
    still_in: tuple[str, ...]


@dataclass(frozen=True)
class Hit:
    path: str
    line: int
    term: Term

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.term.text!r} is retired: {self.term.instead}"


def terms(page: str) -> list[Term]:
    """The terms of the page's tables under "Retired"."""
    _, _, retired = page.partition("\n## Retired\n")
    names, _, phrases = retired.partition("\n### Phrases\n")
    # A name counts within a longer one, a phrase does not count within an identifier.
    return [*_of_table(names, r"(?<![A-Za-z]){}(?![A-Za-z])"), *_of_table(phrases, r"(?<!\w){}(?!\w)")]


def _of_table(part: str, form: str) -> Iterator[Term]:
    for line in part.splitlines():
        if not line.startswith("| `"):
            continue
        retired, instead, still_in = (cell.strip() for cell in line.strip("|").split("|"))
        for text in _code(retired):
            body = GAP.join(map(re.escape, text.split()))
            yield Term(text, re.compile(form.format(body)), instead, _code(still_in))


def _code(cell: str) -> tuple[str, ...]:
    return tuple(re.findall(r"`([^`]+)`", cell))


def hits(path: str, text: str, retired: Iterable[Term]) -> list[Hit]:
    """Where the text of one file has retired terms; of two that overlap, the longer one."""
    text = RENAMED.sub(lambda found: "\n" * found.group().count("\n"), text)
    # Most are in no file, which a look for the first word finds a hundred times faster than a pattern.
    there = [term for term in retired if path not in term.still_in and term.text.split()[0] in text]
    found = [(m.start(), m.end(), term) for term in there for m in term.pattern.finditer(text)]
    kept: list[Hit] = []
    end = 0
    for start, stop, term in sorted(found, key=lambda each: (each[0], -each[1])):
        if start >= end:
            kept.append(Hit(path, text.count("\n", 0, start) + 1, term))
            end = stop
    return kept


def files() -> Iterator[str]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for path in filter(None, listed.split("\0")):
        if not path.startswith(EXEMPT) and Path(path).suffix in READ and (ROOT / path).is_file():
            yield path


def main() -> int:
    retired = terms((ROOT / GLOSSARY).read_text())
    found = [hit for path in files() for hit in hits(path, (ROOT / path).read_text(), retired)]
    for hit in found:
        print(hit)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
