"""Rules of several devices on one machine, and of a cache that another machine has left."""

from __future__ import annotations

from .mutant import Mutant, Patch

BESIDE, TAKEN_OVER = "beside/", "taken over/"


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
    of_several(
        "a take-over whose answer was lost is refused",
        "the same order can be given again at any time",
        "elastio/core/foreign.py",
        "if seen.owner_state is OwnerState.THERE:",
        "if seen.owner_state in (OwnerState.THERE, OwnerState.SELF):",
        first=TAKEN_OVER,
    ),
    of_several(
        "a cache that was taken over gives way",
        "what was taken over is flushed whatever the load",
        "elastio/core/missing_cache.py",
        "cycle_of(outcome.value, obs), forced=True,",
        "cycle_of(outcome.value, obs), forced=False,",
        first=TAKEN_OVER,
    ),
    of_several(
        "what was taken over is clean",
        "what may hold the only copy is tagged dirty in the call that takes it over",
        "simulator/elastio_sim/provider.py",
        "self.account.instance_id, VolumeTag.DIRTY",
        "self.account.instance_id, VolumeTag.CLEAN",
        first=TAKEN_OVER,
    ),
)
