"""One rule broken on purpose: a patch of the sources, which are never changed in place."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


class PatchError(Exception):
    """The sources are no longer what the patch was made for: it proves nothing any more."""


@dataclass(frozen=True)
class Patch:
    """`old` stands exactly once in `file`, and becomes `new`."""

    file: str
    old: str
    new: str

    def applied(self, text: str) -> str:
        """Raises PatchError unless `old` is there exactly once."""
        if (times := text.count(self.old)) != 1:
            raise PatchError(f"{self.file}: {self.old!r} is there {times} times, not once")
        return text.replace(self.old, self.new)


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


CONTROL = Mutant("(none)", "nothing: the tree as it is", ())


def broken_texts(mutant: Mutant, root: Path = ROOT) -> dict[Path, str]:
    """The patched files. Raises PatchError where a patch does not fit what those before it have left."""
    texts: dict[Path, str] = {}
    for patch in mutant.patches:
        path = root / patch.file
        texts[path] = patch.applied(texts[path] if path in texts else path.read_text())
    return texts


def check(mutants: tuple[Mutant, ...], root: Path = ROOT) -> list[str]:
    """Patches that no longer fit, and names given twice."""
    wrong = []
    names = [m.name for m in mutants]
    wrong += [f"{name} is there twice" for name in set(names) if names.count(name) > 1]
    for mutant in mutants:
        try:
            broken_texts(mutant, root)
        except PatchError as error:
            wrong.append(f"{mutant.name}: {error}")
    return wrong
