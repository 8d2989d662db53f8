"""Rules of several devices on one machine, and of a cache that another machine has left."""

from __future__ import annotations

from .mutant import Mutant, Patch

BESIDE = "beside/"


def of_several(name: str, breaks: str, file: str, old: str, new: str, first: str = "") -> Mutant:
    return Mutant(name, breaks, (Patch(file, old, new),), first=first)


TOGETHER = (
    of_several(
        "a neighbour's volume is one's own",
        "volumes of another device of this machine are left to its agent",
        "elastio/core/update.py",
        "volumes = tuple(v for v in outcome.value if v.backing_uuid == policy.backing_uuid)",
        "volumes = outcome.value",
        first=BESIDE,
    ),
)
