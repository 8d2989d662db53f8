"""Compares ways to serve a load by what they cost a month, and by how long applications wait for them. Pure.

A way has a bill and a waiting time, and what is best depends on the price v of an hour of waiting:

    total a month = bill + v * hours waited

So the answer is the way with the smallest total where v is known. Where it is not, it is a list: from which v to which
v each way is best. As v grows the choice moves along the lower convex hull of (hours, bill), from the cheapest way to
the one that waits least. A difference of less than 1 % of the total decides nothing, and the simpler way is taken:
delays of a cloud vary by as much. Ways are given in the order of simplicity.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from elastio_adviser.experiment import BoostResult
from elastio_sim.run import TimelinePoint

SAME = 0.01
# A month has 30 days, as in the price lists of clouds.
MONTH_S = 30 * 86400.0
DAYS = 30
# Prices of an hour above this are not asked about.
MOST_PER_HOUR = 10_000.0


@dataclass(frozen=True, slots=True)
class Alternative:
    """One way to serve the trace.

    `cost` and `agbs` are of the trace alone; `per_month` is the bill of a month in which the trace recurs, and
    `waits_min_per_day` how long applications wait for the device then. `least_credits` is the smallest share of a full
    credit bucket; None: the volume has none. `timeline` is for pictures.
    """

    name: str
    completion_s: float
    agbs: float
    cost: float
    per_month: float = 0.0
    waits_min_per_day: float = 0.0
    phases: tuple[BoostResult, ...] = ()
    least_credits: float | None = None
    timeline: tuple[TimelinePoint, ...] = field(default=(), repr=False)

    def total(self, per_hour: float) -> float:
        """What a month costs where an hour of waiting costs `per_hour`."""
        return self.per_month + per_hour * self.waits_min_per_day * DAYS / 60


@dataclass(frozen=True, slots=True)
class BestWay:
    """This way is best where an hour of waiting costs from `from_per_hour` to `to_per_hour` (None: any more)."""

    name: str
    from_per_hour: float
    to_per_hour: float | None


@dataclass(frozen=True, slots=True)
class Judgement:
    """`worth_it`: the agent is best for some price of an hour, or for the one that was given."""

    choices: tuple[BestWay, ...]
    worth_it: bool
    sentence: str


def quick_enough(ways: Sequence[Alternative]) -> tuple[Alternative, ...]:
    """The ways that serve the load of a day with less than a day of waiting; all of them if there is none."""
    return tuple(way for way in ways if way.waits_min_per_day < 24 * 60) or tuple(ways)


def best(ways: Sequence[Alternative], per_hour: float) -> Alternative:
    """The simplest of the ways that cost hardly more than the cheapest."""
    least = min(way.total(per_hour) for way in ways)
    return next(way for way in ways if way.total(per_hour) <= least * (1 + SAME))


def choices(ways: Sequence[Alternative]) -> tuple[BestWay, ...]:
    """Which way is best for which price of an hour, in ascending order, from 0 on."""
    turns = sorted({0.0, *(v for a in ways for b in ways if 0 < (v := _turn(a, b)) < MOST_PER_HOUR)})
    found: list[BestWay] = []
    for begin, end in zip(turns, [*turns[1:], None], strict=True):
        name = best(ways, (begin + (2 * MOST_PER_HOUR if end is None else end)) / 2).name
        if found and found[-1].name == name:
            found[-1] = BestWay(name, found[-1].from_per_hour, end)
        else:
            found.append(BestWay(name, begin, end))
    return tuple(found)


def _turn(simple: Alternative, cheap: Alternative) -> float:
    """The price of an hour at which the first way is no longer nearly as cheap as the second; negative: there is none.

    It solves simple.total(v) = (1 + SAME) * cheap.total(v).
    """
    hours = (simple.waits_min_per_day - (1 + SAME) * cheap.waits_min_per_day) * DAYS / 60
    bill = (1 + SAME) * cheap.per_month - simple.per_month
    return bill / hours if hours else -1.0


def judge(
    ways: Sequence[Alternative], agents: Collection[str], currency: str, per_hour: float | None = None
) -> Judgement:
    """Whether the agent is worth it. `agents`: the names of the ways that use it. `per_hour`: of waiting, if known."""
    ways = quick_enough(ways)
    found = choices(ways)
    if per_hour is not None:
        chosen = best(ways, per_hour)
        rivals = [way for way in ways if (way.name in agents) != (chosen.name in agents)]
        said = f"At {render_money(per_hour, currency)} for an hour of waiting, the best is {_way(chosen, currency)}"
        if rivals:
            other = "without the agent" if chosen.name in agents else "with the agent"
            said += f"; {other} it would be {_way(best(rivals, per_hour), currency)}"
        return Judgement(found, chosen.name in agents, said + ".")
    ours = [choice for choice in found if choice.name in agents]
    named = {way.name: way for way in ways}
    if len(found) == 1:
        where = f", whatever an hour of waiting costs: take {_way(named[found[0].name], currency)}"
    elif ours:
        where = " where an hour of waiting costs " + "; ".join(_choice(c, named, ": ", currency) for c in ours)
    else:
        where = ": where an hour of waiting costs " + "; ".join(_choice(c, named, ", take ", currency) for c in found)
    return Judgement(found, bool(ours), f"The agent {'pays' if ours else 'does not pay'} off{where}.")


def _choice(choice: BestWay, named: Mapping[str, Alternative], take: str, currency: str) -> str:
    return f"{_range(choice, currency)}{take}{_way(named[choice.name], currency)}"


def _way(way: Alternative, currency: str) -> str:
    bill = render_money(way.per_month, currency)
    return f"{way.name} ({bill} a month, {way.waits_min_per_day:.1f} min of waiting a day)"


def _range(choice: BestWay, currency: str) -> str:
    """`less than 0.40 USD`, `0.40 to 2.10 USD`, `more than 2.10 USD`, `anything`."""
    low, high = choice.from_per_hour, choice.to_per_hour
    if high is None:
        return f"more than {render_money(low, currency)}" if low > 0 else "anything"
    most = render_money(high, currency)
    return f"{_number(low)} to {most}" if low > 0 else f"less than {most}"


def render_money(amount: float, currency: str) -> str:
    """`41.29 USD`; three digits of amounts that two decimals do not fit."""
    return f"{_number(amount)} {currency}"


def _number(amount: float) -> str:
    return f"{amount:.2f}" if amount == 0 or 0.1 <= amount < 100_000 else f"{amount:.3g}"


def render_choices(found: Sequence[BestWay], currency: str) -> list[str]:
    """A line for each: the price of an hour, and the way that is best there."""
    shown = [(_range(choice, currency), choice.name) for choice in found]
    width = max(len(pays) for pays, _ in shown)
    return [f"  {pays:{width}}  {name}" for pays, name in shown]
