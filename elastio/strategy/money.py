"""What a boost buys by `policy.model = "money"`, and whether it is worth its price. Pure.

The answer comes from what is known, the best of these:

- a burst of a known size is announced: the cache that `speed` finds for it;
- past bursts: the plan that would have been the cheapest for them (`hindsight`, see `Advice`);
- none: the cache that is right on average for bursts of every magnitude (`hindsight.first_plan`); the configured size
  and bandwidth, as long as nobody has looked for that.

Where none would have been worth its bill, the boost is declined. One that outlasts the known bursts by far is of
another kind: how much more it writes is unknown, in proportion to what it has written so far. An operator's boost is
never declined.

The money model needs known prices. Until they are known nothing is bought but what an operator asks for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import median

from elastio.core.model import Forecast, VolumeSpec
from elastio.core.phase import Trigger
from elastio.core.policy import NEARLY_FULL, Policy
from elastio.strategy import learned, speed
from elastio.strategy.forecast import KEPT_INTERVALS, Burst
from elastio.strategy.hindsight import PastLoad, Pause, first_plan, gaps_s, plan_cost, plan_for, slow_cost
from elastio.strategy.hold import holding_s
from elastio.strategy.memory import Choice, LoadWatch, Memory, Unended
from elastio.strategy.situation import CycleView
from elastio.strategy.tariff import Tariff
from elastio.strategy.worth import (
    MOST_HELD_S,
    SIZES_MB,
    Advice,
    Bounds,
    Market,
    OwnedCache,
    Plan,
    Terms,
    hold_per_s,
    late_per_s,
    rebuy_price,
)
from elastio.units import MB, format_duration, format_size

# A burst that has written more than every known one by this factor is of another kind.
BEYOND = 1.25
# What is still to come of such a burst, or of a load that has filled a cache, in multiples of what it has written.
TO_COME = (1.0, 2.0, 4.0, 8.0)
# A load is over when it was low for this long. The hold makes sure that a short pause does not release the cache.
QUIET_S = 2.0
# Another cache must have been cheaper by so many times what it costs to change.
CHANGE = 2.0
# Of how many loads that leave bandwidth of the backing volume unused, as it is configured, one may wait for it all the
# same: one in so many.
RARELY = 100
# From the beginning of a burst to the sample that shows it.
SEEN_S = 1.0


def in_force(policy: Policy, choice: Choice | None) -> Policy:
    """The policy with the bandwidths of the cache that was chosen; the same policy where nothing was."""
    if choice is None:
        return policy
    return replace(policy, cache_bandwidth_mb_s=choice.cache_mb_s, drain_bandwidth_mb_s=choice.drain_mb_s)


def measured(policy: Policy, memory: Memory) -> Policy:
    """The policy with the cutoff that is known; else with the module's default."""
    return policy if memory.cutoff_percent is None else replace(policy, cutoff=memory.cutoff_percent / 100)


def usable_share(policy: Policy) -> float:
    """The share of a cache that is worth paying for: above it applications pay for the flush, see `governor`."""
    return NEARLY_FULL * policy.cutoff


def terms_of(market: Market, policy: Policy, late_s: float, met_ahead: float = 0.0) -> Terms:
    """The terms of this device in the market. `met_ahead`: the share of the wait for a cache that is spared."""
    terms = market.terms(policy.backing_bandwidth_mb_s, usable_share(policy), late_s)
    return replace(terms, late_s=(1 - met_ahead) * late_s)


def late_s(attach_s: Sequence[float], policy: Policy) -> float:
    """Seconds from the beginning of a burst to its cache, as recent boosts took; else the policy's lead."""
    return SEEN_S + median(attach_s) if attach_s else policy.lead_s


def met_ahead(
    market: Market,
    policy: Policy,
    past: Sequence[Burst],
    pauses: Sequence[Pause],
    late: float,
    may_buy: Callable[[Forecast], bool] = lambda burst: True,
) -> float:
    """The share of the wait for a cache that the agent spares by its own forecasts: see `learned`.

    Another cache can be bought once the last one is flushed and gone, and the cool-down is over; and not before the
    paid time has ended, where pauses are longer than that. A paid time that is longer ends anywhere in one of them.
    """
    terms, spec = terms_of(market, policy, late), VolumeSpec(policy.initial_size_bytes, policy.bought_bandwidth_mb_s)
    gaps = gaps_s(terms, pauses, policy.cache_bandwidth_mb_s, policy.drain_bandwidth_mb_s)
    if not gaps:
        return 0.0
    recent = pauses[-KEPT_INTERVALS:]
    flushes = [pause.pause_s - gap for pause, gap in zip(recent, gaps[-KEPT_INTERVALS:], strict=True)]
    gone_s = median(flushes) + terms.overhead_s - late
    paid_s = terms.tariff.minimum_s - median(pause.lasted_s for pause in recent)
    if paid_s <= median(pause.pause_s for pause in recent):
        gone_s = max(gone_s, paid_s)
    late_price, hold_price = late_per_s(terms, policy.cache_bandwidth_mb_s), hold_per_s(terms, spec)
    return learned.met_ahead(past, late, late_price, hold_price, policy, gone_s + policy.cool_down_s, may_buy)


def bounds_of(market: Market, policy: Policy) -> Bounds:
    """The instance's limit and the configured bandwidth."""
    most = min(market.bounds.most_mb_s, policy.bought_bandwidth_mb_s)
    return Bounds(market.bounds.instance_mb_s, most)


# --- what to buy -----------------------------------------------------------------------------------------


def unadvised(market: Market, policy: Policy, late: float) -> Advice:
    """What is bought before any burst is known: the first guess."""
    return Advice(0, 0.0, first_plan(terms_of(market, policy, late), market.offer, bounds_of(market, policy)))


def formula_plan(market: Market, policy: Policy, written_mb: float, late: float) -> Plan | None:
    """The best cache for one burst; None: none is worth its price. A larger one than allowed gets what is allowed."""
    terms = terms_of(market, policy, late)
    fitting_mb = min(written_mb, market.offer.most_bytes / MB * usable_share(policy))
    found = speed.best_choice(terms, market.offer, fitting_mb * MB, bounds_of(market, policy))
    if found is None:
        return None
    price = rebuy_price(terms, found.spec, found.app_mb_s, found.held_s)
    hold = holding_s((), hold_per_s(terms, found.spec), price)
    return Plan(found.spec, found.app_mb_s, found.drain_mb_s, max(0.0, found.late_s - late), hold, found.cost)


def next_plan(market: Market, policy: Policy, load: Unended, late: float) -> Plan | None:
    """The next cache for a load that has filled one, or has had none so far; None: none is worth its price.

    Each of TO_COME counts as equally likely.
    """
    terms = terms_of(market, policy, late)
    to_come = [(PastLoad(times * load.written_mb, load.rate_mb_s, math.inf),) for times in TO_COME]
    return plan_for(terms, market.offer, to_come, bounds_of(market, policy))


def doubt_s(market: Market, policy: Policy, plan: Plan, late: float) -> float:
    """After how long a load that does not seem to wait gets this cache, to see whether it does.

    The price of a needless cache equals what the load has lost by then, times the probability that it does wait.
    """
    terms = terms_of(market, policy, late)
    needless = terms.tariff.cost(plan.spec, terms.overhead_s) + terms.per_boost
    lost_per_s = late_per_s(terms, plan.app_mb_s) / RARELY
    return needless / lost_per_s if lost_per_s > 0 else math.inf


def gain(market: Market, policy: Policy, plan: Plan, burst: PastLoad, late: float) -> float:
    """What this plan saves of a burst, its bill included."""
    terms = terms_of(market, policy, late)
    return slow_cost(terms, (burst,)) - plan_cost(terms, plan, (burst,))


def planned(plan: Plan, market: Market, reason: str) -> Choice:
    """The choice that carries out this plan."""
    bought = plan.spec.bandwidth_mb_s
    drain = min(plan.drain_mb_s, bought)
    tariff = market.tariff
    hold = min(plan.holding_s, MOST_HELD_S)
    return Choice(bought - drain, drain, hold, QUIET_S, tariff.minimum_s, tariff.step_s, _with_hold(reason, hold))


def configured(market: Market, policy: Policy, size_bytes: int, late: float, reason: str) -> Choice:
    """The configured bandwidths for a cache of this size, held until the rent equals the price of buying again."""
    terms = terms_of(market, policy, late)
    spec = VolumeSpec(size_bytes, policy.bought_bandwidth_mb_s, policy.cache_iops)
    held_s = terms.overhead_s + size_bytes * usable_share(policy) / MB / policy.backing_bandwidth_mb_s
    rebuy = rebuy_price(terms, spec, policy.cache_bandwidth_mb_s, held_s)
    hold = min(MOST_HELD_S, holding_s((), hold_per_s(terms, spec), rebuy))
    tariff = market.tariff
    return Choice(
        policy.cache_bandwidth_mb_s,
        policy.drain_bandwidth_mb_s,
        hold,
        policy.inactivity_delay_s,
        tariff.minimum_s,
        tariff.step_s,
        _with_hold(reason, hold),
    )


def _with_hold(reason: str, hold: float) -> str:
    return f"{reason}; unused, it is held for its paid time and {format_duration(hold)} more"


def plan_reason(advice: Advice) -> str:
    """Why this plan, in words."""
    if not advice.bursts:
        sizes = f"{format_size(int(SIZES_MB[0] * MB))} to {format_size(int(SIZES_MB[-1] * MB))}"
        return f"no burst is known yet: best on average for bursts of {sizes}"
    by = f"{advice.gaps} known pauses" if advice.gaps else "what buying again costs"
    return f"cheapest for the last {advice.bursts} bursts, the hold by {by}"


# --- what is owned already -------------------------------------------------------------------------------


def judged(
    market: Market,
    policy: Policy,
    cycle: CycleView,
    best: Plan | None,
    past: Sequence[PastLoad],
    pauses: Sequence[Pause],
    met_ahead: float = 0.0,
    served: Sequence[PastLoad] = (),
) -> OwnedCache | None:
    """What the past says of the cache of this cycle; None: an operator wants it, or nothing was chosen or is known.

    `best` is the plan for these bursts, None: to buy nothing. With J for what the bursts would have cost (`hindsight`)
    and c for what it costs to buy the best cache instead (`rebuy_price`), the owned one is outdated if

        J(owned) - J(best) > c      without a best one: J(owned) > J(nothing)

    Its paid time is paid whatever is done: until that is over, only the waiting that it causes counts, without bills.
    To give up what is paid takes what has happened: how long the known bursts waited that it has served, `served`.
    """
    choice, boosted = cycle.choice, cycle.times.boosted
    if choice is None or boosted is None or not past or cycle.trigger is Trigger.OPERATOR:
        return None
    late = boosted - cycle.started_at
    terms, spec = terms_of(market, policy, SEEN_S + late, met_ahead), cycle.provisioned
    held_s = terms.overhead_s + past[-1].written_mb / terms.backing_mb_s
    price = rebuy_price(terms, spec, choice.cache_mb_s, held_s)
    if best is not None:
        price = min(price, rebuy_price(terms, best.spec, best.app_mb_s, held_s))
    split = _best_split(terms, choice, spec, served)
    gaps = gaps_s(terms, pauses, split.app_mb_s, split.drain_mb_s)
    hold = min(MOST_HELD_S, holding_s(gaps, hold_per_s(terms, spec), price))
    owned = replace(split, holding_s=hold if best is None else best.holding_s)
    cost = plan_cost(terms, owned, past)
    if best is None:
        return OwnedCache(cycle.token, hold, split.drain_mb_s, cost > slow_cost(terms, past))
    change = CHANGE * rebuy_price(replace(terms, late_s=SEEN_S + late), best.spec, best.app_mb_s, held_s)
    is_outdated = cost > plan_cost(terms, best, past) + change
    hinders = bool(served) and _hinders(terms, split, best, served, pauses, change)
    return OwnedCache(cycle.token, hold, split.drain_mb_s, is_outdated, is_hindrance=hinders)


def _hinders(
    terms: Terms, owned: Plan, best: Plan, served: Sequence[PastLoad], pauses: Sequence[Pause], change: float
) -> bool:
    """Whether these bursts waited for this cache, less the wait for its flush, for more than the best one costs.

    That one is bought for each of them, or owned for as long as all of them lasted: of time that is sold in steps that
    is their part, and the rest serves the bursts that follow.
    """
    waits, least = (plan_cost(_free(terms), plan, served) for plan in (owned, best))
    leaving = terms.waiting_per_s * flush_under_load_s(terms, owned, served, pauses)
    lasted_s = sum(load.written_mb / min(load.rate_mb_s, best.app_mb_s) + _usual_s(pauses) for load in served)
    instead = min(plan_cost(terms, best, served), least + hold_per_s(terms, best.spec) * lasted_s)
    return waits - leaving > instead + change


def _usual_s(pauses: Sequence[Pause]) -> float:
    return median(pause.pause_s for pause in pauses) if pauses else math.inf


def _free(terms: Terms) -> Terms:
    """As where caches cost nothing: only the waiting counts."""
    return replace(terms, tariff=Tariff(terms.tariff.currency))


def _best_split(terms: Terms, choice: Choice, spec: VolumeSpec, past: Sequence[PastLoad]) -> Plan:
    """How much of the owned cache's bandwidth the drain should have had for these bursts; as it is where that is best.

    Bandwidth that the applications do not use saves room where it goes to the drain.
    """
    bought = choice.cache_mb_s + choice.drain_mb_s
    others = [share * terms.backing_mb_s for share in speed.DRAINS]
    drains = (choice.drain_mb_s, *(drain for drain in others if bought - drain > terms.backing_mb_s))
    splits = [Plan(spec, bought - drain, drain, 0.0, math.inf) for drain in drains]
    return min(splits, key=lambda plan: plan_cost(_free(terms), plan, past))


def flush_under_load_s(terms: Terms, owned: Plan, past: Sequence[PastLoad], pauses: Sequence[Pause]) -> float:
    """For how long the next burst would find this cache being flushed, after a pause as usual."""
    dirty_mb = min(max(load.written_mb for load in past), terms.cutoff * owned.spec.size_bytes / MB)
    return max(0.0, dirty_mb / terms.backing_mb_s - _usual_s(pauses))


# --- whether at all --------------------------------------------------------------------------------------


def why_declined(market: Market, policy: Policy, advice: Advice, late: float) -> str:
    """Why no cache is bought for a load like the last ones, with the bill of the configured one where that says it."""
    if not advice.bursts:
        return "no burst is known yet, and for most that might come no cache would be worth its price"
    bill = bill_refusal(market, policy, advice.largest_mb, late)
    late_one = "" if advice.plan is None else " that is bought when it is there"
    known = f"none of the last {advice.bursts} bursts would have been worth a cache{late_one}"
    return f"{known}: {bill}" if bill else known


def bill_refusal(market: Market, policy: Policy, written_mb: float, late: float) -> str:
    """Why a boost with the configured bandwidth is not worth its bill for such a burst; empty: it is."""
    terms = terms_of(market, policy, late)
    fitting = min(written_mb, market.offer.most_bytes / MB * usable_share(policy)) * MB
    found = speed.choice(terms, market.offer, fitting, policy.bought_bandwidth_mb_s, policy.drain_bandwidth_mb_s, late)
    return "" if found is None else speed.boost_refusal(terms, found, fitting)


def outlasted_mb(load: LoadWatch, advice: Advice, now: float, policy: Policy) -> float | None:
    """What a burst has written that outlasts every known one, in MB, by its last utilization; else None."""
    lasted_s = 0.0 if load.above_since is None else now - load.above_since
    written_mb = lasted_s * policy.backing_bandwidth_mb_s * min(1.0, load.utilization)
    return written_mb if written_mb > BEYOND * advice.largest_mb else None
