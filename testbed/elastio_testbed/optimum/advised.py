"""Settings for the simulated agent, chosen by `elastio.core.speed`, `hold`, `lead` and `forecast`.

The agent, its policy functions and its loop are the real ones and are not changed. `Advised` replaces the settings of
the running agent, as an operator could by a restart: bandwidths, sizes, the trigger delay and the lead only while no
boost is open, the inactivity delay when a burst has ended. It sees what the agent sees: the load, the bytes that are
dirty, the age of the volume. Before the first burst it assumes `seen.FIRST_GUESS`.
"""

from __future__ import annotations

import math
from dataclasses import replace

from elastio.core import forecast as forecasts
from elastio.core.hindsight import Plan, best_plan, plan_cost
from elastio.core.hold import holding_s, release_in_s
from elastio.core.lead import Expectation, lead_s
from elastio.core.model import Forecast
from elastio.core.policy import Policy
from elastio.core.state import Phase
from elastio.core.worth import hold_per_s, late_per_s, rebuy_price
from elastio.sim.run import Simulation
from elastio.sim.world import SimWorld
from elastio.units import MB
from elastio_testbed.optimum.market import ATTACH_S, LATE_S, RELEASE_S, Market
from elastio_testbed.optimum.seen import Seen

# A load is quiet for at least this long before a release begins, and a cache is held for at most this long.
LEAST_QUIET_S, MOST_HELD_S = 2.0, 6 * 3600.0
# No load lasts so long: the agent buys no cache.
NEVER_S = 10 * 86400.0
# How sure a forecast must be to decide how long a cache is held.
SURE = 0.8
# Paid time is used up to this many seconds before its end.
MARGIN_S = 5.0
# What a cache that is bought ahead takes to serve: a decision waits for the next sample.
SERVES_S = ATTACH_S + 1.0
# Bursts that come later than this are not waited for, whatever it would cost.
MOST_TOLERANCE_S = 60.0


class Advised:
    """Called after each step of a simulation. A `ports.Forecaster`, too."""

    def __init__(self, market: Market, world: SimWorld) -> None:
        self._market, self._world = market, world
        self._seen = Seen(market.backing_mb_s)
        self._plan: Plan | None = None
        self._is_new = True
        self._clean_at = 0.0
        self._prices: tuple[float, float] | None = None
        self._lead: float | None = None
        self._judged, self._outdated = 0, False
        self._sampled_at = 0.0

    def advise(self, simulation: Simulation) -> None:
        """Note bursts, and change the settings where they may be changed."""
        simulation.timeline.clear()
        agent, state = simulation.agent, simulation.state
        if agent is None or agent.last_sample is None:
            return
        is_new_sample, self._sampled_at = agent.last_sample.at != self._sampled_at, agent.last_sample.at
        is_boosting = simulation.phase is Phase.BOOSTING
        offered = agent.policy.cache_bandwidth_mb_s if is_boosting else self._market.backing_mb_s
        written = self._world.kernel.traffic.adaptive.written
        self._is_new |= self._seen.note(state.load, written, agent.last_sample, offered)
        if state.cycle is None and self._is_new:
            agent.policy, self._is_new = self._settings(simulation.policy), False
        quiet_at = state.load.below_since if self._seen.begun_at is None else None
        if is_boosting and is_new_sample and quiet_at is not None:
            delay_s = self._inactivity_delay_s(simulation, quiet_at)
            agent.policy = replace(agent.policy, inactivity_delay_s=delay_s)

    # --- what to buy ---------------------------------------------------------------------------------------

    def _best(self, late_s: float) -> Plan | None:
        market, seen = self._market, self._seen
        return best_plan(market.terms(late_s), market.offer, seen.past(), market.bounds, seen.gaps_s)

    def _settings(self, configured: Policy) -> Policy:
        """The settings for the next boost."""
        self._prices = self._found_prices()
        self._lead = self._lead_s()
        self._plan = plan = self._best(LATE_S if self._lead is None else 0.0)
        if plan is None:
            return replace(configured, trigger_delay_s=NEVER_S)
        return replace(
            configured,
            cache_bandwidth_mb_s=plan.spec.bandwidth_mb_s - plan.drain_mb_s,
            drain_bandwidth_mb_s=plan.drain_mb_s,
            initial_size_bytes=plan.spec.size_bytes,
            min_size_bytes=plan.spec.size_bytes,
            caps=replace(configured.caps, max_size_bytes=plan.spec.size_bytes),
            trigger_delay_s=plan.delay_s,
            inactivity_delay_s=LEAST_QUIET_S if self._lead is None else max(LEAST_QUIET_S, self._tolerance_s()),
            lead_s=self._lead or 0.0,
        )

    # --- how long to hold it -------------------------------------------------------------------------------

    def _inactivity_delay_s(self, simulation: Simulation, quiet_at: float) -> float:
        """From the end of the burst to the begin of the release: flush, paid time, and what holding is worth."""
        cycle, plan, clock = simulation.state.cycle, self._plan, self._world.clock
        if cycle is None or plan is None or cycle.opened_wall is None:
            return simulation.policy.inactivity_delay_s
        if cycle.chance_until is not None and clock.now() < cycle.chance_until and not cycle.moved_bytes:
            return max(LEAST_QUIET_S, self._tolerance_s())
        dirty = self._world.kernel.bcache.dirty_bytes
        if dirty:
            self._clean_at = clock.now() + dirty / MB / self._market.backing_mb_s
        clean_at = max(self._clean_at, quiet_at)
        spec = self._market.billed_spec(cycle.provisioned.size_bytes, cycle.provisioned.bandwidth_mb_s)
        terms = self._market.terms()
        per_s = hold_per_s(terms, spec)
        held_s = terms.overhead_s + self._seen.bursts[-1].written_bytes / MB / terms.backing_mb_s
        price = rebuy_price(terms, spec, plan.app_mb_s, held_s)
        if self._is_outdated(plan, price):
            return LEAST_QUIET_S
        keep_s = holding_s(self._seen.gaps_s, per_s, price)
        expected = self.forecast(clock.now(), clock.wall())
        if expected is not None and expected.confidence >= SURE:
            again = (
                price if self._lead_s() is None else rebuy_price(self._market.terms(0.0), spec, plan.app_mb_s, held_s)
            )
            keep_s = math.inf if (expected.begins_at - clean_at) * per_s < again else 0.0
        age_s = clock.wall() - cycle.opened_wall + clean_at - clock.now()
        in_s = release_in_s(self._market.cache, age_s, RELEASE_S + MARGIN_S, keep_s)
        return min(MOST_HELD_S, max(LEAST_QUIET_S, clean_at - quiet_at + in_s if in_s > 0 else 0.0))

    def _is_outdated(self, plan: Plan, price: float) -> bool:
        """Another volume would have saved more over the last bursts than it costs to buy it."""
        if len(self._seen.bursts) != self._judged:
            self._judged = len(self._seen.bursts)
            terms, past = self._market.terms(), self._seen.past()
            other = self._best(LATE_S)
            saved = (
                0.0 if other is None else plan_cost(terms, replace(plan, holding_s=other.holding_s), past) - other.cost
            )
            self._outdated = other is None or saved > price
        return self._outdated

    # --- ahead ---------------------------------------------------------------------------------------------

    def _found_prices(self) -> tuple[float, float] | None:
        """c_l and c_h of the cache of the next burst; None: none is worth it."""
        terms, plan = self._market.terms(0.0), self._best(0.0)
        if plan is None or plan.delay_s > 0:
            return None
        return late_per_s(terms, plan.app_mb_s), hold_per_s(terms, plan.spec)

    def _tolerance_s(self) -> float:
        """A burst that comes so much later than expected costs more to wait for than being ahead of it gains."""
        if self._prices is None:
            return LEAST_QUIET_S
        late, hold = self._prices
        return min(MOST_TOLERANCE_S, late * SERVES_S / hold) if hold > 0 else MOST_TOLERANCE_S

    def _lead_s(self) -> float | None:
        if self._prices is None:
            return None
        past = [Expectation(SERVES_S, error) for error in forecasts.recent_errors(self._seen.bursts)]
        return lead_s(past, self._tolerance_s(), *self._prices)

    def forecast(self, now: float, wall: float) -> Forecast | None:
        """See `ports.Forecaster`."""
        if self._seen.begun_at is not None:
            return None
        return forecasts.forecast(self._seen.bursts, now, self._tolerance_s())
