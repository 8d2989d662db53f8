"""What being ahead of bursts gained and wasted: one line for announced bursts, one for learned ones. Pure.

A purchase ahead was *right* if a load came while its cache was there, and *wrong* if its volume was gone before. Wasted
are all the billed seconds of wrong ones, and of right ones those between the attached cache and the begin of its load.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from elastio.accounting.history import CycleLoad, early_s, is_wrong
from elastio.accounting.rows import CycleRow
from elastio.billing import TO_THE_INSTANT
from elastio.core.cycle import Trigger
from elastio.strategy.learned import allowance
from elastio.units import agbs

KINDS = {"announced": Trigger.ANNOUNCED, "learned": Trigger.FORECAST}


@dataclass(frozen=True, slots=True)
class AheadLine:
    """Purchases ahead of bursts of one kind. Seconds are of volumes that were billed.

    `wrong_share` is the share of wrong ones in what all caches of the period cost, 0 to 1, in currency where that is
    known, else in AGBs; `early_share` is that of the early seconds of right ones. Costs are None where a price is
    missing or currencies differ.
    """

    kind: str
    bought: int
    right: int
    wrong: int
    early_s: float
    early_agbs: float
    early_cost: float | None
    wrong_s: float
    wrong_agbs: float
    wrong_cost: float | None
    wrong_share: float | None
    early_share: float | None
    currency: str

    @property
    def hit_rate(self) -> float | None:
        """The share of right ones, 0 to 1; None: none is decided yet."""
        decided = self.right + self.wrong
        return self.right / decided if decided else None

    @property
    def wasted_s(self) -> float:
        return self.early_s + self.wrong_s

    @property
    def wasted_share(self) -> float | None:
        return None if self.wrong_share is None or self.early_share is None else self.wrong_share + self.early_share

    @property
    def wasted_agbs(self) -> float:
        return self.early_agbs + self.wrong_agbs

    @property
    def wasted_cost(self) -> float | None:
        return None if self.early_cost is None or self.wrong_cost is None else self.early_cost + self.wrong_cost


Loads = Mapping[str, CycleLoad]


def ahead_lines(cycles: Iterable[CycleRow], loads: Loads, since: float, until: float) -> tuple[AheadLine, ...]:
    """The lines of a period, for the cycles that began in it."""
    rows = [c for c in cycles if since <= c.started_wall < until and c.trigger != Trigger.ORPHAN]
    bought = [c for c in rows if c.opened_wall is not None]
    return tuple(_line(kind, trigger, rows, bought, loads, until) for kind, trigger in KINDS.items())


def _line(
    kind: str, trigger: Trigger, rows: Sequence[CycleRow], bought: Sequence[CycleRow], loads: Loads, until: float
) -> AheadLine:
    own = [c for c in rows if c.trigger == trigger]
    missed = [c for c in own if is_wrong(c, loads)]
    wrong = [c for c in missed if c.closed_wall is not None or c.is_refused]
    right = [c for c in own if c not in missed]
    early = [(c, early_s(c, loads[c.token])) for c in right]
    all_agbs, wrong_agbs = (sum(c.agbs(c.started_wall - 1, until) for c in found) for found in (bought, wrong))
    all_cost, wrong_cost = _owed(bought, until), _owed(wrong, until)
    per_s = [None if c.price_per_hour is None else c.price_per_hour / 3600 * seconds for c, seconds in early]
    is_priced = len({c.currency for c in bought}) <= 1
    early_agbs = sum(agbs(c.bandwidth_mb_s, c.provisioned_size_bytes, seconds) for c, seconds in early)
    early_cost = sum(p for p in per_s if p is not None) if is_priced and None not in per_s else None
    in_money = is_priced and None not in (wrong_cost, early_cost) and bool(all_cost)
    total, of_wrong, of_early = (all_cost, wrong_cost, early_cost) if in_money else (all_agbs, wrong_agbs, early_agbs)
    return AheadLine(
        kind=kind,
        bought=len(own),
        right=len(right),
        wrong=len(wrong),
        early_s=sum(seconds for _, seconds in early),
        early_agbs=early_agbs,
        early_cost=early_cost,
        wrong_s=sum(c.billed_s(c.started_wall - 1, until) for c in wrong),
        wrong_agbs=wrong_agbs,
        wrong_cost=wrong_cost if is_priced else None,
        wrong_share=_share(of_wrong, total),
        early_share=_share(of_early, total),
        currency=next((c.currency for c in bought), "") if is_priced else "",
    )


def _share(part: float | None, total: float | None) -> float | None:
    return (part or 0.0) / total if total else None


class Allowance(NamedTuple):
    """What learned forecasts may waste however small the bill is; `cost` None: no price is known."""

    agbs: float
    cost: float | None
    currency: str


def allowance_of(cycles: Iterable[CycleRow]) -> Allowance | None:
    """By the first cache of these cycles, which are in their order; None: nothing was bought."""
    first = next((c for c in cycles if c.opened_wall is not None and c.trigger != Trigger.ORPHAN), None)
    if first is None:
        return None
    in_agbs = allowance(agbs(first.bandwidth_mb_s, first.provisioned_size_bytes, 1.0), TO_THE_INSTANT)
    per_hour = first.price_per_hour
    cost = None if per_hour is None else allowance(per_hour / 3600, first.billing)
    return Allowance(in_agbs, cost, first.currency)


def _owed(rows: Iterable[CycleRow], until: float) -> float | None:
    costs = [0.0 if c.opened_wall is None else c.cost(float("-inf"), until) for c in rows]
    return None if None in costs else sum(cost for cost in costs if cost is not None)
