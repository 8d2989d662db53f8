"""Run a program with a mutant in it: `python -m tests.mutants.broken NAME MODULE [ARGUMENT ...]`.

The patched modules are compiled from patched text, in that process only: the tree is not copied, no file is written.
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType

from .catalogue import MUTANTS
from .mutant import CONTROL, Mutant, broken_texts


class _Loader(SourceFileLoader):
    def __init__(self, name: str, path: str, text: str) -> None:
        super().__init__(name, path)
        self._text = text

    def get_code(self, fullname: str) -> CodeType:
        """Compiled each time: what is cached on the disk is the unbroken module."""
        return compile(self._text, self.path, "exec", dont_inherit=True)


class BrokenTree(MetaPathFinder):
    """Finds the patched modules, and nothing else. Raises PatchError where a patch does not fit."""

    def __init__(self, mutant: Mutant) -> None:
        self._texts = {str(path): text for path, text in broken_texts(mutant).items()}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.origin not in self._texts:
            return None
        spec.loader = _Loader(fullname, spec.origin, self._texts[spec.origin])
        return spec


def main(name: str, module: str, *arguments: str) -> None:
    """Raises RuntimeError if something of the tree was imported already: it would not be broken."""
    mutant = next(m for m in (CONTROL, *MUTANTS) if m.name == name)
    early = [loaded for loaded in sys.modules if loaded.partition(".")[0].startswith("elastio")]
    if early:
        raise RuntimeError(f"{', '.join(early)}: imported before it could be broken")
    sys.meta_path.insert(0, BrokenTree(mutant))
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
