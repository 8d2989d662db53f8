"""What the past of one device teaches: the plan that would have been the cheapest for its last bursts; the next one.

The loop must not wait for that: `hindsight` tries hundreds of plans, which takes tens of milliseconds. So the search is
cut into pieces. With every sample some plans are tried, a millisecond's worth; after half a minute all were. Until then
the earlier advice holds. A burst that ends, other prices and another time to attach begin the search again.

What was learned is not kept by itself: at a start the bursts are read from the history in the ledger, at most
`READ_RUNS` of the last samples.

The next burst is expected from the ledger's past ones (`policy.ahead = "learned"`). That takes less than a millisecond,
and the ledger is read only after it has changed. Where it cannot be read nothing is expected, and the load alone
decides.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

from elastio.agent.loop import Agent
from elastio.core.boosting import cycle_view
from elastio.core.model import Forecast, Sample, VolumeSpec
from elastio.core.policy import Ahead, Model, Policy
from elastio.core.state import AgentState, Phase
from elastio.errors import LedgerError
from elastio.strategy import bursts, caps, hindsight, learning, money
from elastio.strategy.ahead import MOST_MISSED
from elastio.strategy.bursts import BurstWatch, LoadRun, PastBurst
from elastio.strategy.forecast import Burst
from elastio.strategy.hindsight import PastLoad, Pause
from elastio.strategy.learned import ForecastTerms, Past, fits_the_bill, next_burst
from elastio.strategy.load import as_load
from elastio.strategy.memory import Memory
from elastio.strategy.worth import Advice, Plan, Terms
from elastio.units import MB

# Samples that are read at a start.
READ_RUNS = 10_000
# Bursts that are replayed with each sample: some microseconds each.
REPLAYS_PER_SAMPLE = 160

_Question: TypeAlias = tuple[tuple[PastBurst, ...], Policy, tuple[float, ...]]
_Judged: TypeAlias = tuple[tuple[str, VolumeSpec, float | None] | None, Plan | None]


class HindsightAdviser:
    """`ports.Adviser`. `runs`: the history, oldest first; it is taken in by the first call.

    `past`: see `LearnedForecaster`. Without it, no bill forbids to buy ahead.
    """

    def __init__(self, runs: Iterable[LoadRun] = (), past: Callable[[float], Past] | None = None) -> None:
        self._runs, self._bills = runs, past
        self._watch = BurstWatch()
        self._advice: Advice | None = None
        self._question: _Question | None = None
        self._search: Iterator[Plan] | None = None
        self._best: Plan | None = None
        self._past: tuple[PastLoad, ...] = ()
        self._pauses: tuple[Pause, ...] = ()
        self._judged: _Judged | None = None
        self._slow_cost = math.inf
        self._met_ahead = 0.0
        self._terms: Terms | None = None
        self._late_s = 0.0
        self._waits = 1.0, 0.0

    def advise(self, sample: Sample | None, state: AgentState, policy: Policy, *, offset_s: float) -> Advice | None:
        """See `ports.Adviser`."""
        if policy.model is not Model.MONEY:
            return None
        policy = money.measured(policy, state.memory)
        self._take_in(sample, state, policy, offset_s)
        if policy.market is None:
            return None
        question = (self._watch.bursts, policy, state.memory.attach_s)
        if question != self._question:
            self._ask(question, state.memory)
        self._go_on()
        self._judge(state, policy)
        return self._advice

    def _take_in(self, sample: Sample | None, state: AgentState, policy: Policy, offset_s: float) -> None:
        past, self._runs = self._runs, ()
        for run in past:
            self._note(run, policy)
        if sample is not None:
            rates, seconds = as_load(sample, policy).adaptive, sample.seconds
            begun, offered = sample.at - seconds, _offered_mb_s(sample, state, policy)
            written, moved = rates.write_mb_s * seconds, rates.total_mb_s * seconds
            self._note(LoadRun(begun + offset_s, seconds, written, moved, offered), policy)

    def _note(self, run: LoadRun, policy: Policy) -> None:
        low, high = policy.release_threshold, policy.utilization_threshold
        self._watch = bursts.with_run(self._watch, run, policy.backing_bandwidth_mb_s, high, low)

    def _ask(self, question: _Question, memory: Memory) -> None:
        """Begin again to try plans; with the first guess where no burst is known."""
        ended, policy, attach_s = self._question = question
        market, late = policy.market, money.late_s(attach_s, policy)
        if market is None:
            return
        speeds = policy.backing_bandwidth_mb_s, policy.cache_bandwidth_mb_s
        past = bursts.past_loads(ended, *speeds)
        pauses = bursts.pauses(self._watch, *speeds)
        self._pauses, self._search, self._best, self._judged = pauses, None, None, None
        if not past:
            self._advice = money.unadvised(market, policy, late)
            return
        self._past, self._late_s = hindsight.supposed(past), late
        self._waits = bursts.given_mb_s(ended, speeds[0]) / speeds[0], bursts.unwaited_s(ended, speeds[0])
        known = [Burst(b.begun_wall, b.ended_wall, int(b.written_mb * MB)) for b in ended]
        may_buy = partial(self._may_buy_ahead, memory, policy, ended[-1].ended_wall)
        self._met_ahead = money.met_ahead(market, policy, known, pauses, late, may_buy)
        terms = money.terms_of(market, policy, late, self._met_ahead)
        bounds = money.bounds_of(market, policy)
        self._terms, self._slow_cost = terms, hindsight.slow_cost(terms, self._past)
        self._search = hindsight.plans(terms, market.offer, self._past, bounds, pauses)

    def _may_buy_ahead(self, memory: Memory, policy: Policy, wall: float, burst: Forecast) -> bool:
        """Whether a cache like the last one would be bought ahead of this burst. Not where the bill cannot be read."""
        if memory.missed_forecasts >= MOST_MISSED:
            return False
        if self._bills is None:
            return True
        try:
            past = self._bills(wall)
        except LedgerError:
            return False
        release_s = caps.release_s(memory, None, policy)
        return fits_the_bill(burst, past, ForecastTerms(policy, memory.attach_s, 0, release_s=release_s))

    def _judge(self, state: AgentState, policy: Policy) -> None:
        """Keep up to date what the past teaches about the owned cache: a replay of the bursts, less than a millisecond.

        While plans are still tried for the newest burst, the earlier answer holds.
        """
        cycle, market = state.cycle, policy.market
        if self._advice is None or self._search is not None or market is None:
            return
        volume = None if cycle is None else (cycle.token, cycle.provisioned, cycle.times.boosted)
        if self._judged == (volume, self._advice.plan):
            return
        self._judged = (volume, self._advice.plan)
        plan, past, pauses, owned = self._advice.plan, self._past, self._pauses, None
        if cycle is not None:
            served = sum(burst.ended_wall > cycle.started_wall for burst in self._watch.bursts)
            known = self._past[:-1][-served:] if served else ()
            owned = money.judged(market, policy, cycle_view(cycle), plan, past, pauses, self._met_ahead, known)
        self._advice = replace(self._advice, owned=owned)

    def _go_on(self) -> None:
        """Evaluate the next plans. After the last, the advice is the cheapest plan, or None if no plan pays."""
        if self._search is None:
            return
        for _ in range(max(1, REPLAYS_PER_SAMPLE // len(self._past))):
            plan = next(self._search, None)
            if plan is None:
                self._end()
                return
            if self._best is None or plan.cost < self._best.cost:
                self._best = plan

    def _end(self) -> None:
        best, self._search = self._best, None
        if best is not None and best.cost >= self._slow_cost:
            best = None
        known = self._past[:-1]
        largest = max(load.written_mb for load in known)
        owned = None if self._advice is None else self._advice.owned
        pays, pays_late = self._pays(best, known), self._pays(best, self._past, is_late=True)
        waited = self._terms is None or all(load.rate_mb_s > self._terms.backing_mb_s for load in known)
        gaps = len(self._pauses)
        self._advice = Advice(len(known), largest, best, gaps, owned, pays, pays_late, waited, *self._waits)

    def _pays(self, plan: Plan | None, past: Sequence[PastLoad], *, is_late: bool = False) -> bool:
        """Whether the plan would have paid for these bursts; `is_late`: if none had found its cache there."""
        if plan is None or self._terms is None:
            return False
        terms = replace(self._terms, late_s=self._late_s) if is_late else self._terms
        return hindsight.plan_cost(terms, plan, past) < hindsight.slow_cost(terms, past)


def _offered_mb_s(sample: Sample, state: AgentState, policy: Policy) -> float:
    """What a cache offered to applications throughout this sample; 0: there was none all the time, or no room."""
    cycle = state.cycle
    boosted = None if cycle is None else cycle.times.boosted
    if state.phase is not Phase.BOOSTING or cycle is None or boosted is None or sample.at - sample.seconds < boosted:
        return 0.0
    if state.memory.full_since is not None:
        return 0.0
    return money.in_force(policy, cycle.choice).cache_bandwidth_mb_s


@dataclass(frozen=True, slots=True)
class LearnedForecaster:
    """`ports.Forecaster`. `past` returns the bursts before a time (seconds since the epoch), `terms` what holds now.

    `terms` None: nothing is to be expected now.
    """

    past: Callable[[float], Past]
    terms: Callable[[], ForecastTerms | None]

    def forecast(self, now: float, wall: float) -> Forecast | None:
        """See `ports.Forecaster`. Raises LedgerError as `past` does."""
        terms = self.terms()
        expected = None if terms is None else next_burst(self.past(wall), terms, wall)
        return None if expected is None else replace(expected, begins_at=now + expected.begins_at - wall)


def forecast_terms(agent: Agent, waiting_per_hour: float | None) -> ForecastTerms | None:
    """None: forecasts are not asked for, a cache is there already, or the backing device was not seen yet."""
    backing = agent.view.backing if agent.view else None
    if agent.policy.ahead is not Ahead.LEARNED or agent.state.cycle is not None or backing is None:
        return None
    policy = learning.in_force(agent.policy, agent.state.memory)
    release_s = caps.release_s(agent.state.memory, None, policy)
    times = agent.state.memory.attach_s, backing.size_bytes, waiting_per_hour, release_s
    return ForecastTerms(policy, *times, lambda burst: _spec_for(burst, agent, policy))


def _spec_for(burst: Forecast, agent: Agent, policy: Policy) -> VolumeSpec:
    """What the agent would buy ahead of this burst."""
    advice = agent.advice
    if policy.model is Model.MONEY and advice is not None and advice.plan is not None:
        return advice.plan.spec
    return VolumeSpec(learning.size_for(burst, agent.state.memory, policy), policy.bought_bandwidth_mb_s)
