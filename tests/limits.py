"""How long a file and a function may be. `python -m tests.limits` prints what is longer, and fails.

Blank lines and comments count: what is read is what is counted.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
FILE_LINES, FUNCTION_LINES = 400, 40


def too_long(path: Path, text: str) -> Iterator[str]:
    """A line for the file, and one for each function, that is over its limit."""
    lines = text.count("\n")
    if lines > FILE_LINES:
        yield f"{path}:1: {lines} lines, at most {FILE_LINES}"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > FUNCTION_LINES:
                yield f"{path}:{node.lineno}: {node.name} has {length} lines, at most {FUNCTION_LINES}"


def main() -> int:
    listed = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True)
    paths = [Path(name) for name in listed.stdout.splitlines() if (ROOT / name).exists()]
    found = [line for path in paths for line in too_long(path, (ROOT / path).read_text())]
    print("\n".join(found) or f"{len(paths)} files are within their limits")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
