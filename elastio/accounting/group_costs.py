"""What each cgroup moved in boosts, and its part of their bills. Pure; nothing is decided by it.

The bill of a boost is divided by the bytes that each cgroup has written while the boost lasted, because what is written
fills a cache; in a boost in which nothing was written, by those that were read. What no cgroup is known to have moved
is that of OTHERS: it was moved by threads of the kernel, by cgroups that have no account, before the first reading, or
while there was hardly any load. The parts of a bill are exactly the bill, in whatever order they are added.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from elastio.accounting.burst_accounts import OTHERS
from elastio.accounting.history import CycleLoad
from elastio.accounting.tables import Table
from elastio.core.moved import Moved
from elastio.units import GB

Moves = Mapping[str, Moved]
HEADS = ("cgroup", "boosts", "GB written", "GB read", "cache AGBs", "% of all", "cost")


@dataclass(frozen=True, slots=True)
class GroupCost:
    """One cgroup in `boosts` boosts, or in all of them the OTHERS. `cost` None: none of them has a price."""

    cgroup: str
    boosts: int
    moved: Moved
    agbs: float
    cost: float | None

    def plus(self, other: GroupCost) -> GroupCost:
        costs = [cost for cost in (self.cost, other.cost) if cost is not None]
        boosts, moved = self.boosts + other.boosts, self.moved.plus(other.moved)
        return GroupCost(self.cgroup, boosts, moved, self.agbs + other.agbs, sum(costs) if costs else None)


def divided(amount: float, weights: Sequence[int]) -> list[float]:
    """The parts of an amount by weight; the last has all if no weight is above 0.

    Parts are multiples of the unit in the last place of the amount, which has at most 2^53 of them. So each is right
    within such a unit, and no sum of some of them is rounded.
    """
    unit, whole = math.ulp(amount), sum(weights)
    if whole == 0:
        return [*([0.0] * (len(weights) - 1)), amount]
    units = int(amount / unit)
    ends = accumulate(weights, initial=0)
    return [(units * end // whole - units * begin // whole) * unit for begin, end in pairwise(ends)]


def boost_costs(moves: Moves, load: CycleLoad | None, agbs: float, cost: float | None) -> tuple[GroupCost, ...]:
    """One boost: the cgroups that moved something in it, by name, and the OTHERS. `load` None: not known."""
    named = dict(sorted((name, moved) for name, moved in moves.items() if moved.total_bytes))
    known = _sum(named.values())
    whole = Moved() if load is None else Moved(load.read_bytes, load.written_bytes)
    rest = Moved(max(0, whole.read_bytes - known.read_bytes), max(0, whole.written_bytes - known.written_bytes))
    every = {**named, OTHERS: named.get(OTHERS, Moved()).plus(rest)}
    written = [moved.written_bytes for moved in every.values()]
    weights = written if any(written) else [moved.read_bytes for moved in every.values()]
    costs = [None] * len(every) if cost is None else divided(cost, weights)
    parts = zip(every.items(), divided(agbs, weights), costs, strict=True)
    return tuple(GroupCost(name, 1, moved, own_agbs, own_cost) for (name, moved), own_agbs, own_cost in parts)


def total_costs(boosts: Iterable[Iterable[GroupCost]]) -> tuple[GroupCost, ...]:
    """The sums over boosts: the cgroups, the dearest first, and the OTHERS."""
    found: dict[str, GroupCost] = {}
    for each in (each for boost in boosts for each in boost):
        found[each.cgroup] = found[each.cgroup].plus(each) if each.cgroup in found else each
    return tuple(sorted(found.values(), key=lambda each: (each.cgroup == OTHERS, -each.agbs, each.cgroup)))


def folded(costs: Sequence[GroupCost], most: int) -> tuple[GroupCost, ...]:
    """The first `most` cgroups, and the sum of all that is left as OTHERS."""
    shown = [each for each in costs if each.cgroup != OTHERS][:most]
    rest = [each for each in costs if each not in shown]
    if not rest:
        return tuple(shown)
    amounts = [each.cost for each in rest if each.cost is not None]
    boosts, moved = max(each.boosts for each in rest), _sum(each.moved for each in rest)
    last = GroupCost(OTHERS, boosts, moved, sum(each.agbs for each in rest), sum(amounts) if amounts else None)
    return (*shown, last)


def cost_table(costs: Sequence[GroupCost], currency: str, most: int) -> Table:
    """The `most` dearest cgroups, and all that is left; no rows if no cgroup is known."""
    whole = sum(each.agbs for each in costs)
    lines = folded(costs, most) if any(each.cgroup != OTHERS for each in costs) else ()
    return Table(HEADS, tuple(_cells(each, whole, currency) for each in lines))


def _cells(each: GroupCost, whole: float, currency: str) -> tuple[str, ...]:
    moved = (f"{size / GB:.1f}" for size in (each.moved.written_bytes, each.moved.read_bytes))
    share = f"{100 * each.agbs / whole:.1f}" if whole else "-"
    cost = "-" if each.cost is None else f"{each.cost:.4f} {currency}"
    return each.cgroup, str(each.boosts), *moved, f"{each.agbs:,.0f}", share, cost


def _sum(moves: Iterable[Moved]) -> Moved:
    found = Moved()
    for each in moves:
        found = found.plus(each)
    return found
