"""Optimum, agent of today and agent by money, on every load and at every tariff: rows, ratios, and the result as JSON.

Two ratios are stated for each row. `ratio` compares all that was paid: the bills of all volumes and the value of the
whole time, as an owner would. `overhead_ratio` compares what can be decided at all: the time beyond the load's own, and
the bills of caches. It is much harder, because no decision changes the load's own time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from elastio_testbed.optimum.market import Market
from elastio_testbed.optimum.model import slow, stretches
from elastio_testbed.optimum.offline import optimum
from elastio_testbed.optimum.online import run
from elastio_testbed.optimum.traces import Load


@dataclass(frozen=True, slots=True)
class Way:
    """One way through a load: its time, the bill of its caches, and both with the value of time. `boosts`: volumes."""

    run_s: float
    caches: float
    cost: float
    boosts: int


@dataclass(frozen=True, slots=True)
class Row:
    """One load at one tariff. `own_s`: its time on a device that is never waited for, worth `own_cost`."""

    tariff: str
    load: str
    kind: str
    bursts: int
    own_s: float
    own_cost: float
    slow_cost: float
    optimum: Way
    today: Way
    money: Way

    def ratio(self, way: Way) -> float:
        """What this way cost, over the optimum."""
        return way.cost / self.optimum.cost

    def overhead_ratio(self, way: Way) -> float:
        """The same without the load's own time; 1 where there was nothing to decide."""
        least = self.optimum.cost - self.own_cost
        return (way.cost - self.own_cost) / least if least > 1e-9 * self.own_cost else 1.0

    def to_json(self) -> dict[str, Any]:
        """With the ratios of both ways."""
        ratios = {
            f"{name}{what}": round(of(way), 4)
            for name, way in (("", self.money), ("today_", self.today))
            for what, of in (("ratio", self.ratio), ("overhead_ratio", self.overhead_ratio))
        }
        return {**asdict(self), **ratios}


def row(load: Load, market: Market, seed: int = 0) -> Row:
    """The optimum, and both runs of the simulated agent. Raises TimeoutError if a run does not end."""
    best = optimum(load.wanted, market)
    today, money = (run(load, market, by_money=by_money, seed=seed) for by_money in (False, True))
    slow_s = sum(slow(part, market.backing_mb_s) for part in load.wanted)
    return Row(
        market.name,
        load.name,
        load.kind,
        len(stretches(load.wanted, market.backing_mb_s)[1]),
        load.own_s,
        market.run_per_s * load.own_s,
        market.run_per_s * slow_s,
        Way(best.run_s, best.bill, best.cost, len(best.chains)),
        *(Way(bill.run_s, bill.bill, bill.cost, bill.boosts) for bill in (today, money)),
    )


def rows(
    loads: Sequence[Load], markets: Sequence[Market], say: Callable[[str], None], jobs: int | None = None
) -> Iterator[Row]:
    """A row for each load at each tariff, in that order; `jobs` at a time, in as many processes;
    None: one for each processor."""
    pairs = [(load, market) for market in markets for load in loads]
    with ExitStack() as stack:
        spread = map if jobs == 1 else stack.enter_context(ProcessPoolExecutor(jobs)).map
        for found in spread(row, *zip(*pairs, strict=True)):
            today, money = found.ratio(found.today), found.ratio(found.money)
            say(f"{found.tariff} {found.load}: today {today:.3f}, money {money:.3f} of the optimum")
            yield found


def document(found: Sequence[Row], markets: Sequence[Market]) -> dict[str, Any]:
    """The result: for each tariff the ratios of the policy by money, those of today's, and every row."""
    return {"tariffs": {m.name: _of_tariff([r for r in found if r.tariff == m.name], m) for m in markets}}


def _of_tariff(found: Sequence[Row], market: Market) -> dict[str, Any]:
    ratios: dict[str, Any] = {}
    for prefix, ways in (("", [r.money for r in found]), ("today_", [r.today for r in found])):
        whole = [r.ratio(way) for r, way in zip(found, ways, strict=True)]
        over = [r.overhead_ratio(way) for r, way in zip(found, ways, strict=True)]
        ratios[f"{prefix}median_ratio"], ratios[f"{prefix}worst_ratio"] = round(median(whole), 4), round(max(whole), 4)
        ratios[f"{prefix}median_overhead_ratio"] = round(median(over), 4)
        ratios[f"{prefix}worst_overhead_ratio"] = round(max(over), 4)
    ratios["slow_median_ratio"] = round(median(r.slow_cost / r.optimum.cost for r in found), 4)
    worth = round(market.run_per_s * 3600, 6)
    head = {"currency": market.cache.currency, "hour_costs": worth, "traces": len(found)}
    return {**head, **ratios, "rows": [r.to_json() for r in found]}


def to_text(result: dict[str, Any]) -> str:
    """One line for each tariff."""
    lines = [
        f"{'tariff':<11} {'traces':>6} {'median':>7} {'worst':>7}   {'today: median':>13} {'worst':>7} {'slow':>7}"
    ]
    for name, of in result["tariffs"].items():
        lines.append(
            f"{name:<11} {of['traces']:>6} {of['median_ratio']:>7.3f} {of['worst_ratio']:>7.3f}   "
            f"{of['today_median_ratio']:>13.3f} {of['today_worst_ratio']:>7.3f} {of['slow_median_ratio']:>7.3f}"
        )
    return "\n".join((*lines, "Cost over that of the optimum: bills of all volumes and the value of time."))
