"""The strategy as the mechanism sees it: what is seen goes into its memory, and out comes what it wants. Pure."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import median
from typing import NamedTuple

from elastio.core.model import Forecast, Request, RequestKind, VolumeSpec
from elastio.core.phase import FailureKind, Phase, Trigger
from elastio.core.policy import Ahead, Model, Policy
from elastio.strategy import ahead, backing_credits, caps, filling, governor, holding, learning, money, waste
from elastio.strategy.bursts import SATURATED
from elastio.strategy.hindsight import PastLoad
from elastio.strategy.learning import next_size, size_for
from elastio.strategy.load import is_load_high, is_quiet, watch_load
from elastio.strategy.memory import NO_BOOST, Choice, LoadWatch, Memory, Unended
from elastio.strategy.situation import BoostPlan, CycleView, Decline, Release, Reply, Situation, Wish
from elastio.strategy.worth import Advice, Market
from elastio.units import MB, format_duration, format_size

OUTGROWN = "full under a load that goes on: a larger cache is worth what it costs to give up this one"


def review(memory: Memory, at: Situation) -> tuple[Memory, Wish]:
    """The memory with what this situation teaches, and what is wanted. Called once in a decision.

    Before the phase is read from the kernel, only the sample is taken in.
    """
    memory, learned = learning.with_burst(memory, at, at.settings)
    configured = learning.in_force(at.settings, memory)
    policy = money.in_force(configured, at.choice)
    memory = backing_credits.update(_with_load(memory, at, policy), at, policy)
    rate = governor.flush_mb_s(at, policy, backing_credits.flush_limit_mb_s(memory, at, policy))
    forced = governor.forced_mb_s(at, policy)
    if not at.phase_known:
        return memory, Wish(policy, flush_mb_s=rate, forced_mb_s=forced, learned=learned)
    memory, choice, note = holding.noted(filling.noted(ahead.update(memory, at, policy), at, policy), at, policy)
    at = at.with_choice(choice)
    why, again = release(memory, at, policy), _again(memory, at, policy)
    if why is None and filling.is_needless(memory, at, policy, SATURATED):
        memory, why = replace(memory, is_needless=True), Release(filling.NEEDLESS, is_ordered=True)
    boost = wanted(memory, at, configured) if at.may_buy else None
    unended = outgrown(memory, at, configured) if at.phase is Phase.BOOSTING and why is None else None
    why = why if unended is None else Release(OUTGROWN, is_filled=True)
    if isinstance(boost, Decline):
        memory = declined(memory, is_capped=boost.is_capped)
    if at.cycle is not None and at.phase is Phase.ATTACHING:
        memory = _with_attaching(memory, at.cycle, at, policy)
    if why is not None and why.is_filled:
        memory = replace(memory, unended=unended)
    ending = at.cycle if at.phase is Phase.DETACHING else None
    released = None if ending is None else _released(memory, at, ending, policy)
    wish = Wish(policy, why, boost, again, rate, forced, note, learned, released=released, choice=choice)
    return _with_requests(memory, at, wish) if at.requests else (memory, wish)


def _with_load(memory: Memory, at: Situation, policy: Policy) -> Memory:
    """The memory with the sample in the load, and in what is known of the boost."""
    load, boost = memory.load, NO_BOOST if at.cycle is None else memory.boost
    if at.sample is not None:
        load = watch_load(load, at.sample, policy)
        boost = boost if at.cycle is None else waste.with_sample(boost, at.cycle, load, at.sample, policy)
    if not at.has_device:
        load = LoadWatch()  # without a device there are no samples, and the last one is over
    is_same = load is memory.load and boost is memory.boost
    return memory if is_same else replace(memory, load=load, boost=boost)


def release(memory: Memory, at: Situation, policy: Policy) -> Release | None:
    """Why the cache is to be released; None: it is kept, or there is none."""
    cycle = at.cycle
    if cycle is None:
        return None
    if (capped := caps.reached(memory, at, policy)) is not None:
        return Release(caps.sentence(capped), capped)
    if at.phase is Phase.ATTACHING:
        vain = _in_vain(memory, cycle, at, policy)
        return Release(vain) if vain else None
    if at.phase is not Phase.BOOSTING:
        return None
    if full := filling.why_over(memory, cycle, at, policy):
        return Release(full, is_filled=True)
    over = holding.why_over(memory, cycle, at, policy)
    return Release(over, is_ordered=holding.is_hindrance(cycle, at)) if over else None


def _in_vain(memory: Memory, cycle: CycleView, at: Situation, policy: Policy) -> str:
    """Why a boost for a load, or ahead of one, is no longer wanted. An operator's boost does not need a load."""
    if not is_quiet(memory.load, at.now, policy) or memory.boost.is_awaiting(at.now):
        return ""
    if cycle.trigger is Trigger.LOAD and cycle.started_at < (memory.load.below_since or 0):
        return "the load was over before the cache was attached"
    return "the time of the expected burst was over before the cache was attached" if cycle.trigger.is_ahead else ""


def _again(memory: Memory, at: Situation, policy: Policy) -> str:
    """Why a cache that is being flushed is to take writes again; empty: it is not."""
    if at.cycle is None or at.phase is not Phase.FLUSHING:
        return ""
    if at.sample is not None and is_load_high(memory.load, at.now, policy):
        return f"utilization {memory.load.utilization:.0%}"
    return "a burst is expected" if memory.boost.is_awaiting(at.now) else ""


def _with_attaching(memory: Memory, cycle: CycleView, at: Situation, policy: Policy) -> Memory:
    """The memory once the cache of this cycle is attached, or once a shared cap or the cloud has refused it."""
    if at.device is not None and at.device.is_served:
        decided, boosted = cycle.times.decided, cycle.times.boosted
        if decided is not None and boosted is not None:
            memory = replace(memory, attach_s=(*memory.attach_s, boosted - decided)[-ahead.KEPT :])
        percent = cycle.use.cutoff_percent or memory.cutoff_percent
        return replace(learning.with_sale(memory, cycle), cutoff_percent=percent)
    if cycle.failure is not None and cycle.failure.kind is FailureKind.CAPPED:
        return replace(memory, capped_boosts=memory.capped_boosts + 1)
    return memory if cycle.has_volume else learning.with_refusal(memory, cycle, at.wall, policy)


def _released(memory: Memory, at: Situation, cycle: CycleView, policy: Policy) -> Memory:
    """The memory once the volume of this cycle is gone."""
    past = waste.after_cycle(memory, at, cycle, policy)
    return replace(_with_lesson(caps.with_release_time(memory, cycle), cycle, policy), waste=past)


def _with_lesson(memory: Memory, cycle: CycleView, policy: Policy) -> Memory:
    """The memory with the lesson of this cycle, if it is one.

    A boost that was abandoned teaches nothing, even if its cache was attached in the end. Nor does a useless boost: it
    would make the cache too small for the boosts that are useful.
    """
    boost = memory.boost
    teaches = boost.updates_learned_size and cycle.times.boosted is not None and not cycle.failure
    teaches = teaches and cycle.trigger is not Trigger.ORPHAN
    lesson = learning.lesson_of(cycle, boost.moved_bytes, policy) if teaches else None
    if lesson is None or (memory.lessons and not waste.was_useful(boost, cycle, policy)):
        return memory
    learned = learning.with_lesson(memory.lessons, lesson)
    return replace(memory, lessons=learned, learned_size_bytes=learning.learned_bytes(learned, cycle, policy))


# --- when a boost begins, and what it buys ----------------------------------------------------------------


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
    size, choice = min(bought.size_bytes, learning.most_bytes(memory, at.wall, policy)), bought.choice
    refused = caps.refusal(size, memory, at, money.in_force(policy, choice))
    if refused:
        return Decline(f"no boost: {refused}", is_capped=True)
    less = "" if size == bought.size_bytes else f", as a quota left no room for {format_size(bought.size_bytes)}"
    reason = f"{_why(memory, ahead_of, at, policy)}: buying a cache of {format_size(size)}{_described(choice)}{less}"
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
    late, since = money.late_s(memory.attach_s, policy), memory.load.above_since
    lasted_s = math.inf if ahead_of is not None or since is None else at.now - since
    if not _is_likely_to_wait(advice, ahead_of, memory):
        return _in_doubt(advice, market, lasted_s, memory, policy) if ahead_of is None else None
    if advice.plan is not None and (ahead_of is not None or advice.pays_late):
        choice = money.planned(advice.plan, market, money.plan_reason(advice))
        return None if lasted_s < advice.plan.delay_s else _Bought(advice.plan.spec.size_bytes, choice)
    written_mb = None if ahead_of is not None else money.outlasted_mb(memory.load, advice, at.now, policy)
    plan = None if written_mb is None else money.next_plan(market, policy, Unended(written_mb, math.inf), late)
    if plan is not None:
        return _Bought(plan.spec.size_bytes, money.planned(plan, market, "this burst outlasts all known ones"))
    return _Bought(declined=money.why_declined(market, policy, advice, late))


def _is_likely_to_wait(advice: Advice, ahead_of: Forecast | None, memory: Memory) -> bool:
    """Whether this burst is likely to wait for the backing volume: without a wait a cache saves nothing.

    All known bursts did, or somebody announced it; else its own samples have to show it.
    """
    is_announced = ahead_of is not None and ahead_of.is_announced
    waits = ahead_of is None and memory.load.peak >= SATURATED * advice.waits_at
    return waits or is_announced or (advice.pays and advice.all_waited)


def _in_doubt(advice: Advice, market: Market, lasted_s: float, memory: Memory, policy: Policy) -> _Bought | None:
    """A cache for a burst that leaves bandwidth of the backing volume unused, as it is configured: to see what it does.

    Loads may wait although the volume seems to have bandwidth left: it gives less than is configured, or is limited by
    requests. Only a cache shows that.
    """
    if memory.is_needless:
        return _Bought(declined=filling.NEEDLESS)
    late, plan = money.late_s(memory.attach_s, policy), advice.plan
    if plan is None and advice.bursts:
        plan = money.next_plan(market, policy, Unended(advice.largest_mb, math.inf), late)
    if plan is None or max(advice.unwaited_s, lasted_s) < money.doubt_s(market, policy, plan, late):
        unused = "the load leaves bandwidth of the backing volume unused"
        return None if lasted_s < money.QUIET_S else _Bought(declined=unused)
    why = "such loads have left bandwidth of the backing volume unused for long: a cache shows whether they wait for it"
    return _Bought(plan.spec.size_bytes, money.planned(plan, market, why))


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
    is_refused = plan.spec.size_bytes > learning.most_bytes(memory, at.wall, policy)
    return None if is_refused or caps.refusal(plan.spec.size_bytes, memory, at, policy) else load


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
    next_bytes = min(next_size(memory.learned_size_bytes, policy), learning.most_bytes(memory, at.wall, policy))
    size = next_bytes if request.size_bytes is None else request.size_bytes
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


# --- requests --------------------------------------------------------------------------------------------


def _with_requests(memory: Memory, at: Situation, wish: Wish) -> tuple[Memory, Wish]:
    """The memory after the requests that concern the strategy alone, and the wish with the replies.

    Where the volume of a cycle may be gone now, what is answered follows from the memory after it.
    """
    after, replies = _asked(memory, at)
    if wish.released is None:
        return after, replace(wish, replies=replies)
    released, replies = _asked(wish.released, at)
    return after, replace(wish, replies=replies, released=released)


def _asked(memory: Memory, at: Situation) -> tuple[Memory, tuple[Reply, ...]]:
    """The memory after the requests that the mechanism never refuses, and a reply to each request, in their order."""
    replies = []
    is_resumed = False
    for request in at.requests:
        reply = Reply()
        match request.kind:
            case RequestKind.BOOST:
                reply = _boost(request, memory.resumed() if is_resumed else memory, at)
            case RequestKind.EXPECT:
                memory, reply = ahead.asked(memory, request, at, at.settings)
            case RequestKind.LEARN:
                memory, reply = learning.asked(memory, request, at.settings)
            case RequestKind.RESUME:
                is_resumed = True  # if it is refused, the boosts that are asked for after it are refused too
            case _:
                pass  # does not concern the strategy
        replies.append(reply)
    return memory, tuple(replies)


def _boost(request: Request, memory: Memory, at: Situation) -> Reply:
    """What an operator's boost buys, and whether a cap forbids that a cache which is flushed takes writes again."""
    policy = learning.in_force(at.settings, memory)
    ended = "" if at.cycle is None else caps.why_ended(memory, at, money.in_force(policy, at.choice))
    return replace(for_operator(request, memory, at, policy), not_again=ended)
