"""Which cuts are made: the same from the same seed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Phase(StrEnum):
    """Where a cycle stands when the power goes, in their order. `ALONE`: dm-writecache, without an agent."""

    ATTACHED = "just attached"
    BOOSTING = "boosting"
    CUTOFF = "near the cutoff"
    FLUSHING = "flushing"
    ALONE = "dm-writecache"


PHASES = (Phase.ATTACHED, Phase.BOOSTING, Phase.CUTOFF, Phase.FLUSHING)
# In each phase of one cycle.
PER_VISIT = 3
# Of the writes that a disk had not flushed, the share that outlives the cut: none, any, all.
SURVIVALS = (0.0, 0.5, 1.0)


@dataclass(frozen=True, slots=True)
class PlannedCut:
    """`survival` is the probability of each write that was not flushed; `seed` draws their lots."""

    number: int
    phase: Phase
    survival: float
    seed: int

    def __str__(self) -> str:
        return f"cut {self.number}: {self.phase}, {self.survival:.0%} of what was not flushed survives"


def plan(runs: int, seed: int) -> tuple[tuple[PlannedCut, ...], ...]:
    """The cuts of each cycle, in the order of its phases; every phase gets its turn, and every survival in it."""
    lots = random.Random(seed)
    shift = lots.randrange(len(SURVIVALS))
    cuts = [
        PlannedCut(
            number + 1,
            PHASES[number % len(PHASES)],
            SURVIVALS[(number // len(PHASES) + shift) % len(SURVIVALS)],
            lots.randrange(2**31),
        )
        for number in range(runs)
    ]
    in_cycle = PER_VISIT * len(PHASES)
    cycles = [cuts[first : first + in_cycle] for first in range(0, runs, in_cycle)]
    return tuple(tuple(sorted(cycle, key=lambda cut: PHASES.index(cut.phase))) for cycle in cycles)


def control(runs: int, seed: int) -> tuple[PlannedCut, ...]:
    """Cuts of what has to lose even where the disks lose nothing."""
    return tuple(PlannedCut(number + 1, Phase.ALONE, 1.0, seed) for number in range(runs))


def of_phase(cuts: Sequence[PlannedCut], phase: Phase) -> tuple[PlannedCut, ...]:
    return tuple(cut for cut in cuts if cut.phase is phase)
