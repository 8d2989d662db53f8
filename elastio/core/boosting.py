"""When a boost begins, what forbids it, and what it buys. Pure."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import NamedTuple

from elastio.core.cycle import Backoff, Cycle, Timestamps, Trigger
from elastio.core.detection import BoostPlan, Detection, Event
from elastio.core.model import CacheState, Forecast, VolumeSpec
from elastio.core.observation import Observation
from elastio.core.policy import Ahead, Model, Policy, chance_until, is_load_high, next_size
from elastio.core.state import AgentState
from elastio.strategy import ahead, caps, money, waste
from elastio.strategy.market import Advice, Choice, Market
from elastio.units import MB, format_duration, format_size


def wanted(state: AgentState, obs: Observation, policy: Policy) -> Detection | None:
    """In phase IDLE: BOOST_WANTED if a load or an expected burst asks for a boost, BOOST_CAPPED if a cap forbids it."""
    trigger, ahead_of = _trigger(state, obs, policy)
    if trigger is Trigger.LOAD and state.memory.has_filled:
        return None  # the same load would fill the next cache as well
    if trigger is None or state.paused or obs.now < state.cool_until or obstacle(state, obs, policy):
        return None
    if state.memory.waste.stopped or _is_like_useless(trigger, state, obs, policy):
        return None
    bought = _what(ahead_of, state, obs, policy)
    if bought is None:
        return None
    if bought.declined:
        text = f"no boost: {bought.declined}"
        return None if state.memory.declined_for == beginning(state, obs) else Detection(Event.BOOST_DECLINED, text)
    size, choice = bought.size_bytes, bought.choice
    refused = caps.refusal(size, state, obs, policy if choice is None else money.with_choice(policy, choice))
    if refused:
        return Detection(Event.BOOST_CAPPED, f"no boost: {refused}")
    reason = f"{_why(state, ahead_of, obs, policy)}: buying a cache of {format_size(size)}{_described(choice)}"
    return Detection(Event.BOOST_WANTED, reason, plan=BoostPlan(trigger, size, ahead_of, choice))


class _Bought(NamedTuple):
    """What a boost would buy; `declined`: why it is not worth it, or empty."""

    size_bytes: int = 0
    choice: Choice | None = None
    declined: str = ""


def _what(ahead_of: Forecast | None, state: AgentState, obs: Observation, policy: Policy) -> _Bought | None:
    """What to buy, or why not to; None: not yet."""
    memory = state.memory
    size = (
        next_size(memory.learned_size_bytes, policy) if ahead_of is None else ahead.size_for(ahead_of, memory, policy)
    )
    if policy.model is not Model.MONEY:
        return _Bought(size)
    market, policy = policy.market, money.measured(policy, memory)
    if market is None:
        return None  # prices that are not known are not guessed
    is_advised = obs.advice is not None and obs.advice.bursts > 0
    if ahead_of is not None and ahead_of.written_bytes > 0 and (ahead_of.is_announced or not is_advised):
        written_mb = ahead_of.written_bytes / MB
        plan = money.formula_plan(market, policy, written_mb, 0.0)
        how = "announced" if ahead_of.is_announced else "expected"
        reason = f"best for the {how} {format_size(ahead_of.written_bytes)}"
        if plan is not None:
            return _Bought(plan.spec.size_bytes, money.planned(plan, market, reason))
        refused = money.bill_refusal(market, policy, written_mb, 0.0)
        return _Bought(declined=refused or f"no cache would be worth its price for the {how} burst")
    if obs.advice is None:
        late = money.late_s(memory.attach_s, policy)
        return _Bought(size, money.configured(market, policy, size, late, "as configured: no burst is known yet"))
    return _as_advised(obs.advice, market, ahead_of, state, obs, policy)


def _as_advised(
    advice: Advice, market: Market, ahead_of: Forecast | None, state: AgentState, obs: Observation, policy: Policy
) -> _Bought | None:
    """What the past bursts teach to buy, or that none of them was worth a cache."""
    late = money.late_s(state.memory.attach_s, policy)
    if advice.plan is not None:
        since = state.load.above_since
        is_early = ahead_of is None and since is not None and obs.now - since < advice.plan.delay_s
        choice = money.planned(advice.plan, market, money.plan_reason(advice))
        return None if is_early else _Bought(advice.plan.spec.size_bytes, choice)
    written_mb = None if ahead_of is not None else money.outlasted_mb(state, advice, obs.now, policy)
    plan = None if written_mb is None else money.formula_plan(market, policy, written_mb, late)
    if plan is not None:
        return _Bought(plan.spec.size_bytes, money.planned(plan, market, "this burst outlasts all known ones"))
    return _Bought(declined=money.why_declined(market, policy, advice, late))


def beginning(state: AgentState, obs: Observation) -> float | None:
    """When the load began, or the awaited burst is expected: by this a declined boost is known again."""
    burst = state.memory.awaited
    return state.load.above_since if state.load.above_since is not None or burst is None else burst.begins_at


def for_operator(size_bytes: int, state: AgentState, obs: Observation, policy: Policy) -> tuple[BoostPlan, str]:
    """What an operator's boost buys, and a sentence if it is not worth its price; empty: it is, or nobody knows."""
    market = policy.market
    if policy.model is not Model.MONEY or market is None:
        return BoostPlan(Trigger.OPERATOR, size_bytes), ""
    policy, late = money.measured(policy, state.memory), money.late_s(state.memory.attach_s, policy)
    choice = money.configured(market, policy, size_bytes, late, "as configured: an operator asked")
    known = obs.advice
    warning = "" if known is None or not known.bursts else money.bill_refusal(market, policy, known.largest_mb, late)
    return BoostPlan(Trigger.OPERATOR, size_bytes, choice=choice), warning


def _described(choice: Choice | None) -> str:
    return "" if choice is None else f" at {round(choice.cache_mb_s, 1):g} MB/s ({choice.reason})"


def _is_like_useless(trigger: Trigger, state: AgentState, obs: Observation, policy: Policy) -> bool:
    """Boosts for such loads gained nothing of late. Who announces a burst, or replayed the last ones, knows better."""
    if policy.model is Model.MONEY and obs.advice is not None and obs.advice.bursts > 0:
        return False
    if trigger is Trigger.LOAD:
        return waste.must_wait(state.memory.waste, state.load, obs.now, obs.wall)
    is_learned = trigger is Trigger.FORECAST and policy.ahead is Ahead.LEARNED
    return is_learned and waste.must_wait_ahead(state.memory.waste, obs.wall)


def _trigger(state: AgentState, obs: Observation, policy: Policy) -> tuple[Trigger | None, Forecast | None]:
    """What asks for a boost now, and the burst that it would be ahead of. The only place that decides when to boost.

    An expected burst that is late no longer counts: from then on only the load does.
    """
    if is_load_high(state.load, obs.now, policy):
        return Trigger.LOAD, None
    burst = ahead.to_buy_for(state.memory)
    if burst is None or burst.begins_at <= obs.now:
        return None, None
    return (Trigger.ANNOUNCED if burst.is_announced else Trigger.FORECAST), burst


def obstacle(state: AgentState, obs: Observation, policy: Policy) -> str:
    """Why no boost can begin now, whoever asks for it; empty if one can."""
    if policy.buys_nothing:
        return policy.buys_nothing
    backing = obs.host.backing if obs.host else None
    if backing is None or obs.host is None or not backing.running:
        return "the adaptive device is not running"
    if obs.host.unsupported:
        return obs.host.unsupported
    has_no_cache = backing.state in (CacheState.NO_CACHE, CacheState.INCONSISTENT) or backing.lost_clean_cache
    if backing.cache_set is not None or not has_no_cache:
        return "the backing device has a cache already"
    if state.inhibition is not None:
        return f"no boost may begin now ({state.inhibition.reason})"
    if state.owned is None:
        return "the cloud has not listed this agent's volumes yet"
    return ""


def _why(state: AgentState, ahead_of: Forecast | None, obs: Observation, policy: Policy) -> str:
    if ahead_of is None:
        return f"utilization {state.load.utilization:.0%} is at or above {policy.utilization_threshold:.0%}"
    of = f" of {format_size(ahead_of.written_bytes)}" if ahead_of.written_bytes else ""
    wait = format_duration(ahead_of.begins_at - obs.now)
    return f"a burst{of} is expected in {wait} ({ahead_of.confidence:.0%} sure)"


def new_cycle(plan: BoostPlan, state: AgentState, obs: Observation, policy: Policy) -> Cycle:
    """The cycle of this boost, as it begins with the decision."""
    backing = obs.host.backing if obs.host else None
    start = obs.now + obs.jitter * policy.start_jitter_s
    cycle = Cycle(
        token=_token(state, obs, policy),
        backing_serial=backing.disk_serial if backing else None,
        trigger=plan.trigger,
        spec=VolumeSpec(plan.size_bytes, _bandwidth(plan, policy), policy.cache_iops),
        choice=plan.choice,
        asked_by=plan.asked_by,
        started_at=obs.now,
        started_wall=obs.wall,
        times=Timestamps(crossed=state.load.crossed_at if plan.trigger is Trigger.LOAD else None, decided=obs.now),
        backoffs={"CreateVolume": Backoff(0, start)},
    )
    if plan.trigger is Trigger.OPERATOR:
        return cycle
    chance = None if plan.forecast is None else chance_until(plan.forecast, policy)
    return replace(waste.with_load(cycle, state.load, obs.now), chance_until=chance)


def _bandwidth(plan: BoostPlan, policy: Policy) -> float:
    """MB/s to buy: the chosen ones, else the configured."""
    chosen = plan.choice
    return policy.bought_bandwidth_mb_s if chosen is None else chosen.cache_mb_s + chosen.drain_mb_s


def _token(state: AgentState, obs: Observation, policy: Policy) -> str:
    """A token for a purchase that no other machine uses.

    Machines from one image have the same backing UUID, and under a parallel application all decide in the same
    millisecond. The machine's identity makes the token unique; where it is unknown, the random part does.
    """
    whose = hashlib.sha256(f"{state.machine} {policy.backing_uuid}".encode()).hexdigest()[:12]
    return f"elastio-{whose}-{int(obs.wall * 1000):x}-{int(obs.jitter * 2**32):08x}"
