"""One rule broken on purpose: a patch of the sources, applied to a copy of the tree and never in place."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
# What a hunt needs, and the tests that are named where no hunt can find anything.
PARTS = ("elastio", "providers", "calibration", "testbed", "tests", "pyproject.toml", "systemd", "docs")
IGNORED = shutil.ignore_patterns("__pycache__", "*.pyc", "results")


class PatchError(Exception):
    """The sources are no longer what the patch was made for: it proves nothing any more."""


@dataclass(frozen=True)
class Patch:
    """`old` stands exactly once in `file`, and becomes `new`."""

    file: str
    old: str
    new: str

    def apply(self, root: Path) -> None:
        """Raises PatchError unless `old` is there exactly once."""
        path = root / self.file
        text = path.read_text()
        if (times := text.count(self.old)) != 1:
            raise PatchError(f"{self.file}: {self.old!r} is there {times} times, not once")
        path.write_text(text.replace(self.old, self.new))


@dataclass(frozen=True)
class Mutant:
    """`breaks` is the rule. One that neither schedules nor crash cases can show names the `test` that does, and why.

    `first` is part of the names of the crash cases that the hunt begins with, where a rule is for one
    scheduled fault alone.
    """

    name: str
    breaks: str
    patches: tuple[Patch, ...]
    test: str = ""
    why: str = ""
    first: str = ""


def copy_tree(into: Path) -> None:
    """The sources and tests as they are now."""
    for part in PARTS:
        source = ROOT / part
        if source.is_dir():
            shutil.copytree(source, into / part, ignore=IGNORED)
        elif source.exists():
            shutil.copy2(source, into / part)


def check(mutants: tuple[Mutant, ...], root: Path = ROOT) -> list[str]:
    """Patches that no longer fit, and names given twice."""
    wrong = []
    names = [m.name for m in mutants]
    wrong += [f"{name} is there twice" for name in set(names) if names.count(name) > 1]
    for mutant in mutants:
        for patch in mutant.patches:
            times = (root / patch.file).read_text().count(patch.old)
            if times != 1:
                wrong.append(f"{mutant.name}: {patch.file}: {patch.old!r} is there {times} times, not once")
    return wrong
