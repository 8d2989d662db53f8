"""The strategy as the mechanism sees it: what is seen goes into its memory, and out comes what it wants. Pure."""

from __future__ import annotations

from dataclasses import replace

from elastio.core.model import Request, RequestKind
from elastio.core.phase import FailureKind, Phase, Trigger
from elastio.core.policy import Policy
from elastio.strategy import ahead, backing_credits, buying, caps, filling, governor, holding, learning, money, waste
from elastio.strategy.load import is_load_high, is_quiet, watch_load
from elastio.strategy.memory import NO_BOOST, LoadWatch, Memory
from elastio.strategy.situation import CycleView, Decline, Release, Reply, Situation, Wish

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
    boost = buying.wanted(memory, at, configured) if at.may_buy else None
    outgrown = buying.outgrown(memory, at, configured) if at.phase is Phase.BOOSTING and why is None else None
    why = why if outgrown is None else Release(OUTGROWN, is_filled=True)
    if isinstance(boost, Decline):
        memory = buying.declined(memory, is_capped=boost.is_capped)
    if at.cycle is not None and at.phase is Phase.ATTACHING:
        memory = _with_attaching(memory, at.cycle, at)
    if why is not None and why.is_filled:
        memory = replace(memory, unended=outgrown)
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


def _with_attaching(memory: Memory, cycle: CycleView, at: Situation) -> Memory:
    """The memory once the cache of this cycle is attached, or once a shared cap has forbidden to buy it."""
    if at.device is not None and at.device.is_served:
        decided, boosted = cycle.times.decided, cycle.times.boosted
        if decided is not None and boosted is not None:
            memory = replace(memory, attach_s=(*memory.attach_s, boosted - decided)[-ahead.KEPT :])
        return replace(memory, cutoff_percent=cycle.use.cutoff_percent or memory.cutoff_percent)
    if cycle.failure is not None and cycle.failure.kind is FailureKind.CAPPED:
        return replace(memory, capped_boosts=memory.capped_boosts + 1)
    return memory


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
    return replace(buying.for_operator(request, memory, at, policy), not_again=ended)
