"""The bandwidth of the next cache: what bursts teach, that nothing is bought above B*, and that a raise has to pay."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastio.core.model import Identity
from elastio.core.state import AgentState, Observation
from elastio.strategy import learning
from elastio.strategy.account import AT_CAP
from elastio.strategy.bandwidth import (
    FORGOTTEN_AFTER,
    KEPT,
    REMEMBERED,
    STEP,
    VARIES,
    asked_mb_s,
    best_mb_s,
    learn,
    next_mb_s,
    noted,
    with_refusal,
)
from elastio.strategy.memory import BurstLesson, LearnedBandwidth, Memory, SpeedBounds
from tests.spending import is_worth
from tests.values import POLICY, ask

BOUNDS = SpeedBounds(32.0, 16.0, 256.0)
NUMBERS = count(1)


@dataclass(frozen=True)
class App:
    """Computes for `rest_s`, and waits while `moved_mb` move at the bandwidth, or at `most_mb_s` of something else."""

    rest_s: float
    moved_mb: float
    most_mb_s: float = math.inf

    def best_mb_s(self, stop_gain: float) -> float:
        """By definition: the bandwidth from which on a doubling saves at most the gain, by bisection."""
        low, high = 1e-6, 1e9
        for _ in range(200):
            middle = (low * high) ** 0.5
            saved = 1 - self.time_s(2 * middle) / self.time_s(middle)
            low, high = (middle, high) if saved > stop_gain else (low, middle)
        return high

    def time_s(self, mb_s: float) -> float:
        return self.rest_s + self.moved_mb / mb_s

    def at(self, mb_s: float) -> BurstLesson:
        """What its account shows: it waits, as far as can be seen, for bandwidth."""
        waited_s = self.moved_mb / min(mb_s, self.most_mb_s)
        return BurstLesson(next(NUMBERS), mb_s, self.rest_s + waited_s, waited_s, self.moved_mb, self.moved_mb)


class Asking(App):
    """It asks for no more than `most_mb_s`, so below the limit of a faster cache its waits are for latency."""

    def at(self, mb_s: float) -> BurstLesson:
        found = App.at(self, mb_s)
        if self.most_mb_s >= AT_CAP * mb_s:
            return found
        return replace(found, waited_s=0.0, waited_mb=0.0, latency_s=found.waited_s, latency_mb=found.waited_mb)


def run(
    bursts: int, app: App, known: LearnedBandwidth | None = None, bounds: SpeedBounds = BOUNDS, limit: float = math.inf
) -> tuple[LearnedBandwidth, list[float], list[str]]:
    """So many bursts, each with the cache that was learned before; what was bought, and what was said."""
    known, bought, told = known or LearnedBandwidth(bounds.first_mb_s), [], []
    for _ in range(bursts):
        bought.append(next_mb_s(known, bounds, limit))
        known, why = learn(noted(known, app.at(bought[-1])), bounds, limit)
        told += [why] if why else []
    return known, bought, told


@pytest.mark.parametrize("best", [40.0, 64.0, 91.0, 180.0, 250.0])
def test_from_half_of_b_star_it_is_there_after_three_bursts_and_never_above(best: float) -> None:
    app = App(10.0, 10.0 * best * 0.1 / 0.9)
    assert app.best_mb_s(0.05) == pytest.approx(best, rel=0.01)
    bounds = SpeedBounds(best / 2, best / 8, 1e6)
    known, bought, told = run(3, app, bounds=bounds)
    assert bought == pytest.approx([best / 2, best / STEP, best], rel=0.01)
    assert max(bought) <= best * 1.001
    assert len(told) == 2
    assert run(9, app, known, bounds)[0].mb_s == pytest.approx(known.mb_s)


@pytest.mark.parametrize("first", [33.0, 50.0, 74.0, 76.0, 99.0])
def test_from_anywhere_below_b_star_it_comes_so_near_that_a_raise_would_save_next_to_nothing(first: float) -> None:
    app = App(10.0, 10.0 * 100.0 * 0.1 / 0.9)
    assert app.best_mb_s(0.05) == pytest.approx(100.0, rel=0.01)
    known, bought, _ = run(9, app, bounds=SpeedBounds(first, 16.0, 1e6))
    assert max(bought) <= 100.0 * 1.001
    assert 1 - app.time_s(100.0) / app.time_s(known.mb_s) < 0.05 / 2


def test_b_star_that_differs_a_little_from_burst_to_burst_is_not_followed_up() -> None:
    known, _, _ = run(6, App(10.0, 100.0))
    for moved_mb in (95.0, 103.0, 98.0, 101.0, 97.0):
        before = known.mb_s
        known, _ = learn(noted(known, App(10.0, moved_mb).at(before)), BOUNDS, math.inf)
        assert 0.9 * before <= known.mb_s <= before
    assert known.trial is None


@pytest.mark.parametrize(
    ("most", "limit", "end"), [(90.0, math.inf, 90.0), (128.0, math.inf, 128.0), (1e9, 100.0, 100.0)]
)
def test_never_above_the_bound_or_what_the_instance_carries(most: float, limit: float, end: float) -> None:
    known, bought, _ = run(9, App(1.0, 1000.0), bounds=replace(BOUNDS, most_mb_s=most), limit=limit)
    assert max(bought) == next_mb_s(known, replace(BOUNDS, most_mb_s=most), limit) == pytest.approx(end, abs=0.1)


def test_it_is_lowered_at_once_when_the_load_is_low_and_not_below_what_the_load_moves() -> None:
    known, _, _ = run(6, App(1.0, 1000.0))
    assert known.mb_s == 256.0
    low = App(10.0, 300.0, 500.0)
    steps = [run(number, low, known)[0].mb_s for number in range(1, KEPT + 2)]
    assert steps == sorted(steps, reverse=True)
    assert 300 / 10.6 / STEP <= steps[-1] < 300 / 10.6 * 9.1


@pytest.mark.parametrize("first", [64.0, 100.0, 128.0, 256.0])
def test_a_load_gets_what_it_asks_for_and_not_the_mean_that_it_moves(first: float) -> None:
    """What it moves in a second of its time is half of that: it computes between."""
    app, bounds = Asking(10.0, 1000.0, most_mb_s=100.0), SpeedBounds(first, 16.0, 512.0)
    known, bought, _ = run(5, app, bounds=bounds)
    assert bought[-2:] == [100.0, 100.0] if first >= 100.0 else [128.0, 100.0]
    assert min(bought) >= min(first, 100.0)
    _, bought, _ = run(40, app, known, bounds)
    assert set(bought) == {100.0, 100.0 * STEP}
    assert bought.count(100.0 * STEP) <= 40 / REMEMBERED, "one try after all is forgotten"


def test_a_load_that_has_moved_more_at_the_limit_asks_for_more() -> None:
    small, large = Asking(10.0, 200.0, most_mb_s=20.0), Asking(10.0, 1000.0)
    known, _, _ = run(1, large)
    for _ in range(KEPT):
        known, _ = learn(noted(known, small.at(known.mb_s)), BOUNDS, math.inf)
    assert known.mb_s == 20.0
    known, _, _ = run(1, large, known)
    assert known.mb_s == pytest.approx(20.0 * STEP)
    hardly = BurstLesson(next(NUMBERS), 99.0, 100.0, 0.5, 49.5, 4000.0)
    rarely = replace(hardly, waited_s=0.0, waited_mb=0.0, latency_s=0.5, latency_mb=40.0)
    assert [asked_mb_s((small.at(99.0), each)) for each in (hardly, rarely)] == [20.0] * 2
    stream = replace(hardly, waited_s=10.0, waited_mb=990.0, latency_s=20.0, latency_mb=200.0)
    assert [asked_mb_s([replace(stream, waited_mb=mb)]) for mb in (990.0, 130.0)] == [math.inf, 10.0]


def test_b_star_of_waits_at_the_limit_and_below_it_is_that_of_both_up_to_what_the_latter_ask_for() -> None:
    both = BurstLesson(next(NUMBERS), 64.0, 100.0, 5.0, 320.0, 1000.0, latency_s=20.0, latency_mb=600.0)
    assert best_mb_s([both], 0.1) == 30.0
    assert best_mb_s([both], 0.2) == pytest.approx(App(75.0, 920.0).best_mb_s(0.2), rel=1e-6)
    assert best_mb_s([replace(both, waited_mb=1000.0)], 0.1) == pytest.approx(
        App(95.0, 1000.0).best_mb_s(0.1), rel=1e-6
    )


@pytest.mark.parametrize(("waited_s", "waited_mb"), [(0.0, 0.0), (0.5, 20.0), (2.0, 40.0)])
def test_a_load_that_hardly_waits_still_has_to_fit(waited_s: float, waited_mb: float) -> None:
    known = LearnedBandwidth(256.0)
    for _ in range(KEPT):
        fits = BurstLesson(next(NUMBERS), known.mb_s, 100.0, waited_s, waited_mb, 4000.0)
        known, _ = learn(noted(known, fits), BOUNDS, math.inf)
    assert 40 / STEP <= known.mb_s <= 40
    fits = replace(fits, at=next(NUMBERS), moved_mb=9000.0)
    after, _ = learn(noted(replace(known, lessons=()), fits), BOUNDS, math.inf)
    assert after.mb_s == known.mb_s, "more would save nothing"


def test_a_curve_is_not_believed_far_from_where_it_was_measured() -> None:
    waits = BurstLesson(next(NUMBERS), 256.0, 100.0, 100.0, 1000.0, 1000.0)
    assert learn(noted(LearnedBandwidth(256.0), waits), BOUNDS, math.inf)[0].mb_s == pytest.approx(8 * 10.0)


def test_bounds_that_were_changed_meanwhile_hold_for_the_next_purchase() -> None:
    known = LearnedBandwidth(128.0)
    assert next_mb_s(known, replace(BOUNDS, most_mb_s=100.0), math.inf) == 100.0
    assert next_mb_s(known, BOUNDS, 50.0) == next_mb_s(None, replace(BOUNDS, first_mb_s=60.0), 50.0) == 50.0
    assert next_mb_s(known, replace(BOUNDS, least_mb_s=150.0), 50.0) == 150.0


def test_one_unusual_burst_decides_nothing_alone() -> None:
    known, _, _ = run(6, App(10.0, 100.0))
    after, why = learn(noted(known, App(0.5, 0.1).at(known.mb_s)), BOUNDS, math.inf)
    assert after.mb_s >= 0.95 * known.mb_s
    assert "instead" in why


def test_raises_that_save_less_than_half_of_the_promise_are_taken_back_and_remembered() -> None:
    known, bought, told = run(4, App(1.0, 100.0, most_mb_s=32.0), bounds=replace(BOUNDS, most_mb_s=64.0))
    assert bought == pytest.approx([32, 32 * STEP, 64, 64])
    assert (known.mb_s, known.refused_mb_s, len(told)) == (32.0, 32.0, 3)
    _, bought, told = run(FORGOTTEN_AFTER + 1, App(1.0, 100.0), known)
    assert bought[:-1] == [32.0] * FORGOTTEN_AFTER
    assert bought[-1] == pytest.approx(32 * STEP)
    assert len(told) >= 1


ONE_RAISE = replace(BOUNDS, most_mb_s=32 * STEP)


def after_raise(*seconds: float, before: tuple[float, ...] = (4.125,), moved_mb: float = 100.0) -> LearnedBandwidth:
    """What is known after bursts of so many seconds before and after a raise that is to save 22 % of the time."""
    known = LearnedBandwidth(32.0)
    for each in before:
        lesson = replace(App(1.0, 100.0).at(32.0), seconds=each)
        known, _ = learn(noted(known, lesson), ONE_RAISE, math.inf)
    assert known.trial is not None
    for each in seconds:
        lesson = BurstLesson(next(NUMBERS), known.mb_s, each, each / 2, moved_mb / 2, moved_mb)
        known, _ = learn(noted(known, lesson), ONE_RAISE, math.inf)
    return known


@pytest.mark.parametrize(
    ("seconds", "moved_mb", "is_taken_back"),
    [
        ([4.1, 4.1], 100.0, True),
        ([4.1], 100.0, False),
        ([3.95, 3.95], 100.0, False),
        ([3.95] * 7, 100.0, True),
        ([3.6] * 7, 100.0, False),
        ([4.1, 3.0], 100.0, False),
        ([2.8, 2.8], 70.0, True),
        ([2.4, 2.4], 70.0, False),
    ],
    ids=["it saved nothing", "one burst decides nothing", "it may be chance", "it is none in many", "half of it",
         "bursts differ", "less was moved as slowly", "less was moved, and faster"],
)  # fmt: skip
def test_a_raise_is_taken_back_that_saved_less_than_half_of_the_promise_for_sure(
    seconds: list[float], moved_mb: float, is_taken_back: bool
) -> None:
    assert (after_raise(*seconds, moved_mb=moved_mb).refused_mb_s == 32.0) is is_taken_back


@given(st.lists(st.floats(-VARIES / 2, VARIES / 2), min_size=2, max_size=7), st.floats(0.11, 0.5), st.booleans())
def test_no_raise_is_taken_back_that_has_saved_half_if_bursts_differ_as_is_assumed(
    errors: list[float], saved: float, is_slow_first: bool
) -> None:
    before = 4.125 * (1 - VARIES / 2 if is_slow_first else 1)
    known = after_raise(*(4.125 * (1 - saved) * (1 + error) for error in errors), before=(before,))
    assert known.refused_mb_s is None


@pytest.mark.parametrize("moved_mb", [0.0, 5e-324, 0.9])
def test_bursts_that_have_moved_next_to_nothing_do_not_judge_a_raise(moved_mb: float) -> None:
    assert after_raise(4.125, 4.125, 4.125, moved_mb=moved_mb).refused_mb_s is None


def test_raises_in_a_row_are_judged_together_and_taken_back_together() -> None:
    """Each of them alone promises too little to tell from chance."""
    app = App(20.0, 100.0, most_mb_s=32.0)
    known, bought, _ = run(4, app, bounds=replace(BOUNDS, most_mb_s=90.0, stop_gain=0.01))
    assert bought[2:] == pytest.approx([64, 90])
    assert known.trial is not None
    assert known.trial.before_mb_s == 32.0
    assert known.trial.promised == pytest.approx(1 - app.rest_s / app.time_s(32.0) * (1 + 100 / 90 / 20), rel=0.01)


def test_nothing_is_raised_while_a_raise_is_not_judged() -> None:
    known, _, _ = run(1, App(1.0, 100.0))
    after, why = learn(noted(known, App(1.0, 100.0).at(32.0)), BOUNDS, math.inf)
    assert (after.mb_s, after.trial, why) == (known.mb_s, known.trial, "")


def test_a_raise_that_changed_bounds_keep_from_being_bought_is_given_up() -> None:
    known, _, _ = run(1, App(1.0, 4000.0))
    assert known.trial is not None
    bounds = SpeedBounds(200.0, 200.0, 800.0)
    _, bought, _ = run(8, App(1.0, 4000.0), known, bounds)
    assert bought[0] == 200.0
    assert bought[-1] > 400.0


def test_what_the_cloud_has_refused_is_not_asked_for_again_for_a_while() -> None:
    app = App(2.0, 1000.0)
    known, bought, _ = run(2, app)
    known, why = learn(with_refusal(known), BOUNDS, math.inf)
    assert why
    assert (known.mb_s, known.trial) == (bought[-1], None)
    known, again, _ = run(FORGOTTEN_AFTER + 1, app, known)
    assert again == pytest.approx([bought[-1]] * FORGOTTEN_AFTER + [bought[-1] * STEP])


def test_a_refusal_of_what_was_sold_before_is_about_something_else() -> None:
    lowered, _, _ = run(1, App(100.0, 100.0))
    for known in (LearnedBandwidth(32.0), lowered):
        assert with_refusal(known) == known


def test_the_same_burst_is_learned_from_once() -> None:
    lesson = App(1.0, 100.0).at(32.0)
    known = noted(LearnedBandwidth(32.0), lesson)
    assert noted(known, lesson) is known
    known, _ = learn(known, BOUNDS, math.inf)
    assert not noted(known, lesson).is_fresh


SECONDS = st.floats(0.5, 1e5)
RATES = st.one_of(st.sampled_from([18.0, 25.0, 60.0]), st.floats(0.01, 5000))
LESSONS = st.builds(
    lambda seconds, share, mb_s, below, asked, beside, bought: BurstLesson(
        next(NUMBERS), bought, seconds, share * seconds, share * seconds * mb_s,
        (share * mb_s + below * (1 - share) * asked + beside) * seconds,
        below * (1 - share) * seconds, below * (1 - share) * seconds * asked,
    ),
    SECONDS,
    st.one_of(st.sampled_from([0.0, 1.0]), st.floats(0, 1)),
    RATES,
    st.one_of(st.sampled_from([0.0, 1.0]), st.floats(0, 1)),
    RATES,
    st.floats(0, 500),
    st.sampled_from([16.0, 32.0, 32 * STEP, 64.0, 256.0]),
)  # fmt: skip


@settings(deadline=None, max_examples=500)
@given(
    st.lists(LESSONS, min_size=1, max_size=30),
    st.floats(0.01, 0.4),
    st.sampled_from([math.inf, 20.0, 100.0, -5.0]),
    st.sampled_from([32.0, 200.0, 1e6]),
)
def test_nothing_is_bought_above_b_star_ever(
    lessons: list[BurstLesson], stop_gain: float, limit: float, most: float
) -> None:
    """B* by its definition, of the last bursts together: a doubling from what is bought on saves more than the gain."""
    bounds = SpeedBounds(32.0, 16.0, most, stop_gain)
    known = LearnedBandwidth(bounds.first_mb_s)
    for number, lesson in enumerate(lessons, 1):
        is_bought = replace(lesson, mb_s=next_mb_s(known, bounds, limit)) if number % 2 else lesson
        known, _ = learn(noted(known, is_bought), bounds, limit)
        mb_s = next_mb_s(known, bounds, limit)
        assert bounds.least_mb_s <= mb_s <= max(bounds.least_mb_s, min(bounds.most_mb_s, limit))
        last = lessons[max(0, number - KEPT) : number]
        moved_mb = sum(each.moved_mb for each in last)
        is_needed = mb_s <= moved_mb / sum(each.seconds for each in last) * (1 + 1e-6)
        assert is_worth(mb_s, stop_gain, last) or is_needed or mb_s == bounds.least_mb_s


# --- what the instance carries ---------------------------------------------------------------------------------

LIMIT_MB_S = 300.0
LEARNS = replace(POLICY, bandwidth=SpeedBounds(400.0, 100.0, 800.0), drain_bandwidth_mb_s=30.0)


def known_by(state: AgentState, limit_mb_s: float | None = LIMIT_MB_S) -> AgentState:
    """The state after the cloud has said what the instance carries."""
    who = Identity("sim", "i-1", "zone-a", "region-1", "m.large", limit_mb_s)
    state = replace(state, identity=who)
    return replace(state, memory=ask(learning.with_burst, state, Observation(0.0, 0.0), LEARNS)[0])


def test_what_the_instance_carries_holds_over_a_restart() -> None:
    """Until the cloud answers again, and within a boost that goes on."""
    idle = AgentState(recovered=True, memory=Memory(bandwidth=LearnedBandwidth(600.0)))
    started = replace(known_by(idle), identity=None)
    assert learning.in_force(LEARNS, started.memory).cache_bandwidth_mb_s == LIMIT_MB_S - 2 * 30.0


def test_an_instance_that_carries_less_than_the_flush_gets_the_least_and_no_negative_bandwidth() -> None:
    known, why = learn(noted(LearnedBandwidth(64.0), App(1.0, 1000.0).at(64.0)), BOUNDS, 43.0 - 2 * 60.0)
    assert known.mb_s == BOUNDS.least_mb_s
    assert "-" not in why


def test_an_instance_without_a_limit_carries_what_was_learned() -> None:
    idle = AgentState(recovered=True, memory=Memory(bandwidth=LearnedBandwidth(600.0)))
    assert learning.in_force(LEARNS, known_by(idle, None).memory).cache_bandwidth_mb_s == 600.0
    starting = known_by(replace(idle, recovered=False))
    assert learning.in_force(LEARNS, starting.memory).cache_bandwidth_mb_s == 400.0, "a cache may be there"


def test_until_the_cloud_has_ever_answered_no_more_is_bought_than_at_first() -> None:
    known = LearnedBandwidth(600.0)
    assert learning.in_force(LEARNS, Memory(bandwidth=known)).cache_bandwidth_mb_s == 400.0
    fresh = replace(known, lessons=(App(1.0, 100.0).at(600.0),), is_fresh=True)
    state = AgentState(recovered=True, memory=Memory(bandwidth=fresh))
    assert ask(learning.with_burst, state, Observation(0.0, 0.0), LEARNS) == (state.memory, "")
