"""Which fault strikes in which run: drawn from a seed, so that a number and a seed are the whole story of a run."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from elastio_testbed.errors import PlanError
from elastio_testbed.faults.kinds import CALLS, KINDS, FaultAction, Kind, Trigger

T = TypeVar("T")

# How often the cloud misbehaves in a run whose fault is the guest's.
SIDE_FAULT_SHARE = 0.25
# One lost or refused answer at the side: what a crash meets when the cloud has a bad day, too.
SIDE_FAULTS = ("api-lost-answer", "api-lost-request", "api-throttled", "api-server-error", "api-slow-step")
# Deeds whose recovery needs the cloud's help itself, or that make the cloud refuse everything.
WITHOUT_SIDE_FAULT = (FaultAction.NOTHING, FaultAction.PULL_CLEAN, FaultAction.REVOKE, FaultAction.FORBID)


@dataclass(frozen=True, slots=True)
class CloudFault:
    """A kind of the table, and the call that it hits."""

    kind: str
    call: str


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """One run: `kind` strikes `delay_s` after `moment`; the cloud's faults are in force from the begin of the run."""

    number: int
    kind: str
    trigger: Trigger
    delay_s: float
    cloud: tuple[CloudFault, ...]
    seed: int

    @property
    def action(self) -> FaultAction:
        return KINDS[self.kind].action

    def __str__(self) -> str:
        later = f" + {self.delay_s:.1f} s" if self.delay_s else ""
        cloud = "".join(f", {each.kind} at {each.call}" for each in self.cloud)
        return f"run {self.number}: {self.kind} at {self.trigger}{later}{cloud}"


def plan(runs: int, seed: int, kinds: Sequence[str] = tuple(KINDS)) -> tuple[PlannedRun, ...]:
    """Every kind before any comes again, and each kind's moments before any of those does.

    Raises PlanError for a kind that is not in the table.
    """
    unknown = [name for name in kinds if name not in KINDS]
    if unknown or not kinds:
        raise PlanError(
            f"no such fault: {', '.join(unknown) or 'none given'}; known are {', '.join(KINDS)}", code="kind"
        )
    rng = random.Random(seed)
    names = _rounds(rng, kinds)
    triggers = {name: _rounds(rng, KINDS[name].triggers) for name in kinds}
    calls = {name: _rounds(rng, KINDS[name].calls) for name in kinds if KINDS[name].calls}
    planned = []
    for number in range(1, runs + 1):
        kind = KINDS[next(names)]
        own = (CloudFault(kind.name, next(calls[kind.name])),) if kind.calls else ()
        planned.append(
            PlannedRun(
                number=number,
                kind=kind.name,
                trigger=next(triggers[kind.name]),
                delay_s=round(rng.uniform(0, kind.random_s), 2),
                cloud=own + _beside(rng, kind),
                seed=rng.randrange(2**31),
            )
        )
    return tuple(planned)


def _beside(rng: random.Random, kind: Kind) -> tuple[CloudFault, ...]:
    # Drawn in every case: whether a run has a fault beside its own must not move those after it.
    wanted, name, call = rng.random() < SIDE_FAULT_SHARE, rng.choice(SIDE_FAULTS), rng.choice(CALLS)
    return (CloudFault(name, call),) if wanted and kind.action not in WITHOUT_SIDE_FAULT else ()


def _rounds(rng: random.Random, items: Sequence[T]) -> Iterator[T]:
    """All of them in random order, again and again."""
    while True:
        yield from rng.sample(items, len(items))
