"""Rules of adopted volumes: nobody may mount one alone while it has a cache."""

from __future__ import annotations

from .beyond import by_test
from .mutant import Mutant, Patch

PLANNER, TOMBSTONE = "elastio/core/planner.py", "elastio/core/tombstone.py"
INVARIANTS, HOST = "elastio/core/invariants.py", "elastio/sim/host.py"
FIRST = "adopted/"
UNWRITTEN = Patch(TOMBSTONE, "if backing.has_tombstone is not False:", "if True:")
INSTALLED = Patch(INVARIANTS, "if backing.has_tombstone is False:", "if False:")
TAKEN = Patch(HOST, "if self._kernel.has_tombstone is False:", "if False:")

ADOPTED = (
    Mutant("no tombstone", "no cache without a tombstone", (UNWRITTEN,), first=FIRST),
    Mutant("no tombstone, and nobody asks", "the same", (UNWRITTEN, INSTALLED, TAKEN), first=FIRST),
    by_test(
        "a cache before its tombstone",
        "the tombstone comes first",
        Patch(PLANNER, "if stone.waiting_for:", "if False:"),
        "tests/unit/elastio/core/test_tombstone.py::test_no_cache_is_installed_before_the_tombstone_is_there",
        "it is there long before the disk appears",
    ),
    Mutant(
        "a tombstone stays",
        "without a cache the volume is a plain filesystem",
        (Patch(TOMBSTONE, "if backing is None or not backing.may_lose_tombstone", "if True or backing is None"),),
        first=FIRST,
    ),
)
