"""Which fault strikes in which run: drawn from a seed, so that seed and number identify a run."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from elastio_testbed.errors import PlanError
from elastio_testbed.faults.kinds import CALLS, EVERYWHERE, KINDS, FaultAction, Kind, Trigger

T = TypeVar("T")

# The share of runs with a fault of the guest in which the cloud fails as well.
SIDE_FAULT_SHARE = 0.25
# The additional fault of the cloud in these runs.
SIDE_FAULTS = ("api-lost-answer", "api-lost-request", "api-throttled", "api-server-error", "api-slow-step")
# Actions whose recovery depends on the cloud, or that make the cloud refuse everything.
WITHOUT_SIDE_FAULT = (FaultAction.NOTHING, FaultAction.PULL_CLEAN, FaultAction.REVOKE, FaultAction.FORBID)


@dataclass(frozen=True, slots=True)
class CloudFault:
    """A kind of the table, and the call that it hits."""

    kind: str
    call: str


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """One run: `kind` strikes `delay_s` after `trigger`; faults of the cloud are active from the start of the run."""

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


def plan(runs: int, seed: int, kinds: Sequence[str] = EVERYWHERE) -> tuple[PlannedRun, ...]:
    """Every kind comes once before any is repeated, and so do the triggers of each kind.

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
    # Always drawn, so that a fault beside a run's own does not change the runs after it.
    wanted, name, call = rng.random() < SIDE_FAULT_SHARE, rng.choice(SIDE_FAULTS), rng.choice(CALLS)
    return (CloudFault(name, call),) if wanted and kind.action not in WITHOUT_SIDE_FAULT else ()


def _rounds(rng: random.Random, items: Sequence[T]) -> Iterator[T]:
    """All items in random order, endlessly."""
    while True:
        yield from rng.sample(items, len(items))
