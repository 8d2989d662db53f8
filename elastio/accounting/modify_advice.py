"""Whether a modification of the backing volume would have been cheaper than the caches of long boosts. Pure.

A modified volume costs, for the time of a boost, what a fast volume of its size costs beyond the slow one; it needs no
cache and no flush. The cloud allows few changes: two for each boost, so at most two boosts in a day by the rule of EBS
(ModifyVolume: four in 24 h). Those that would save most come first. That each change is made in time is assumed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from elastio.accounting.report import BoostLine

# Shorter boosts are over before a modification is in force and worth its change.
LONG_S = 3600.0
CHANGES, WINDOW_S = 4, 86_400.0


@dataclass(frozen=True, slots=True)
class Modification:
    """So many boosts, their time, what their caches cost, and what the modified volume would have cost beyond the slow
    one, in `currency`."""

    boosts: int
    seconds: float
    caches: float
    modified: float
    currency: str


def cheaper_modification(boosts: Iterable[BoostLine]) -> Modification | None:
    """What would have been cheaper by modifications; None: nothing, or a price is not known."""
    found = sorted(((each, saved) for each in boosts if (saved := _saved(each)) > 0), key=lambda pair: -pair[1])
    times: list[float] = []
    chosen = []
    for boost, _ in found:
        opened = boost.row.opened_wall or boost.row.started_wall
        changes = sorted([*times, opened, opened + boost.billed_s])
        if all(last - first >= WINDOW_S for first, last in zip(changes, changes[CHANGES:], strict=False)):
            times = changes
            chosen.append(boost.cost)
    currencies = {cost.currency for cost in chosen}
    if len(currencies) != 1:
        return None
    caches = sum(cost.cost or 0.0 for cost in chosen)
    modified = sum((cost.static_fast or 0.0) - (cost.baseline or 0.0) for cost in chosen)
    return Modification(len(chosen), sum(cost.seconds for cost in chosen), caches, modified, currencies.pop())


def _saved(boost: BoostLine) -> float:
    """What the modification would have saved in this boost; 0: nothing, or a price is not known."""
    cost = boost.cost
    if boost.billed_s < LONG_S or cost.cost is None or cost.static_fast is None or cost.baseline is None:
        return 0.0
    return cost.cost - (cost.static_fast - cost.baseline)
