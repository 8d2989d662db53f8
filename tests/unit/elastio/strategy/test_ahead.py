"""Which expected burst is due, what is bought ahead of it, and how long its cache is kept."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from elastio.core import detection
from elastio.core.cycle import Timestamps, Trigger
from elastio.core.machine import decide
from elastio.core.model import Forecast, Request, RequestKind
from elastio.core.policy import Ahead, Policy
from elastio.core.state import AgentState, Decision, Phase
from elastio.strategy.ahead import chance_until, expect, update
from elastio.strategy.learning import size_for
from elastio.strategy.memory import Lesson, LoadWatch, Memory
from elastio.strategy.review import release
from elastio.strategy.situation import Wish
from elastio.units import GB, GIB
from tests import values
from tests.values import NOW, present

SURE = Forecast(begins_at=NOW + 20, written_bytes=4 * GB, confidence=0.9)
ANNOUNCED = replace(SURE, is_announced=True)
AT_REST = LoadWatch(below_since=0.0)


def policy(**changes: object) -> Policy:
    return replace(values.POLICY, lead_s=30.0, least_confidence=0.8, **changes)  # type: ignore[arg-type]


def decided(forecast: Forecast | None, load: LoadWatch = AT_REST, **state: Any) -> Decision:
    seen = values.seen(values.host(values.backing()), forecast=forecast)
    return decide(values.state(Phase.IDLE, load=load, learned_size_bytes=2 * GIB, **state), seen, policy())


@pytest.mark.parametrize(
    ("load", "forecast", "wanted"),
    [
        (AT_REST, None, None),
        (AT_REST, SURE, Trigger.FORECAST),
        (values.HIGH, SURE, Trigger.LOAD),
        (values.HIGH, None, Trigger.LOAD),
        (AT_REST, replace(SURE, confidence=0.8), Trigger.FORECAST),
        (AT_REST, replace(SURE, confidence=0.79), None),
        (AT_REST, replace(SURE, confidence=float("nan")), None),
        (AT_REST, replace(SURE, begins_at=NOW + 30), Trigger.FORECAST),
        (AT_REST, replace(SURE, begins_at=NOW + 30.1), None),
        (AT_REST, replace(SURE, begins_at=NOW), None),
        (AT_REST, replace(SURE, begins_at=float("nan")), None),
    ],
)
def test_a_boost_is_wanted_by_the_load_or_by_a_sure_forecast_within_the_lead_time(
    load: LoadWatch, forecast: Forecast | None, wanted: Trigger | None
) -> None:
    cycle = decided(forecast, load).state.cycle
    assert (cycle and cycle.trigger) == wanted


def test_the_next_of_several_expected_bursts_is_due() -> None:
    announced = tuple(replace(SURE, begins_at=NOW + s) for s in (-5, 10, 25))
    state = values.told(update, values.state(Phase.IDLE, expected=announced), values.seen(forecast=SURE), policy())
    assert present(state.memory.awaited).begins_at == NOW + 10
    assert [b.begins_at for b in state.memory.expected] == [NOW + 10, NOW + 25]


def test_the_chance_ends_an_inactivity_delay_after_the_burst() -> None:
    # 4000 MB at 80 MB/s.
    assert chance_until(SURE, policy(inactivity_delay_s=7.0)) == NOW + 20 + 50 + 7


def test_the_lead_is_the_longest_measured_time_and_a_little_more() -> None:
    assert Memory().lead_s(30.0) == 30.0
    assert Memory(attach_s=(6.0, 10.0, 5.0)).lead_s(30.0) == pytest.approx(12.0)


LESSONS = (Lesson(3 * GIB, 2 * GIB),)


@pytest.mark.parametrize(
    ("written_bytes", "state", "size_bytes"),
    [
        (4 * GIB, {}, 11 * GIB),  # 4 / 0.4 x 1.05
        (4 * GIB, {"learned_size_bytes": 2 * GIB}, 11 * GIB),
        (4 * GIB, {"lessons": LESSONS}, 6 * GIB),
        (900 * GIB, {}, 100 * GIB),  # the cap
        (0, {"learned_size_bytes": 2 * GIB}, 2 * GIB),
        (0, {}, 10 * GIB),
        (4 * GIB, {"lessons": LESSONS, "learned_size_bytes": 20 * GIB}, 20 * GIB),
    ],
)
def test_the_size_is_the_share_of_the_burst_that_a_cache_has_to_hold(
    written_bytes: int, state: dict[str, Any], size_bytes: int
) -> None:
    assert size_for(replace(SURE, written_bytes=written_bytes), Memory(**state), policy()) == size_bytes


def test_what_flows_back_during_a_burst_needs_no_room() -> None:
    draining = policy(drain_bandwidth_mb_s=20.0)
    # 4 x (1 - 20 / 80) / 0.4 x 1.05
    assert size_for(replace(SURE, written_bytes=4 * GIB), Memory(), draining) == 8 * GIB


def test_the_cycle_knows_what_asked_for_it() -> None:
    ahead, on_load = decided(SURE).state, decided(SURE, values.HIGH).state.cycle
    assert present(ahead.cycle).trigger is Trigger.FORECAST
    assert ahead.memory.boost.chance_until == chance_until(SURE, policy())
    assert (present(on_load).trigger, present(on_load).spec.size_bytes) == (Trigger.LOAD, 2 * GIB)
    assert decided(None).state.cycle is None


def judged(awaited: Forecast, load: LoadWatch) -> AgentState:
    state = values.state(Phase.IDLE, awaited=awaited, load=load, missed=1, missed_forecasts=1)
    return values.told(update, state, values.seen(), policy(inactivity_delay_s=7.0))


def test_a_load_makes_an_expectation_right_and_its_absence_wrong_when_its_time_is_over() -> None:
    begun, over = replace(ANNOUNCED, begins_at=NOW - 10), replace(ANNOUNCED, begins_at=NOW - 57)
    assert (judged(begun, values.HIGH).memory.awaited, judged(begun, values.HIGH).memory.missed) == (None, 0)
    assert (judged(begun, AT_REST).memory.awaited, judged(begun, AT_REST).memory.missed) == (begun, 1)
    assert (judged(over, AT_REST).memory.awaited, judged(over, AT_REST).memory.missed) == (None, 2)


def test_nothing_is_bought_ahead_after_three_wrong_expectations() -> None:
    assert decided(SURE, missed_forecasts=2).state.cycle is not None
    assert decided(SURE, missed_forecasts=3).state.cycle is None
    assert decided(ANNOUNCED, missed=2).state.cycle is not None
    assert decided(ANNOUNCED, missed=3).state.cycle is None


def test_announced_bursts_and_forecast_ones_are_counted_apart() -> None:
    assert decided(SURE, missed=3).state.cycle is not None
    assert decided(ANNOUNCED, missed_forecasts=3).state.cycle is not None
    over = values.told(
        update, values.state(Phase.IDLE, awaited=replace(SURE, begins_at=NOW - 500)), values.seen(), policy()
    )
    assert (over.memory.missed, over.memory.missed_forecasts) == (0, 1)


def test_a_load_before_its_time_is_the_burst_that_was_forecast_but_not_the_one_that_was_announced() -> None:
    early = replace(SURE, begins_at=NOW + 5)
    assert judged(early, values.HIGH).memory.awaited is None
    assert judged(replace(early, is_announced=True), values.HIGH).memory.awaited is not None
    assert decided(SURE, values.HIGH).state.memory.awaited is None


def test_a_forecast_may_say_how_long_before_it_to_buy_and_how_long_to_wait() -> None:
    said = replace(SURE, lead_s=10.0, kept_s=4.0)
    assert chance_until(said, policy()) == NOW + 24
    assert decided(said).state.cycle is None
    assert decided(replace(said, lead_s=20.0)).state.cycle is not None


def test_nothing_is_bought_ahead_where_that_is_off() -> None:
    off = policy(ahead=Ahead.OFF)
    seen = values.seen(values.host(values.backing()), forecast=SURE)
    assert decide(values.state(Phase.IDLE, load=AT_REST, expected=(ANNOUNCED,)), seen, off).state.cycle is None
    asked = replace(seen, requests=(Request(RequestKind.EXPECT, 4 * GIB, seconds=60.0),))
    decision = decide(values.state(Phase.IDLE, load=AT_REST), asked, off)
    assert [a.accepted for a in decision.answers] == [False]
    assert decision.state.memory.expected == ()


def test_a_burst_that_is_announced_again_is_one_burst() -> None:
    memory = expect(expect(Memory(), SURE), replace(SURE, begins_at=NOW + 21, written_bytes=GIB))
    assert [(b.begins_at, b.written_bytes, b.is_announced) for b in memory.expected] == [(NOW + 21, GIB, True)]
    assert len(expect(memory, replace(SURE, begins_at=NOW + 23)).expected) == 2


def test_a_cache_that_waited_for_its_burst_in_vain_is_released_when_its_time_is_over() -> None:
    """Attached 2 s ago: an inactivity delay after that would be paid for nothing."""
    bought = values.cycle(trigger=Trigger.FORECAST, times=Timestamps(boosted=NOW - 2))
    state = values.state(Phase.BOOSTING, of=bought, load=AT_REST, chance_until=NOW - 1)
    seen = values.seen(values.host(values.backing()))
    wish = Wish(policy(), values.ask(release, state, seen, policy()))
    found = detection.in_boosting(state, seen, wish)
    assert present(found).event is detection.Event.WENT_QUIET
    waiting = values.changed(state, chance_until=NOW + 1)
    assert values.ask(release, waiting, seen, policy()) is None


def test_a_burst_that_is_late_is_no_longer_bought_ahead_of() -> None:
    assert decided(None, awaited=replace(SURE, begins_at=NOW + 1)).state.cycle is not None
    assert decided(None, awaited=replace(SURE, begins_at=NOW)).state.cycle is None


def test_an_announced_size_is_bought_whatever_was_learned() -> None:
    learned = Memory(learned_size_bytes=20 * GIB, lessons=LESSONS)
    assert size_for(replace(ANNOUNCED, written_bytes=4 * GIB), learned, policy()) == 6 * GIB
