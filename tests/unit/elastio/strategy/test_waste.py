"""Boosts that gained nothing get rarer by themselves; those that gain something do not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from elastio.core.boosting import cycle_view, situation_of
from elastio.core.cycle import CacheUse, Failure, FailureKind, Timestamps, Trigger
from elastio.core.machine import decide
from elastio.core.model import Rates, Request, RequestKind, Sample, VolumeState
from elastio.core.policy import Ahead, Policy
from elastio.core.state import AgentState, Inhibition, InhibitionReason, Listed, Phase
from elastio.strategy import waste
from elastio.strategy.load import watch_load
from elastio.strategy.memory import Boost, Lesson, LoadWatch, UselessBoost, Waste
from elastio.units import GIB, MB
from tests.values import NOW, POLICY, WALL, backing, changed, cycle, host, present, seen, state, volume

SECOND = POLICY.backing_bandwidth_mb_s * MB
BLIP = UselessBoost(0.4, 2.0, WALL - 60)
HOUR = 3600.0


def load(peak: float, seconds: float) -> LoadWatch:
    """A load that has lasted so long, in samples of a second."""
    return LoadWatch(NOW - seconds, None, peak, NOW - seconds + 1, peak)


def waits(remembered: Waste, peak: float, seconds: float, wall: float = WALL) -> bool:
    return waste.must_wait(remembered, load(peak, seconds), NOW, wall)


def many(count: int, look: UselessBoost = BLIP) -> Waste:
    return Waste((look,) * count)


# --- which loads wait ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("peak", "seconds"), [(1.0, 1), (0.51, 1), (0.4, 4)])
def test_a_load_that_goes_beyond_the_useless_ones_does_not_wait(peak: float, seconds: float) -> None:
    assert waits(many(9), 0.4, 3)
    assert not waits(many(9), peak, seconds)


def test_each_useless_load_is_its_own_measure() -> None:
    # Neither a short one that saturates nor a long weak one makes one that is strong and long look useless.
    both = Waste((UselessBoost(1.0, 2.0, WALL - 60),) * 5 + (UselessBoost(0.4, 600.0, WALL - 60),) * 5)
    assert waits(both, 1.0, 2)
    assert waits(both, 0.4, 500)
    assert not waits(both, 1.0, 4)


def test_pauses_double_up_to_some_hours() -> None:
    pauses = [waste.pause_s(useless) for useless in range(waste.FREE - 1, waste.FREE + 9)]
    assert pauses == [0, 300, 600, 1200, 2400, 4800, 9600, 4 * HOUR, 4 * HOUR, 4 * HOUR]
    assert waits(many(waste.FREE), 0.4, 1, WALL - 60 + 299)
    assert not waits(many(waste.FREE), 0.4, 1, WALL - 60 + 300)


@pytest.mark.parametrize("wall", [WALL + 24 * HOUR, WALL - HOUR])
def test_no_load_waits_for_longer_than_a_day_or_because_a_clock_was_set_back(wall: float) -> None:
    assert not waits(many(9), 0.4, 1, wall)


# --- what a boost gained ---------------------------------------------------------------------------------------


def watched(*rates: float, boosted: float | None = None) -> Boost:
    """A boost that saw a sample of each of these rates, one a second from 1 s on."""
    of, boost, seen_load = cycle(times=Timestamps(decided=0.0, boosted=boosted)), Boost(), LoadWatch()
    for second, rate in enumerate(rates, start=1):
        sample = Sample(float(second), 1.0, Rates(write_mb_s=rate))
        seen_load = watch_load(seen_load, sample, POLICY)
        boost = waste.with_sample(boost, cycle_view(of), seen_load, sample, POLICY)
    return boost


def test_what_was_moved_beyond_the_rate_without_the_cache_was_gained() -> None:
    of, boost = cycle(times=Timestamps(decided=0.0, boosted=2.5)), watched(8, 10)
    assert boost.bare == 0.5
    for second in (3, 4):  # the first of them began before the cache was there
        boost = waste.with_sample(boost, cycle_view(of), LoadWatch(), Sample(float(second), 1.0, Rates(5, 10)), POLICY)
    assert (boost.moved_bytes, boost.gained_bytes) == (15 * MB, 5 * MB)


@pytest.mark.parametrize(
    ("bare", "use", "gained"),
    [(0.5, 0.6, 0.0), (0.5, 0.65, 0.15), (0.5, 2.0, 1.5), (0.9, 1.0, 0.0), (0.9, 1.05, 0.15), (1.0, 1.05, 0.05)],
)
def test_samples_of_one_load_differ_and_that_is_no_gain(bare: float, use: float, gained: float) -> None:
    of, boost = cycle_view(cycle(times=Timestamps(decided=0.0, boosted=0.5))), Boost(bare=bare)
    sample = Sample(2.0, 1.0, Rates(write_mb_s=use * POLICY.backing_bandwidth_mb_s))
    found = waste.with_sample(boost, of, LoadWatch(), sample, POLICY)
    assert found.gained_bytes == pytest.approx(gained * SECOND, abs=1)


def test_a_sample_that_met_the_cache_unseen_does_not_raise_what_the_device_carries_without() -> None:
    assert watched(80).bare == 1.0


def test_the_longest_stretch_of_load_counts_and_not_their_sum() -> None:
    assert watched(8, 8, 8, 0, 8, 8).longest_s == 3


def test_what_is_known_of_a_boost_ends_with_its_cycle() -> None:
    over_now = changed(state(Phase.IDLE), moved_bytes=MB, chance_until=NOW + 9, updates_learned_size=False)
    assert decide(over_now, seen(host(backing())), POLICY).state.memory.boost == Boost()
    running = changed(served(), moved_bytes=MB)
    assert decide(running, seen(host(backing())), POLICY).state.memory.boost.moved_bytes == MB


# --- what is remembered ----------------------------------------------------------------------------------------


def over(of: AgentState, policy: Policy = POLICY, **changes: Any) -> Waste:
    """What is remembered once this boost is over."""
    of = changed(of, **changes)
    at = situation_of(of, replace(seen(), wall=WALL), policy)
    return waste.after_cycle(of.memory, at, present(at.cycle), policy)


def served(bare: float = 0.4, longest_s: float = 2.0, gained_bytes: int = 0, **changes: Any) -> AgentState:
    times = Timestamps(decided=NOW - 40, boosted=NOW - 30)
    of = cycle(**{"trigger": Trigger.LOAD, "times": times, **changes})
    return state(Phase.DETACHING, of, bare=bare, longest_s=longest_s, gained_bytes=gained_bytes)


def test_a_boost_that_gained_less_than_some_seconds_is_remembered() -> None:
    least = int(waste.EARNED_S * SECOND)
    assert over(served(gained_bytes=least - 1)).useless == (UselessBoost(0.4, 2.0, WALL),)
    assert over(served(gained_bytes=least)).useless == ()


def test_a_boost_that_was_withdrawn_because_its_load_was_over_is_remembered() -> None:
    assert (
        over(
            served(times=Timestamps(decided=NOW - 40), failure=Failure(FailureKind.WITHDRAWN, "the load was over"))
        ).useless
        != ()
    )


@pytest.mark.parametrize(
    ("of", "changes"),
    [
        (served(trigger=Trigger.OPERATOR), {}),
        (served(trigger=Trigger.FORECAST), {}),
        (served(trigger=Trigger.ANNOUNCED), {}),
        (served(forced=True), {}),
        (served(written_through_bytes=1), {}),
        (served(), {"paused": True}),
        (served(), {"inhibition": Inhibition(InhibitionReason.SNAPSHOT, NOW + 60)}),
    ],
)
def test_a_boost_that_was_not_bought_for_a_load_or_was_cut_short_or_too_small_is_not(
    of: AgentState, changes: dict[str, Any]
) -> None:
    assert over(of, **changes).useless == ()


def test_a_boost_that_earned_takes_only_what_it_contradicts_out_of_the_memory() -> None:
    earned = served(gained_bytes=int(9 * SECOND), bare=1.0, longest_s=30.0)
    longer = UselessBoost(1.0, 60.0, WALL - 9)
    assert over(earned, waste=Waste((BLIP, longer))).useless == (BLIP,)


def test_a_boost_ahead_of_a_load_that_the_agent_expected_itself_is_remembered_if_the_load_came() -> None:
    learned, of = replace(POLICY, ahead=Ahead.LEARNED), served(trigger=Trigger.FORECAST, bare=1.0)
    assert over(of, learned).useless == (UselessBoost(1.0, 2.0, WALL),)
    assert over(changed(of, longest_s=0.0), learned).useless == ()


def test_ahead_of_a_load_only_what_exceeds_the_device_is_a_gain() -> None:
    quiet = LoadWatch(below_since=0.0)
    assert waste.shown_by(quiet, Trigger.FORECAST, NOW) == Boost(bare=1.0)
    assert waste.shown_by(quiet, Trigger.ANNOUNCED, NOW) == Boost()


def test_after_useless_boosts_nothing_is_bought_ahead_for_a_while() -> None:
    assert not waste.must_wait_ahead(many(waste.FREE - 1), WALL)
    assert waste.must_wait_ahead(many(waste.FREE), WALL)
    assert not waste.must_wait_ahead(many(waste.FREE), WALL + waste.FIRST_PAUSE_S + 60)


def test_what_is_remembered_does_not_grow_without_end() -> None:
    assert len(over(served(), waste=many(waste.KEPT)).useless) == waste.KEPT


# --- the agent ------------------------------------------------------------------------------------------------


def wanted(remembered: Waste, trigger: LoadWatch) -> AgentState:
    idle = state(Phase.IDLE, load=trigger, waste=remembered)
    return decide(idle, seen(host(backing())), POLICY).state


def test_a_load_that_must_wait_buys_nothing_and_one_that_need_not_does() -> None:
    assert wanted(many(9), load(0.4, 1)).phase is Phase.IDLE
    bought = wanted(many(9), load(1.0, 1))
    assert bought.phase is Phase.ATTACHING
    assert (bought.memory.boost.bare, bought.memory.boost.longest_s) == (1.0, 1.0)


def wasted(of: AgentState, number: int) -> AgentState:
    """After one more volume that never became a cache."""
    gone = volume(VolumeState.GONE)
    failed = cycle(failure=f"refused {number}", volume=gone, volume_id=gone.id, trigger=Trigger.LOAD)
    ending = replace(of, phase=Phase.DETACHING, cycle=failed, failures=number)
    return decide(ending, seen(host(backing())), POLICY).state


def test_after_many_volumes_that_never_became_a_cache_none_is_bought_until_an_operator_resumes() -> None:
    of = state(Phase.IDLE)
    for number in range(1, waste.MOST_WASTED + 1):
        assert of.memory.waste.stopped == ""
        of = wasted(of, number)
    assert f"refused {waste.MOST_WASTED}" in of.memory.waste.stopped
    assert of.memory.waste.stopped in waste.restraint(of.memory.waste, WALL)
    later = changed(of, cool_until=0.0, load=load(1.0, 9), listed=Listed(NOW - 1, NOW))
    assert decide(later, seen(host(backing())), POLICY).state.phase is Phase.IDLE
    resumed = decide(later, seen(host(backing()), requests=(Request(RequestKind.RESUME),)), POLICY).state
    assert resumed.memory.waste == Waste()
    assert decide(resumed, seen(host(backing())), POLICY).state.phase is Phase.ATTACHING


def test_an_operator_may_still_boost_and_a_boost_that_succeeded_ends_the_count() -> None:
    stopped = state(Phase.IDLE, waste=Waste(wasted=8, stopped="so often"))
    asked = decide(stopped, seen(host(backing()), requests=(Request(RequestKind.BOOST),)), POLICY).state
    assert asked.phase is Phase.ATTACHING
    assert over(served(), waste=Waste(wasted=5)).wasted == 0


def test_what_was_refused_before_anything_was_bought_is_not_counted() -> None:
    refused = served(failure=Failure(FailureKind.ERROR, "quota"), volume_id=None, volume=None)
    assert over(refused, failures=9).wasted == 0


# --- and sizes -------------------------------------------------------------------------------------------------


def taught(of: AgentState, *known: Lesson) -> AgentState:
    """After this boost, with those lessons before it."""
    before = present(of.cycle)
    times = replace(before.times, detached=NOW - 2, durable=NOW - 1)
    gone = replace(before, volume=volume(VolumeState.GONE), use=CacheUse(peak_in_use_percent=20), times=times)
    ending = changed(of, cycle=gone, moved_bytes=int(9 * SECOND), lessons=known)
    return decide(ending, seen(host(backing())), POLICY).state


def test_a_useless_boost_teaches_a_size_only_where_nothing_better_is_known() -> None:
    known = Lesson(4 * GIB, 4 * GIB)
    assert len(taught(served()).memory.lessons) == 1
    assert taught(served(), known).memory.lessons == (known,)
    assert len(taught(served(gained_bytes=int(9 * SECOND)), known).memory.lessons) == 2


def test_a_size_that_an_operator_set_forgets_what_was_learned_before() -> None:
    known = state(Phase.IDLE, lessons=(Lesson(GIB, GIB),) * 3)
    told = decide(known, seen(host(backing()), requests=(Request(RequestKind.LEARN, 3 * GIB),)), POLICY).state
    assert (told.memory.learned_size_bytes, told.memory.lessons) == (3 * GIB, ())
