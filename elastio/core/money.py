"""What a boost buys by `policy.model = "money"`, and whether it is worth its price. Pure.

The answer comes from what is known, the best of these:

- a burst of a known size is announced: the cache that `speed` finds for it;
- LEAST_BURSTS or more past bursts: the plan that would have been the cheapest for them (`hindsight`, see `Advice`);
- fewer: the cache that `speed` finds for the largest of them;
- none: the configured size and bandwidth.

Where none would have been worth its bill, the boost is declined. One that outlasts the known bursts by far is of
another kind: it is judged by what it has written so far, and expected to write as much again. An operator's boost is
never declined.

Who decides by money must know the prices. Until they are known nothing is bought but what an operator asks for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from elastio.core import speed
from elastio.core.cycle import Cycle
from elastio.core.hindsight import PastLoad, Plan
from elastio.core.hold import LEAST_GAPS, holding_s
from elastio.core.market import MOST_HELD_S, Advice, Choice, Market
from elastio.core.model import VolumeSpec
from elastio.core.policy import Policy
from elastio.core.speed import Bounds
from elastio.core.state import AgentState
from elastio.core.worth import Terms, hold_per_s, rebuy_price
from elastio.units import MB, format_duration, format_size

# Past bursts from which on they are replayed.
LEAST_BURSTS = 3
# A burst that lasts longer than every known one by this factor is of another kind, and may write as much again.
BEYOND, AGAIN = 1.25, 2.0
# A load is over when it was low for this long. The hold makes sure that a short pause does not release the cache.
QUIET_S = 2.0
# From the beginning of a burst to the sample that shows it.
SEEN_S = 1.0


def in_force(policy: Policy, cycle: Cycle | None) -> Policy:
    """The policy with the bandwidths of the cycle's own cache; the same policy where nothing was chosen."""
    return policy if cycle is None or cycle.choice is None else with_choice(policy, cycle.choice)


def with_choice(policy: Policy, choice: Choice) -> Policy:
    """The policy with the bandwidths of this choice."""
    return replace(policy, cache_bandwidth_mb_s=choice.cache_mb_s, drain_bandwidth_mb_s=choice.drain_mb_s)


def terms_of(market: Market, policy: Policy, late_s: float) -> Terms:
    """The terms of this device in the market."""
    return market.terms(policy.backing_bandwidth_mb_s, policy.cutoff, late_s)


def late_s(attach_s: Sequence[float], policy: Policy) -> float:
    """Seconds from the beginning of a burst to its cache, as boosts of late took; else the policy's lead."""
    return SEEN_S + median(attach_s) if attach_s else policy.lead_s


def bounds_of(market: Market, policy: Policy) -> Bounds:
    """The instance's limit and the configured bandwidth."""
    most = min(market.bounds.most_mb_s, policy.bought_bandwidth_mb_s)
    return Bounds(market.bounds.instance_mb_s, most)


# --- what to buy -----------------------------------------------------------------------------------------


def advised(
    market: Market, policy: Policy, past: Sequence[PastLoad], gaps_s: Sequence[float], late: float
) -> Advice | None:
    """What fewer than LEAST_BURSTS bursts teach, by the formulas; None: none is known."""
    if not past:
        return None
    largest = max(load.written_mb for load in past)
    return Advice(len(past), largest, formula_plan(market, policy, largest, gaps_s, late), len(gaps_s))


def formula_plan(
    market: Market, policy: Policy, written_mb: float, gaps_s: Sequence[float], late: float
) -> Plan | None:
    """The best cache for one burst; None: none is worth its price. A larger one than allowed gets what is allowed."""
    terms = terms_of(market, policy, late)
    fitting_mb = min(written_mb, market.offer.most_bytes / MB * policy.cutoff)
    found = speed.best_choice(terms, market.offer, fitting_mb * MB, bounds_of(market, policy))
    if found is None:
        return None
    hold = holding_s(
        gaps_s, hold_per_s(terms, found.spec), rebuy_price(terms, found.spec, found.app_mb_s, found.held_s)
    )
    return Plan(found.spec, found.app_mb_s, found.drain_mb_s, max(0.0, found.late_s - late), hold, found.cost)


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
    held_s = terms.overhead_s + size_bytes * policy.cutoff / MB / policy.backing_bandwidth_mb_s
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
    if advice.bursts < LEAST_BURSTS:
        return f"best for a burst of {format_size(int(advice.largest_mb * MB))}, the largest of {advice.bursts} known"
    by = f"{advice.gaps} known pauses" if advice.gaps >= LEAST_GAPS else "what buying again costs"
    return f"cheapest for the last {advice.bursts} bursts, the hold by {by}"


# --- whether at all --------------------------------------------------------------------------------------


def why_declined(market: Market, policy: Policy, advice: Advice, late: float) -> str:
    """Why no cache is bought for a load like the last ones, with the bill of the configured one where that says it."""
    bill = bill_refusal(market, policy, advice.largest_mb, late)
    known = f"none of the last {advice.bursts} bursts would have been worth a cache"
    return f"{known}: {bill}" if bill else known


def bill_refusal(market: Market, policy: Policy, written_mb: float, late: float) -> str:
    """Why a boost with the configured bandwidth is not worth its bill for such a burst; empty: it is."""
    terms = terms_of(market, policy, late)
    fitting = min(written_mb, market.offer.most_bytes / MB * policy.cutoff) * MB
    found = speed.choice(terms, market.offer, fitting, policy.bought_bandwidth_mb_s, policy.drain_bandwidth_mb_s, late)
    return "" if found is None else speed.boost_refusal(terms, found, fitting)


def outlasted_mb(state: AgentState, advice: Advice, now: float, policy: Policy) -> float | None:
    """What a burst that outlasts every known one may write, in MB; None: it does not outlast them."""
    since = state.load.above_since
    lasted_s = 0.0 if since is None else now - since
    longest_s = advice.largest_mb / policy.backing_bandwidth_mb_s
    return AGAIN * lasted_s * policy.backing_bandwidth_mb_s if lasted_s > BEYOND * longest_s else None
