"""What the mechanism asks the strategy: `python -m tests.rooms` lists every call from `elastio/core` into a function of
`elastio/strategy`, and how many there are. Making a value is no call, and what a value says of itself is none either.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator

from .limits import ROOT

CORE, STRATEGY = ROOT / "elastio" / "core", "elastio.strategy"
# Once in each decision: `review`.
MOST = 1


def calls() -> Iterator[str]:
    """A line for each call: file, line, function."""
    for path in sorted(CORE.glob("*.py")):
        tree = ast.parse(path.read_text())
        names = dict(_imported(tree))
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and (called := _function(node.func, names)):
                yield f"{path.relative_to(ROOT)}:{node.lineno}: {called}"


def _imported(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Each name of the file that comes from the strategy, and what it is: `module` or `module.name`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[:2] == STRATEGY.split("."):
            inside = (node.module or "").removeprefix(STRATEGY).lstrip(".")
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
    found = list(calls())
    functions = {line.rsplit(" ", 1)[1] for line in found}
    print("\n".join(found))
    print(f"{len(found)} calls from mechanism to strategy, of {len(functions)} functions; at most {MOST}")
    return 1 if len(found) > MOST else 0


if __name__ == "__main__":
    sys.exit(main())
