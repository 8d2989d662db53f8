"""Run parts of `make test` one after the other: `python -m tests.parts [PART ...]`, all of them without a name.

The first that fails ends it. The time of each is printed beside its budget (`budgets.toml`), and what is above it is
told; nothing fails for a time. A part fails that played fewer cases than it has to. It needs no virtual environment.
"""

from __future__ import annotations

import subprocess
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parents[1]
BUDGETS = Path(__file__).with_name("budgets.toml")
# What the items of the part with counts have recorded, as pytest writes it.
COUNTED, PLAYED = "long", ROOT / "build" / "long.xml"


def budgets() -> dict[str, dict[str, int]]:
    """Two tables: `seconds` of each part, in the order in which they run, and the least `counts`."""
    return tomllib.loads(BUDGETS.read_text())


def counted(report: Path) -> Counter[str]:
    """The sum of each property that tests have recorded."""
    found = Counter[str]()
    for recorded in ElementTree.parse(report).getroot().iter("property"):
        found[recorded.attrib["name"]] += int(recorded.attrib["value"])
    return found


def too_few(played: Mapping[str, int], least: Mapping[str, int]) -> list[str]:
    return [
        f"TOO FEW: {played.get(name, 0)} {name} were played, at least {number} have to be"
        for name, number in least.items()
        if played.get(name, 0) < number
    ]


def table(took: Mapping[str, float], seconds: Mapping[str, int]) -> Iterator[str]:
    """A line for each part, one for all, and one for each that is above its budget."""
    yield f"{'part':<12}{'took':>8}{'budget':>10}"
    for part, took_s in took.items():
        yield f"{part:<12}{took_s:>6.0f} s{seconds[part]:>8} s"
    yield f"{'together':<12}{sum(took.values()):>6.0f} s{sum(seconds[part] for part in took):>8} s"
    for part, took_s in took.items():
        if took_s > seconds[part]:
            yield f"ABOVE ITS BUDGET: {part} took {took_s:.0f} s, {seconds[part]} s are meant (tests/budgets.toml)"


def run(part: str, least: Mapping[str, int]) -> int:
    """The exit code of a part."""
    if part == COUNTED:
        PLAYED.unlink(missing_ok=True)
    code = subprocess.run(["make", "--no-print-directory", part], cwd=ROOT, check=False).returncode
    if code or part != COUNTED:
        return code
    found = counted(PLAYED)
    print(*(f"{found[name]} {name}" for name in least), sep=", ")
    few = too_few(found, least)
    print(*few, sep="\n", end="\n" if few else "")
    return 1 if few else 0


def main(names: Sequence[str]) -> int:
    """Exit code: that of the first part that failed."""
    known = budgets()
    took: dict[str, float] = {}
    code = 0
    for part in names or known["seconds"]:
        print(f"--- {part}", flush=True)
        began = time.monotonic()
        code = run(part, known["counts"])
        took[part] = time.monotonic() - began
        if code:
            print(f"FAILED: {part}")
            break
    print(*table(took, known["seconds"]), sep="\n")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
