"""ARCHITECTURE.md names files, places in them and folders that are there."""

from __future__ import annotations

import ast
import re

from tests.limits import ROOT

PAGE = (ROOT / "ARCHITECTURE.md").read_text()
ROW = re.compile(r"^\| `(elastio/[\w/]+\.py)` \| (.+?) \|", re.MULTILINE)


def names_in(file: str) -> set[str]:
    """What the file defines, methods as `Class.method`."""
    found = set()
    for node in ast.parse((ROOT / file).read_text()).body:
        match node:
            case ast.ClassDef(name=name, body=body):
                found |= {f"{name}.{each.name}" for each in body if isinstance(each, ast.FunctionDef)}
            case ast.FunctionDef(name=name) | ast.AnnAssign(target=ast.Name(id=name)):
                found.add(name)
            case _:
                pass
    return found


def test_the_seven_files_begin_where_the_page_says_and_are_no_longer() -> None:
    rows = ROW.findall(PAGE)
    assert len(rows) == 7
    for file, places in rows:
        assert names_in(file) >= set(re.findall(r"`([\w.]+)`", places)), file
    (most,) = re.findall(r"in less than ([\d,]+) lines", PAGE)
    assert sum(len((ROOT / file).read_text().splitlines()) for file, _ in rows) < int(most.replace(",", ""))


def test_the_folders_of_the_page_are_those_of_the_agent() -> None:
    rows = re.findall(r"^\| (`[^|]+`) \| [^|]+ \|$", PAGE[PAGE.index("## Folders") :], re.MULTILINE)
    named = {name.rstrip("/") for row in rows for name in re.findall(r"`([\w./]+)`", row)}
    there = {p.name for p in (ROOT / "elastio").iterdir() if (p / "__init__.py").exists() or p.suffix == ".py"}
    assert named == there - {"__init__.py"}
