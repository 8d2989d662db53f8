"""Which cuts are made, determined by a seed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Phase(StrEnum):
    """When in a cycle the power is cut, in order. `ALONE`: dm-writecache, without an agent.

    `RELEASED`: nobody has flushed the backing volume since but the agent, before it deleted the cache.
    """

    ATTACHED = "just attached"
    BOOSTING = "boosting"
    CUTOFF = "near the cutoff"
    FLUSHING = "flushing"
    RELEASED = "released"
    ALONE = "dm-writecache"


PHASES = (Phase.ATTACHED, Phase.BOOSTING, Phase.CUTOFF, Phase.FLUSHING, Phase.RELEASED)
# Cuts in each phase of one cycle.
PER_VISIT = 3
# The share of unflushed writes that survive a cut: none, some, all.
SURVIVALS = (0.0, 0.5, 1.0)


@dataclass(frozen=True, slots=True)
class PlannedCut:
    """`survival` is the probability of each unflushed write to survive; `seed` that of the draw."""

    number: int
    phase: Phase
    survival: float
    seed: int

    def __str__(self) -> str:
        return f"cut {self.number}: {self.phase}, {self.survival:.0%} of unflushed writes survive"


def plan(runs: int, seed: int) -> tuple[tuple[PlannedCut, ...], ...]:
    """The cuts of each cycle in the order of its phases. Every phase is cut with every survival in turn.

    But RELEASED: what the agent did not make durable has to be lost there.
    """
    rng = random.Random(seed)
    shift = rng.randrange(len(SURVIVALS))
    cuts = [
        PlannedCut(
            number + 1,
            PHASES[number % len(PHASES)],
            _survival(PHASES[number % len(PHASES)], number // len(PHASES) + shift),
            rng.randrange(2**31),
        )
        for number in range(runs)
    ]
    in_cycle = PER_VISIT * len(PHASES)
    cycles = [cuts[first : first + in_cycle] for first in range(0, runs, in_cycle)]
    return tuple(tuple(sorted(cycle, key=lambda cut: PHASES.index(cut.phase))) for cycle in cycles)


def _survival(phase: Phase, turn: int) -> float:
    return 0.0 if phase is Phase.RELEASED else SURVIVALS[turn % len(SURVIVALS)]


def control(runs: int, seed: int) -> tuple[PlannedCut, ...]:
    """The cuts of the control, which has to lose a record although every write survives."""
    return tuple(PlannedCut(number + 1, Phase.ALONE, 1.0, seed) for number in range(runs))


def of_phase(cuts: Sequence[PlannedCut], phase: Phase) -> tuple[PlannedCut, ...]:
    return tuple(cut for cut in cuts if cut.phase is phase)
