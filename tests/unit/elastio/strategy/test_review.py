"""What operators ask of the strategy in one decision: in their order, and beside the end of a cycle."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elastio.core import machine
from elastio.core.machine import decide
from elastio.core.model import Request, RequestKind, VolumeState
from elastio.core.state import AgentState, Decision, Fault, FaultKind, Phase
from elastio.strategy.memory import NO_BOOST, Boost, Capped, Lesson, Memory, Waste
from elastio.strategy.review import review
from elastio.strategy.situation import Decline, Situation, Wish
from elastio.strategy.spending import Period
from elastio.units import GIB
from tests.values import BOOSTED, HIGH, NOW, POLICY, RELEASED, WALL, backing, cycle, host, present, seen, state, volume

BOOST, RESUME = Request(RequestKind.BOOST), Request(RequestKind.RESUME)
LEARN = Request(RequestKind.LEARN, 3 * GIB)
CAPS = replace(POLICY.caps, max_agbs_per_day=1e9)
CAPPED = Capped("caps.max_agbs_per_day", 1e9, Period(WALL - 60, WALL + 60))
# Its cache was hardly used, and its volume is gone now.
ENDED = state(
    Phase.DETACHING,
    cycle(times=RELEASED, volume=volume(VolumeState.GONE), peak_in_use_percent=10),
    boost=Boost(moved_bytes=2 * GIB, gained_bytes=9 * GIB, bare=0.5, longest_s=9.0),
)


def asked(of: AgentState, *requests: Request) -> Decision:
    return decide(of, seen(host(backing()), requests=requests), replace(POLICY, caps=CAPS))


def bought_bytes(decision: Decision) -> int:
    return present(decision.state.cycle).spec.size_bytes


def test_a_boost_gets_the_size_that_was_set_before_it_and_none_that_is_set_after_it() -> None:
    assert bought_bytes(asked(state(Phase.IDLE), LEARN, BOOST)) == 3 * GIB
    after = asked(state(Phase.IDLE), BOOST, LEARN)
    assert (bought_bytes(after), after.state.memory.learned_size_bytes) == (POLICY.initial_size_bytes, 3 * GIB)


def test_a_cap_that_ended_a_boost_forbids_the_next_one_until_an_operator_has_resumed() -> None:
    capped = state(Phase.IDLE, capped=CAPPED)
    refused = asked(capped, BOOST, RESUME)
    assert [answer.code for answer in refused.answers] == ["caps", ""]
    assert (refused.state.phase, refused.state.memory.capped) == (Phase.IDLE, None)
    assert asked(capped, RESUME, BOOST).state.phase is Phase.ATTACHING


def test_a_resume_that_is_refused_forgets_nothing() -> None:
    of = state(Phase.FAULTED, cycle(times=BOOSTED), fault=Fault(FaultKind.CACHE_MISSING, "gone"))
    of = replace(of, memory=replace(of.memory, capped=CAPPED, waste=Waste(wasted=3)))
    refused = asked(of, RESUME, BOOST)
    assert [answer.accepted for answer in refused.answers] == [False, False]
    assert (refused.state.memory.capped, refused.state.memory.waste.wasted) == (CAPPED, 3)


def test_a_boost_that_is_asked_for_as_a_volume_goes_gets_the_size_that_was_just_learned() -> None:
    learned = present(asked(ENDED).state.memory.learned_size_bytes)
    begun = asked(ENDED, BOOST)
    assert learned != POLICY.initial_size_bytes
    assert (bought_bytes(begun), begun.state.memory.boost) == (learned, NO_BOOST)
    assert begun.state.cool_until > NOW


def test_a_size_that_is_set_as_a_volume_goes_outweighs_what_its_boost_taught() -> None:
    of = replace(ENDED, memory=replace(ENDED.memory, lessons=(Lesson(GIB, GIB),)))
    memory = asked(of, LEARN).state.memory
    assert (memory.learned_size_bytes, memory.lessons) == (3 * GIB, ())


def only_by_night(memory: Memory, at: Situation) -> tuple[Memory, Wish]:
    """One more rule for what is bought: nothing from 8 to 20 o'clock, UTC."""
    memory, wish = review(memory, at)
    is_day = 8 <= at.wall % 86_400 / 3600 < 20
    return memory, replace(wish, boost=Decline("no boost by day")) if wish.boost and is_day else wish


@pytest.mark.parametrize(("hour", "phase", "reason"), [(3, Phase.ATTACHING, "buying"), (12, Phase.IDLE, "by day")])
def test_another_rule_for_what_is_bought_is_one_function_of_memory_and_situation(
    hour: int, phase: Phase, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "review", only_by_night)
    obs = replace(seen(host(backing())), wall=WALL - WALL % 86_400 + hour * 3600)
    decision = decide(state(Phase.IDLE, load=HIGH), obs, POLICY)
    assert decision.state.phase is phase
    assert reason in decision.reason
