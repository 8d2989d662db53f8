"""Optimum, agent of today and agent by money, on every load and at every tariff: rows, ratios, and the result as JSON.

Two ratios to the optimum are stated for each row. `ratio` compares all that was paid: the bills of all volumes and the
value of the whole time, as an owner would. `decided` compares what can be decided at all: the time beyond the load's
own, and the bills of caches. It is much harder, because no decision changes the load's own time. `dearer_than_never`
and `dearer_than_default` are of the same: by which share the agent by money is dearer than to buy nothing, and than
today's. `decided_floor` is what nobody stays below, on average, who does not know when the next burst begins, see
`offline.floor`, and `over_floor` what the agent by money pays over that.
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
from elastio_testbed.optimum.offline import floor, optimum
from elastio_testbed.optimum.online import run
from elastio_testbed.optimum.traces import Load

# A share of a load's own cost that counts as nothing; a share by which a way may be dearer than another one.
NOTHING, DEARER = 1e-9, 0.01


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
    floor_cost: float
    today: Way
    money: Way

    def ratio(self, way: Way) -> float:
        """What this way cost, over the optimum."""
        return way.cost / self.optimum.cost

    def decided(self, cost: float) -> float:
        """The same without the load's own time; 1 where there was nothing to decide."""
        least = self.optimum.cost - self.own_cost
        return (cost - self.own_cost) / least if least > NOTHING * self.own_cost else 1.0

    def dearer_than(self, cost: float) -> float:
        """By which share of waiting and caches the agent by money is dearer than another way; below 0: cheaper.

        Where the other way has neither, by which share of all that it costs.
        """
        other = cost - self.own_cost
        return (self.money.cost - cost) / (other if other > NOTHING * self.own_cost else cost)

    @property
    def over_floor(self) -> float:
        return self.decided(self.money.cost) / self.decided(self.floor_cost)

    @property
    def dearer_than_never(self) -> float:
        return self.dearer_than(self.slow_cost)

    @property
    def dearer_than_default(self) -> float:
        return self.dearer_than(self.today.cost)

    def to_json(self) -> dict[str, Any]:
        """With the ratios of both ways."""
        found = {
            "ratio": self.ratio(self.money),
            "decided": self.decided(self.money.cost),
            "decided_floor": self.decided(self.floor_cost),
            "over_floor": self.over_floor,
            "today_ratio": self.ratio(self.today),
            "today_decided": self.decided(self.today.cost),
            "dearer_than_never": self.dearer_than_never,
            "dearer_than_default": self.dearer_than_default,
        }
        return {**asdict(self), **{name: round(value, 4) for name, value in found.items()}}


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
        max(best.cost, floor(load, market).cost),
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
            today, money = found.decided(found.today.cost), found.decided(found.money.cost)
            say(f"{found.tariff} {found.load}: decided, today {today:.2f}, money {money:.2f} of the optimum")
            yield found


def document(found: Sequence[Row], markets: Sequence[Market]) -> dict[str, Any]:
    """The result: the ratios of the policy by money and those of today's over all, for each tariff, and every row."""
    tariffs = {m.name: _of_tariff([r for r in found if r.tariff == m.name], m) for m in markets}
    return {**_ratios(found), "tariffs": tariffs}


def _of_tariff(found: Sequence[Row], market: Market) -> dict[str, Any]:
    worth = round(market.run_per_s * 3600, 6)
    head = {"currency": market.cache.currency, "hour_costs": worth, "traces": len(found)}
    return {**head, **_ratios(found), "rows": [r.to_json() for r in found]}


def _ratios(found: Sequence[Row]) -> dict[str, float]:
    """Medians and worst ones. `dearer_than_`: of the worst trace; `_count`: of how many traces it is above DEARER."""
    ratios: dict[str, float] = {}
    for name, values in (
        ("ratio", [r.ratio(r.money) for r in found]),
        ("today_ratio", [r.ratio(r.today) for r in found]),
        ("decided", [r.decided(r.money.cost) for r in found]),
        ("today_decided", [r.decided(r.today.cost) for r in found]),
        ("decided_floor", [r.decided(r.floor_cost) for r in found]),
        ("over_floor", [r.over_floor for r in found]),
    ):
        ratios[f"{name}_median"], ratios[f"{name}_worst"] = median(values), max(values)
    ratios["slow_ratio_median"] = median(r.slow_cost / r.optimum.cost for r in found)
    ratios["slow_decided_median"] = median(r.decided(r.slow_cost) for r in found)
    for name, shares in (
        ("never", [r.dearer_than_never for r in found]),
        ("default", [r.dearer_than_default for r in found]),
    ):
        ratios[f"dearer_than_{name}"] = max(shares)
        ratios[f"dearer_than_{name}_count"] = sum(share > DEARER for share in shares)
    return {name: round(value, 4) for name, value in ratios.items()}


def to_text(result: dict[str, Any]) -> str:
    """One line for each tariff, and one over all."""
    head = (
        f"{'tariff':<11} {'traces':>6} {'median':>7} {'floor':>7} {'over it':>7} {'worst':>7}   {'today: median':>13}"
    )
    lines = [f"{head} {'worst':>7} {'slow':>7}   {'dearer than never':>17} {'today':>6}"]
    count = sum(of["traces"] for of in result["tariffs"].values())
    for name, of in (*result["tariffs"].items(), ("all", {"traces": count, **result})):
        lines.append(
            f"{name:<11} {of['traces']:>6} {of['decided_median']:>7.3f} {of['decided_floor_median']:>7.3f} "
            f"{of['over_floor_median']:>7.3f} {of['decided_worst']:>7.3f}   {of['today_decided_median']:>13.3f} "
            f"{of['today_decided_worst']:>7.3f} {of['slow_decided_median']:>7.3f}   "
            f"{of['dearer_than_never_count']:>17} {of['dearer_than_default_count']:>6}"
        )
    note = "Waits and bills of caches, over those of the optimum. Floor: median of what nobody stays below, on average,"
    dearer = f"who does not know when the next burst begins. Dearer: of how many traces, by more than {DEARER:.0%}."
    return "\n".join((*lines, note, dearer))
