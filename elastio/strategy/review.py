"""The strategy as the mechanism sees it: what is seen goes into its memory, and out comes what it wants. Pure."""

from __future__ import annotations

from dataclasses import replace

from elastio.core.cycle import Cycle, FailureKind, Trigger
from elastio.core.model import Request, RequestKind
from elastio.core.observation import Observation
from elastio.core.policy import Policy
from elastio.core.state import AgentState, Phase
from elastio.strategy import ahead, backing_credits, buying, caps, filling, holding, learning, money, waste
from elastio.strategy.load import is_load_high, is_quiet, watch_load
from elastio.strategy.memory import NO_BOOST, LoadWatch, Memory
from elastio.strategy.wish import Decline, Release, Reply, Wish

OUTGROWN = "full under a load that goes on: a larger cache is worth what it costs to give up this one"


def review(state: AgentState, obs: Observation, policy: Policy, *, may_buy: bool) -> tuple[Memory, Wish]:
    """The memory with what this observation teaches, and what is wanted. Called once in a decision.

    `may_buy` False: no boost can begin now. Before the phase is read from the kernel, only the sample is taken in.
    """
    settings = policy
    state, learned = learning.with_burst(state, obs, settings)
    configured = learning.in_force(settings, state.memory)
    policy = money.in_force(configured, state.cycle)
    state = backing_credits.update(_with_load(state, obs, policy), obs, policy)
    limit = backing_credits.flush_limit_mb_s(state, obs, policy)
    if not state.recovered:
        return state.memory, Wish(policy, flush_limit_mb_s=limit, learned=learned)
    state, note = holding.noted(filling.noted(ahead.update(state, obs, policy), obs, policy), obs, policy)
    memory, boost = state.memory, buying.wanted(state, obs, configured) if may_buy else None
    if isinstance(boost, Decline):
        memory = buying.declined(state, is_capped=boost.is_capped)
    if state.cycle is not None and state.phase is Phase.ATTACHING:
        memory = _with_attaching(memory, state.cycle, obs)
    why, again = release(state, obs, policy), _again(state, obs, policy)
    outgrown = buying.outgrown(state, obs, configured) if state.phase is Phase.BOOSTING and why is None else None
    why = why if outgrown is None else Release(OUTGROWN, is_filled=True)
    if why is not None and why.is_filled:
        memory = replace(memory, unended=outgrown)
    choice = None if state.cycle is None else state.cycle.choice
    state = state if memory is state.memory else replace(state, memory=memory)
    ending = state.cycle if state.phase is Phase.DETACHING else None
    released = None if ending is None else _released(state, ending, obs.wall, policy)
    wish = Wish(policy, why, boost, again, limit, note, learned, released=released, choice=choice)
    return _with_requests(state, obs, settings, wish) if obs.requests else (state.memory, wish)


def _with_load(state: AgentState, obs: Observation, policy: Policy) -> AgentState:
    """The state with the sample in the load, and in what is known of the boost."""
    load, backing = state.memory.load, obs.host.backing if obs.host else None
    boost = NO_BOOST if state.cycle is None else state.memory.boost
    if obs.sample is not None:
        load = watch_load(load, obs.sample, policy)
        boost = boost if state.cycle is None else waste.with_sample(boost, state.cycle, load, obs.sample, policy)
    if obs.host is not None and (backing is None or not backing.running):
        load = LoadWatch()  # without a device there are no samples, and the last one is over
    if load is state.memory.load and boost is state.memory.boost:
        return state
    return replace(state, memory=replace(state.memory, load=load, boost=boost))


def release(state: AgentState, obs: Observation, policy: Policy) -> Release | None:
    """Why the cache is to be released; None: it is kept, or there is none."""
    cycle = state.cycle
    if cycle is None:
        return None
    if (capped := caps.reached(state, obs, policy)) is not None:
        return Release(caps.sentence(capped), capped)
    if state.phase is Phase.ATTACHING:
        vain = _in_vain(state, cycle, obs, policy)
        return Release(vain) if vain else None
    if state.phase is not Phase.BOOSTING:
        return None
    if full := filling.why_over(state, cycle, obs, policy):
        return Release(full, is_filled=True)
    over = holding.why_over(state, cycle, obs, policy)
    return Release(over, is_ordered=holding.is_hindrance(cycle, obs)) if over else None


def _in_vain(state: AgentState, cycle: Cycle, obs: Observation, policy: Policy) -> str:
    """Why a boost for a load, or ahead of one, is no longer wanted. An operator's boost does not need a load."""
    load = state.memory.load
    if not is_quiet(load, obs.now, policy) or state.memory.boost.is_awaiting(obs.now):
        return ""
    if cycle.trigger is Trigger.LOAD and cycle.started_at < (load.below_since or 0):
        return "the load was over before the cache was attached"
    return "the time of the expected burst was over before the cache was attached" if cycle.trigger.is_ahead else ""


def _again(state: AgentState, obs: Observation, policy: Policy) -> str:
    """Why a cache that is being flushed is to take writes again; empty: it is not."""
    load, cycle = state.memory.load, state.cycle
    if cycle is None or state.phase is not Phase.FLUSHING:
        return ""
    if obs.sample is not None and is_load_high(load, obs.now, policy):
        return f"utilization {load.utilization:.0%}"
    return "a burst is expected" if state.memory.boost.is_awaiting(obs.now) else ""


def _with_attaching(memory: Memory, cycle: Cycle, obs: Observation) -> Memory:
    """The memory once the cache of this cycle is attached, or once a shared cap has forbidden to buy it."""
    backing = obs.host.backing if obs.host else None
    if backing is not None and not backing.is_bypassed and backing.cache_set == cycle.cache_set is not None:
        decided, boosted = cycle.times.decided, cycle.times.boosted
        if decided is not None and boosted is not None:
            memory = replace(memory, attach_s=(*memory.attach_s, boosted - decided)[-ahead.KEPT :])
        return replace(memory, cutoff_percent=cycle.use.cutoff_percent or memory.cutoff_percent)
    if cycle.failure is not None and cycle.failure.kind is FailureKind.CAPPED:
        return replace(memory, capped_boosts=memory.capped_boosts + 1)
    return memory


def _released(state: AgentState, cycle: Cycle, wall: float, policy: Policy) -> Memory:
    """The memory once the volume of this cycle is gone."""
    past = waste.after_cycle(state, cycle, wall, policy)
    return replace(_with_lesson(caps.with_release_time(state.memory, cycle), cycle, policy), waste=past)


def _with_lesson(memory: Memory, cycle: Cycle, policy: Policy) -> Memory:
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


# --- requests --------------------------------------------------------------------------------------------


def _with_requests(state: AgentState, obs: Observation, policy: Policy, wish: Wish) -> tuple[Memory, Wish]:
    """The memory after the requests that concern the strategy alone, and the wish with the replies.

    Where the volume of a cycle may be gone now, what is answered follows from the memory after it.
    """
    after, replies = _asked(state, obs, policy)
    if wish.released is None:
        return after.memory, replace(wish, replies=replies)
    released, replies = _asked(replace(state, memory=wish.released), obs, policy)
    return after.memory, replace(wish, replies=replies, released=released.memory)


def _asked(state: AgentState, obs: Observation, policy: Policy) -> tuple[AgentState, tuple[Reply, ...]]:
    """The state after the requests that the mechanism never refuses, and a reply to each request, in their order."""
    replies = []
    is_resumed = False
    for request in obs.requests:
        reply = Reply()
        match request.kind:
            case RequestKind.BOOST:
                seen = replace(state, memory=state.memory.resumed()) if is_resumed else state
                reply = _boost(request, seen, obs, learning.in_force(policy, state.memory))
            case RequestKind.EXPECT:
                state, reply = ahead.asked(state, request, obs, policy)
            case RequestKind.LEARN:
                state, reply = learning.asked(state, request, policy)
            case RequestKind.RESUME:
                is_resumed = True  # if it is refused, the boosts that are asked for after it are refused too
            case _:
                pass  # does not concern the strategy
        replies.append(reply)
    return state, tuple(replies)


def _boost(request: Request, state: AgentState, obs: Observation, policy: Policy) -> Reply:
    """What an operator's boost buys, and whether a cap forbids that a cache which is flushed takes writes again."""
    ended = "" if state.cycle is None else caps.why_ended(state, obs, money.in_force(policy, state.cycle))
    return replace(buying.for_operator(request, state, obs, policy), not_again=ended)
