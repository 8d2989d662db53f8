"""How far mechanism and strategy are apart, and how much there is to read of the mechanism: `python -m tests.rooms`.

It lists every call from `elastio/core` into a function of `elastio/strategy`, and prints each figure beside its limit.
Making a value is no call, and what a value says of itself is none either. To know the safe cycle one reads
`core/machine.py`, what of the core it imports, directly or not, and what the strategy sees and wants; not how cgroups
share a device.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import NamedTuple

from elastio.core.cycle import Cycle
from elastio.core.state import AgentState
from elastio.strategy.situation import CycleView, DeviceView, Situation

from .limits import ROOT

CORE, STRATEGY = ROOT / "elastio" / "core", "elastio.strategy"
# What divides a device among cgroups, and what is exchanged with the strategy.
SHARING, EXCHANGED = frozenset({"capacity", "shares"}), CORE.parent / "strategy" / "situation.py"


class Figure(NamedTuple):
    """What is counted, how many there are, and the most that there may be: the limit follows what is reached."""

    name: str
    value: int
    most: int


def figures() -> tuple[Figure, ...]:
    files = list(of_cycle())
    return (
        Figure("calls from mechanism to strategy", len(list(calls())), 1),
        Figure("floors of the core", _floors("elastio.core"), 8),
        Figure("floors of the strategy", _floors(STRATEGY), 6),
        Figure("fields of AgentState", len(fields(AgentState)), 28),
        Figure("fields of Cycle", len(fields(Cycle)), 33),
        Figure("fields that the strategy sees", len(seen()), 41),
        Figure("files of the safe cycle", len(files), 18),
        Figure("lines of these files", sum(path.read_text().count("\n") for path in files), 4_641),
    )


def seen() -> list[str]:
    """The fields of what the strategy is shown."""
    return [field.name for value in (Situation, CycleView, DeviceView) for field in fields(value)]


def _floors(package: str) -> int:
    """The layers of its import contract."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    return next(len(c["layers"]) for c in contracts if c.get("containers") == [package])


def of_cycle() -> Iterator[Path]:
    """The files that a reader of the safe cycle needs."""
    known, left = set[str](), ["machine"]
    while left:
        if (name := left.pop()) in known or name in SHARING or not (path := CORE / f"{name}.py").exists():
            continue
        known.add(name)
        yield path
        left += (
            inside.split(".")[0] for inside in dict(_imported(ast.parse(path.read_text()), "elastio.core")).values()
        )
    yield EXCHANGED


def calls() -> Iterator[str]:
    """A line for each call: file, line, function."""
    for path in sorted(CORE.glob("*.py")):
        tree = ast.parse(path.read_text())
        names = dict(_imported(tree, STRATEGY))
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and (called := _function(node.func, names)):
                yield f"{path.relative_to(ROOT)}:{node.lineno}: {called}"


def _imported(tree: ast.Module, package: str) -> Iterator[tuple[str, str]]:
    """Each name of the file that comes from the package, and what it is: `module` or `module.name`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[:2] == package.split("."):
            inside = (node.module or "").removeprefix(package).lstrip(".")
            for alias in node.names:
                yield alias.asname or alias.name, f"{inside}.{alias.name}".lstrip(".")


def _function(called: ast.expr, names: dict[str, str]) -> str:
    """Its name, such as `caps.refusal`; empty for a class, and for what is not of the strategy."""
    match called:
        case ast.Name(id=name) if name in names and name.islower():
            return names[name]
        case ast.Attribute(value=ast.Name(id=name), attr=function) if name in names and name.islower():
            return f"{names[name]}.{function}" if function.islower() else ""
        case _:
            return ""


def main() -> int:
    print("\n".join(calls()))
    for name, value, most in (found := figures()):
        print(f"{name:34}{value:6,}  at most {most:,}")
    return 1 if any(value > most for _, value, most in found) else 0


if __name__ == "__main__":
    sys.exit(main())
