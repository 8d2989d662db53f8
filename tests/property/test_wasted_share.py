"""Whatever the load is: what learned forecasts waste is at no moment more than its share of the bill, or the allowance.

The loads are adversaries of a forecaster: they keep a rhythm until it is trusted, and then break it. Each is played
against what the agent asks before a purchase, with rows of a ledger: without the rules that stop a forecaster after
misses. Wasted is counted at each moment at which something was bought, used or released. A cache whose burst has not
come yet counts whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random

import pytest

from elastio.accounting.history import CycleLoad, past_of
from elastio.accounting.rows import CycleRow, StepDurations
from elastio.billing import RELEASE_IN_STEPS_S, RELEASE_S
from elastio.core.cycle import Trigger
from elastio.core.model import Forecast, VolumeSpec
from elastio.core.policy import Model
from elastio.strategy.learned import FREE_CACHES, FREE_S, WASTED_SHARE, ForecastTerms, next_burst
from elastio.strategy.tariff import Tariff, agbs_tariff
from elastio.units import GB, GIB, MB
from elastio_sim.prices import TARIFF
from tests import values

COUNT, MB_S = 120, 128.0
BEGIN = float("-inf")
# How long the cloud takes: a release never takes longer than was measured before.
ATTACH_S, RELEASED_S = (8.0, 12.0), (5.0, 15.0)
POLICY = replace(values.POLICY, backing_bandwidth_mb_s=60.0, cache_bandwidth_mb_s=MB_S, inactivity_delay_s=30.0)
TARIFFS = {
    "least a minute": TARIFF,
    "begun hours": Tariff("USD", per_gib_hour=0.0002, step_s=3600.0),
    "AGBs": agbs_tariff(),
}


def every(number: int, odd_s: float, gap_s: float = 200.0) -> list[float]:
    """One gap of so many is another one: most of the last five forecasts were right again by then."""
    return [odd_s if at % number == number - 1 else gap_s for at in range(COUNT)]


def drawn(seed: int, low_s: float, high_s: float) -> list[float]:
    random = Random(seed)
    return [random.uniform(low_s, high_s) for _ in range(COUNT)]


# The gaps between bursts, and how long the bursts are in turn, in seconds.
SEQUENCES: dict[str, tuple[list[float], Sequence[float]]] = {
    "a new rhythm": ([200.0] * 12 + [300.0] * (COUNT - 12), (20.0,)),
    "every sixth is late": (every(6, 500.0), (20.0,)),
    "every sixth is a day late": (every(6, 86_400.0), (20.0,)),
    "every seventh of short ones is late": (every(7, 500.0), (3.0,)),
    "the first three, and then never": ([200.0, 200.0, 2000.0] * (COUNT // 3), (20.0,)),
    "later each time": ([100.0 + 9 * at for at in range(COUNT)], (20.0,)),
    "a little late each time": ([200.0, 204.0, 208.0] * (COUNT // 3), (5.0,)),
    "early and late within what is kept": (drawn(3, 192.0, 208.0), (5.0,)),
    "random": (drawn(4, 100.0, 130.0), (20.0,)),
    "larger each time": (every(6, 500.0), tuple(4.0 + at for at in range(COUNT + 1))),
    "much larger now and then": (every(9, 500.0), (*(6.0,) * 8, 90.0)),
}


@dataclass
class Machine:
    """Buys ahead as `next_burst` says, else when the burst is there; the ledger's rows are what comes of it."""

    tariff: Tariff
    model: Model
    random: Random = field(default_factory=lambda: Random(1))
    rows: list[CycleRow] = field(default_factory=list)
    loads: dict[str, CycleLoad] = field(default_factory=dict)
    free_at: float = 0.0

    def terms(self) -> ForecastTerms:
        policy = replace(POLICY, model=self.model)
        return ForecastTerms(policy, ATTACH_S, 50 * GB, 1.0, RELEASED_S[1], self.spec_for)

    @staticmethod
    def spec_for(burst: Forecast) -> VolumeSpec:
        return VolumeSpec(max(GIB, burst.written_bytes), MB_S)

    def meet(self, begin: float, seconds: float) -> None:
        """Everything until the cache that met this burst is gone, or the burst found one."""
        while (burst := self._expected(begin)) is not None:
            at = max(self.free_at, burst.begins_at - (burst.lead_s or 0.0))
            spec, chance = self.spec_for(burst), burst.begins_at + (burst.kept_s or 0.0)
            gives_up = self._gives_up(at, chance)
            if begin <= gives_up:
                self._bought(Trigger.FORECAST, at, self._ended(begin + seconds), spec, (begin, seconds))
                return
            self._bought(Trigger.FORECAST, at, gives_up, spec, None)
        self._bought(Trigger.LOAD, begin + 1, self._ended(begin + seconds), VolumeSpec(2 * GIB, MB_S), (begin, seconds))

    def _expected(self, begin: float) -> Forecast | None:
        """What is bought ahead before this burst begins."""
        at, now = self.terms(), self.free_at
        burst = next_burst(past_of(self.rows, self.loads, "dev"), at, now)
        if burst is None or burst.confidence < at.policy.least_confidence or burst.begins_at <= now:
            return None
        return burst if burst.begins_at - (burst.lead_s or 0.0) < begin else None

    def _gives_up(self, opened: float, chance: float) -> float:
        """When a cache that waited in vain begins to be released: by money at the end of its paid time."""
        if self.model is not Model.MONEY:
            return chance
        early_s = RELEASE_IN_STEPS_S if self.tariff.step_s else RELEASE_S
        return max(chance, opened + self.tariff.billed_s(chance - opened + early_s) - early_s)

    @staticmethod
    def _ended(end: float) -> float:
        return end + POLICY.inactivity_delay_s

    def _bought(
        self, trigger: Trigger, at: float, until: float, spec: VolumeSpec, burst: tuple[float, float] | None
    ) -> None:
        token, is_priced = str(len(self.rows)), self.tariff.currency == "USD"
        closed = until + self.random.uniform(*RELEASED_S)
        self.rows.append(
            CycleRow(
                *(token, "dev", trigger, token, spec.size_bytes, spec.size_bytes, spec.bandwidth_mb_s, at),
                opened_wall=at,
                closed_wall=closed,
                currency=self.tariff.currency if is_priced else "",
                price_per_hour=self.tariff.per_hour(spec) if is_priced else None,
                minimum_s=self.tariff.minimum_s,
                step_s=self.tariff.step_s,
                steps=StepDurations(boost_s=self.random.uniform(*ATTACH_S)),
            )
        )
        if burst is not None:
            begin, seconds = burst
            self.loads[token] = CycleLoad(0, int(seconds * MB_S * MB), begin, begin + seconds)
        self.free_at = closed


def played(sequence: str, tariff: Tariff, model: Model) -> Machine:
    gaps_s, bursts_s = SEQUENCES[sequence]
    machine, begin = Machine(tariff, model), 1000.0
    for at, gap_s in enumerate([0.0, *gaps_s]):
        begin = max(begin + gap_s, machine.free_at + 1)
        machine.meet(begin, bursts_s[at % len(bursts_s)])
        begin += bursts_s[at % len(bursts_s)]
    return machine


def cost(row: CycleRow, at: float) -> float:
    """In the currency, or in AGBs without a price."""
    owed = row.cost(BEGIN, at)
    return row.agbs(BEGIN, at) if owed is None else owed


def wasted(row: CycleRow, load: CycleLoad | None, at: float, tariff: Tariff) -> float:
    """What of this cache is wasted at this moment: all of it, until its burst begins."""
    if row.trigger != Trigger.FORECAST or at <= row.started_wall:
        return 0.0
    if load is None or load.begun_wall is None or load.begun_wall > at:
        return cost(row, at)
    spec = VolumeSpec(row.provisioned_size_bytes, row.bandwidth_mb_s)
    return tariff.per_hour(spec) / 3600 * max(0.0, load.begun_wall - row.started_wall - (row.steps.boost_s or 0.0))


@pytest.mark.parametrize("model", [Model.AGBS, Model.MONEY])
@pytest.mark.parametrize("tariff", TARIFFS)
@pytest.mark.parametrize("sequence", SEQUENCES)
def test_what_forecasts_waste_is_at_no_moment_more_than_its_share(sequence: str, tariff: str, model: Model) -> None:
    sold = TARIFFS[tariff]
    machine = played(sequence, sold, model)
    rows, loads = machine.rows, machine.loads
    first = VolumeSpec(rows[0].provisioned_size_bytes, rows[0].bandwidth_mb_s)
    allowed = FREE_CACHES * sold.cost(first, FREE_S)
    begun = [load.begun_wall for load in loads.values()]
    for at in sorted(t + 0.001 for t in (*begun, *(r.opened_wall for r in rows), *(r.closed_wall for r in rows)) if t):
        bill = sum(cost(row, at) for row in rows)
        lost = sum(wasted(row, loads.get(row.token), at, sold) for row in rows)
        assert lost <= max(WASTED_SHARE * bill, allowed) * (1 + 1e-9), f"{lost / bill:.1%} of {bill / allowed:.0f} x"
    assert WASTED_SHARE * bill > allowed, "it must go on until the share counts"
    assert any(row.trigger == Trigger.FORECAST for row in rows), "loads for which nothing is bought prove nothing"
