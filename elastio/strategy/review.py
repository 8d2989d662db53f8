"""The strategy as the mechanism sees it: what is seen goes into its memory, and out comes what it wants. Pure."""

from __future__ import annotations

from dataclasses import replace

from elastio.core.cycle import Cycle, Trigger
from elastio.core.observation import Observation
from elastio.core.policy import Policy
from elastio.core.state import AgentState, Phase
from elastio.strategy import ahead, caps, filling, holding, learning, waste
from elastio.strategy.memory import Memory
from elastio.strategy.wish import Release, Wish


def review(state: AgentState, obs: Observation, policy: Policy) -> tuple[AgentState, Wish]:
    """The state with what this observation teaches, and what becomes of its cache. Called once in a decision."""
    state, note = holding.noted(filling.noted(ahead.update(state, obs, policy), obs, policy), obs, policy)
    return state, Wish(release(state, obs, policy), note)


def release(state: AgentState, obs: Observation, policy: Policy) -> Release | None:
    """Why the cache is to be released; None: it is kept, or there is none."""
    cycle = state.cycle
    if cycle is None:
        return None
    if (capped := caps.reached(state, obs, policy)) is not None:
        return Release(caps.sentence(capped), capped)
    if state.phase is not Phase.BOOSTING:
        return None
    if full := filling.why_over(state, cycle, obs, policy):
        return Release(full, is_filled=True)
    over = holding.why_over(state, cycle, obs, policy)
    return Release(over, is_ordered=holding.is_hindrance(cycle, obs)) if over else None


def attached(memory: Memory, cycle: Cycle) -> Memory:
    """The memory once the cache of this cycle is attached."""
    decided, boosted = cycle.times.decided, cycle.times.boosted
    if decided is not None and boosted is not None:
        memory = ahead.with_attach_time(memory, boosted - decided)
    return learning.with_cutoff(memory, cycle)


def released(state: AgentState, cycle: Cycle, wall: float, policy: Policy) -> Memory:
    """The memory once the volume of this cycle is gone."""
    past = waste.after_cycle(state, cycle, wall, policy)
    return replace(_with_lesson(caps.with_release_time(state.memory, cycle), cycle, policy), waste=past)


def _with_lesson(memory: Memory, cycle: Cycle, policy: Policy) -> Memory:
    """The memory with the lesson of this cycle, if it is one.

    A boost that was abandoned teaches nothing, even if its cache was attached in the end. Nor does a useless boost: it
    would make the cache too small for the boosts that are useful.
    """
    updates_learned_size = cycle.updates_learned_size and cycle.times.boosted is not None and not cycle.failure
    lesson = learning.lesson_of(cycle, policy) if updates_learned_size and cycle.trigger is not Trigger.ORPHAN else None
    if lesson is None or (memory.lessons and not waste.was_useful(cycle, policy)):
        return memory
    learned = learning.with_lesson(memory.lessons, lesson)
    return replace(memory, lessons=learned, learned_size_bytes=learning.learned_bytes(learned, cycle, policy))
