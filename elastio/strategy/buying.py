"""When a boost begins, and what it buys. Pure."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import median
from typing import NamedTuple

from elastio.core.model import Forecast, Request, VolumeSpec
from elastio.core.phase import Trigger
from elastio.core.policy import Ahead, Model, Policy
from elastio.strategy import ahead, caps, filling, money, waste
from elastio.strategy.hindsight import PastLoad
from elastio.strategy.learning import next_size, size_for
from elastio.strategy.load import is_load_high
from elastio.strategy.memory import Choice, Memory, Unended
from elastio.strategy.situation import BoostPlan, Decline, Reply, Situation
from elastio.strategy.worth import Advice, Market
from elastio.units import MB, format_duration, format_size


def wanted(memory: Memory, at: Situation, policy: Policy) -> BoostPlan | Decline | None:
    """What a load or an expected burst asks to buy, or why it is not bought; None: nothing asks for a boost."""
    trigger, ahead_of = _trigger(memory, at, policy)
    has_outgrown = memory.unended is not None and policy.model is Model.MONEY
    if trigger is Trigger.LOAD and memory.has_filled and not has_outgrown:
        return None  # the same load would fill the next cache as well
    if trigger is None or memory.waste.stopped or _is_like_useless(trigger, memory, at, policy):
        return None
    bought = _what(ahead_of, memory, at, policy)
    if bought is None:
        return None
    if bought.declined:
        text = f"no boost: {bought.declined}"
        return None if memory.declined_for == _beginning(memory) else Decline(text)
    size, choice = bought.size_bytes, bought.choice
    refused = caps.refusal(size, memory, at, money.in_force(policy, choice))
    if refused:
        return Decline(f"no boost: {refused}", is_capped=True)
    reason = f"{_why(memory, ahead_of, at, policy)}: buying a cache of {format_size(size)}{_described(choice)}"
    crossed_at = memory.load.crossed_at if trigger is Trigger.LOAD else None
    least_s = caps.least_s(memory, policy)
    until = None if ahead_of is None else ahead.chance_until(ahead_of, policy)
    known = waste.shown_by(memory.load, trigger, at.now, until)
    return BoostPlan(trigger, _spec(size, choice, policy), least_s, choice, crossed_at, reason=reason, known=known)


def _spec(size_bytes: int, choice: Choice | None, policy: Policy) -> VolumeSpec:
    """With the chosen bandwidths, else the configured."""
    mb_s = policy.bought_bandwidth_mb_s if choice is None else choice.cache_mb_s + choice.drain_mb_s
    return VolumeSpec(size_bytes, mb_s, policy.cache_iops)


class _Bought(NamedTuple):
    """What a boost would buy; `declined`: why it is not worth it, or empty."""

    size_bytes: int = 0
    choice: Choice | None = None
    declined: str = ""


def _what(ahead_of: Forecast | None, memory: Memory, at: Situation, policy: Policy) -> _Bought | None:
    """What to buy, or why not to; None: not yet."""
    size = next_size(memory.learned_size_bytes, policy) if ahead_of is None else size_for(ahead_of, memory, policy)
    if policy.model is not Model.MONEY:
        return _Bought(size)
    market, policy = policy.market, money.measured(policy, memory)
    if market is None:
        return None  # prices that are not known are not guessed
    if ahead_of is None and memory.has_filled and memory.unended is not None:
        plan = money.next_plan(market, policy, memory.unended, money.late_s(memory.attach_s, policy))
        if plan is None:
            return _Bought(declined="the load has filled its cache, and no larger one would be worth its price")
        why = "the load has filled a smaller one and goes on"
        return _Bought(plan.spec.size_bytes, money.planned(plan, market, why))
    is_advised = at.advice is not None and at.advice.bursts > 0
    if ahead_of is not None and ahead_of.written_bytes > 0 and (ahead_of.is_announced or not is_advised):
        written_mb = ahead_of.written_bytes / MB
        plan = money.formula_plan(market, policy, written_mb, 0.0)
        how = "announced" if ahead_of.is_announced else "expected"
        reason = f"best for the {how} {format_size(ahead_of.written_bytes)}"
        if plan is not None:
            return _Bought(plan.spec.size_bytes, money.planned(plan, market, reason))
        refused = money.bill_refusal(market, policy, written_mb, 0.0)
        return _Bought(declined=refused or f"no cache would be worth its price for the {how} burst")
    if at.advice is None:
        late = money.late_s(memory.attach_s, policy)
        return _Bought(size, money.configured(market, policy, size, late, "as configured: no burst is known yet"))
    return _as_advised(at.advice, market, ahead_of, memory, at, policy)


def _as_advised(
    advice: Advice, market: Market, ahead_of: Forecast | None, memory: Memory, at: Situation, policy: Policy
) -> _Bought | None:
    """What the past bursts teach to buy, or that none of them was worth a cache."""
    late = money.late_s(memory.attach_s, policy)
    if advice.plan is not None and (ahead_of is not None or advice.pays_late):
        since = memory.load.above_since
        is_early = ahead_of is None and since is not None and at.now - since < advice.plan.delay_s
        choice = money.planned(advice.plan, market, money.plan_reason(advice))
        return None if is_early else _Bought(advice.plan.spec.size_bytes, choice)
    written_mb = None if ahead_of is not None else money.outlasted_mb(memory.load, advice, at.now, policy)
    plan = None if written_mb is None else money.next_plan(market, policy, Unended(written_mb, math.inf), late)
    if plan is not None:
        return _Bought(plan.spec.size_bytes, money.planned(plan, market, "this burst outlasts all known ones"))
    return _Bought(declined=money.why_declined(market, policy, advice, late))


def outgrown(memory: Memory, at: Situation, policy: Policy) -> Unended | None:
    """The load, if a larger cache is worth what it costs to give up the full one; else None: see `filling`.

    `policy` as it is configured: the larger one may be faster.
    """
    cycle, market, load = at.cycle, policy.market, filling.unended(memory, at, policy)
    if cycle is None or market is None or load is None or not _may_follow(memory, at, policy):
        return None
    dirty_mb, slow_mb_s = cycle.dirty_bytes / MB, policy.backing_bandwidth_mb_s
    leaving = (market.waiting_per_s + market.tariff.per_hour(cycle.provisioned) / 3600) * dirty_mb / slow_mb_s
    # Until another one may be bought the rest is written slowly: during the flush, the release and the cool-down.
    released_s = median(memory.release_s) if memory.release_s else 0.0
    waited_mb = slow_mb_s * (released_s + policy.cool_down_s)
    rest = PastLoad(load.written_mb - 2 * dirty_mb - waited_mb, load.rate_mb_s, math.inf)
    if market.waiting_per_s * rest.written_mb * (1 / slow_mb_s - 1 / rest.rate_mb_s) <= leaving:
        return None  # no cache can save so much
    policy, late = money.measured(policy, memory), money.late_s(memory.attach_s, policy)
    plan = money.next_plan(market, policy, load, late)
    if plan is None or money.gain(market, policy, plan, rest, late) <= leaving:
        return None
    return None if caps.refusal(plan.spec.size_bytes, memory, at, policy) else load


def _may_follow(memory: Memory, at: Situation, policy: Policy) -> bool:
    """Whether another cache could be bought for this load: else the one that is there would be given up for nothing."""
    may = at.may_follow and not memory.waste.stopped
    return may and not _is_like_useless(Trigger.LOAD, memory, at, policy)


def _beginning(memory: Memory) -> float | None:
    """When the load began, or the awaited burst is expected: by this a declined boost is known again."""
    burst, since = memory.awaited, memory.load.above_since
    return since if since is not None or burst is None else burst.begins_at


def declined(memory: Memory, *, is_capped: bool) -> Memory:
    """The memory after a boost that is not bought: a cap is asked again soon; a load that is not worth it, no more."""
    if is_capped:
        return replace(memory, capped_boosts=memory.capped_boosts + 1)
    return replace(memory, declined_for=_beginning(memory), declined_boosts=memory.declined_boosts + 1)


def for_operator(request: Request, memory: Memory, at: Situation, policy: Policy) -> Reply:
    """What an operator's boost buys, without a size: that of the next boost; or the cap that forbids it."""
    size = next_size(memory.learned_size_bytes, policy) if request.size_bytes is None else request.size_bytes
    if refused := caps.refusal(size, memory, at, policy):
        return Reply(refused, "caps")
    text, market, choice = f"buying a cache of {format_size(size)}", policy.market, None
    warning, least_s = "", caps.least_s(memory, policy)
    if policy.model is Model.MONEY and market is not None:
        policy, late, known = money.measured(policy, memory), money.late_s(memory.attach_s, policy), at.advice
        choice = money.configured(market, policy, size, late, "as configured: an operator asked")
        if known is not None and known.bursts:
            warning = money.bill_refusal(market, policy, known.largest_mb, late)
    spec = _spec(size, choice, policy)
    plan = BoostPlan(Trigger.OPERATOR, spec, least_s, choice=choice, asked_by=request.asked_by, reason=text)
    return Reply(f"{text}, although {warning}" if warning else text, plan=plan)


def _described(choice: Choice | None) -> str:
    return "" if choice is None else f" at {round(choice.cache_mb_s, 1):g} MB/s ({choice.reason})"


def _is_like_useless(trigger: Trigger, memory: Memory, at: Situation, policy: Policy) -> bool:
    """Recent boosts for such loads gained nothing. Announced bursts, and those that past ones advise, are exempt."""
    if policy.model is Model.MONEY and at.advice is not None and at.advice.pays:
        return False
    if trigger is Trigger.LOAD:
        return waste.must_wait(memory.waste, memory.load, at.now, at.wall)
    is_learned = trigger is Trigger.FORECAST and policy.ahead is Ahead.LEARNED
    return is_learned and waste.must_wait_ahead(memory.waste, at.wall)


def _trigger(memory: Memory, at: Situation, policy: Policy) -> tuple[Trigger | None, Forecast | None]:
    """What asks for a boost now, and the burst that it would be ahead of. The only place that decides when to boost.

    An expected burst that is late no longer counts: from then on only the load does.
    """
    if is_load_high(memory.load, at.now, policy):
        return Trigger.LOAD, None
    burst = ahead.to_buy_for(memory)
    if burst is None or burst.begins_at <= at.now:
        return None, None
    return (Trigger.ANNOUNCED if burst.is_announced else Trigger.FORECAST), burst


def _why(memory: Memory, ahead_of: Forecast | None, at: Situation, policy: Policy) -> str:
    if ahead_of is None:
        return f"utilization {memory.load.utilization:.0%} is at or above {policy.utilization_threshold:.0%}"
    of = f" of {format_size(ahead_of.written_bytes)}" if ahead_of.written_bytes else ""
    wait = format_duration(ahead_of.begins_at - at.now)
    return f"a burst{of} is expected in {wait} ({ahead_of.confidence:.0%} sure)"
