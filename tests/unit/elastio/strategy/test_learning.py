"""How big the next cache is, from what the last boosts taught."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elastio.core.boosting import cycle_view
from elastio.core.policy import Policy
from elastio.strategy.learning import ALIKE, KEPT, learned_bytes, lesson_of, next_size, with_lesson
from elastio.strategy.memory import Lesson
from elastio.strategy.situation import CycleView
from elastio.units import GB, GIB, MIB
from tests.values import POLICY, cycle, present


def used(**changes: object) -> CycleView:
    """A cycle as the strategy sees it."""
    return cycle_view(cycle(**changes))


FINE = replace(POLICY, size_step_bytes=1, min_size_bytes=MIB)
HELD = used(opened_wall=0.0, closed_wall=120.0, cutoff_percent=70)


def burst(moved_gb: float, share: float = 1.0) -> Lesson:
    return Lesson(int(moved_gb * share * GB), int(moved_gb * GB))


def after(*lessons: Lesson, policy: Policy = FINE) -> float:
    """GB to buy after these."""
    kept: tuple[Lesson, ...] = ()
    for lesson in lessons:
        kept = with_lesson(kept, lesson)
    return round(learned_bytes(kept, HELD, policy) / GB, 3)


USUAL = burst(4)


# --- one boost -------------------------------------------------------------------------------------------------


def test_a_cache_that_was_not_used_up_needs_what_was_used() -> None:
    # 28 % in use of 10 GiB, where 70 % can be used, and a twentieth more.
    known = lesson_of(used(peak_in_use_percent=28, cutoff_percent=70), 3 * GB, POLICY)
    assert known == Lesson(int(4 * GIB * 1.05), 3 * GB)
    assert learned_bytes((present(known),), HELD, POLICY) == 5 * GIB


def test_a_cache_that_wrote_through_needs_itself_and_what_it_wrote_through() -> None:
    full = present(
        lesson_of(used(peak_in_use_percent=100, written_through_bytes=2 * GIB, cutoff_percent=70), 0, POLICY)
    )
    assert learned_bytes((full,), HELD, POLICY) == 13 * GIB  # 10 + 2 / 0.7 x 1.05, in whole steps


def test_what_was_flushed_at_the_applications_expense_was_missing_too() -> None:
    pressed = used(forced_writeback_bytes=GIB, written_through_bytes=GIB, cutoff_percent=70)
    assert lesson_of(pressed, 0, POLICY) == lesson_of(used(written_through_bytes=2 * GIB, cutoff_percent=70), 0, POLICY)


def test_a_cache_that_was_used_up_to_its_cutoff_does_not_grow_if_nothing_was_written_through() -> None:
    used_up = present(lesson_of(used(peak_in_use_percent=100, cutoff_percent=70), GB, POLICY))
    assert used_up.needed_bytes == 10 * GIB


def test_a_cache_that_nothing_was_asked_of_teaches_nothing() -> None:
    second = int(POLICY.backing_bandwidth_mb_s * 1e6)
    assert lesson_of(used(peak_in_use_percent=1), second - 1, POLICY) is None
    assert lesson_of(used(peak_in_use_percent=1), second, POLICY) is not None


@pytest.mark.parametrize(("lesson", "size"), [(Lesson(1, 1), POLICY.min_size_bytes), (Lesson(10**15, 1), 100 * GIB)])
def test_a_learned_size_stays_within_the_bounds(lesson: Lesson, size: int) -> None:
    assert learned_bytes((lesson,), HELD, POLICY) == size


def test_one_burst_of_which_little_was_held_may_have_been_slow_and_gets_room_as_if_it_had_been() -> None:
    # Of a burst that saturates the cache 1 - 20/80 is held, over the cutoff and with headroom: 1.125; of that 0.9.
    policy = replace(FINE, drain_bandwidth_mb_s=20.0)
    assert after(burst(4, 1.1), policy=policy) == 4.4
    assert after(burst(4, 0.3), policy=policy) == 4.05
    assert after(burst(40, 0.2), policy=policy) == round(10 * GIB / GB, 3)  # never more than this one had


# --- several ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [2, 3, KEPT, KEPT + 5])
def test_a_steady_application_gets_what_its_last_burst_needed(count: int) -> None:
    assert after(*([USUAL] * (count - 1)), burst(3.9, 1.02)) == 3.978


def test_the_second_burst_and_one_that_is_a_little_larger_are_followed_at_once() -> None:
    assert after(burst(5, 1.15), burst(3.8, 1.13)) == 4.294
    assert after(burst(1), burst(4)) == 4
    assert after(burst(4), burst(4.5), burst(5)) == 5


@pytest.mark.parametrize("before", [1, 2, 6])
def test_one_slow_burst_changes_nothing(before: int) -> None:
    for share in (0.3, 0.85):
        assert after(*([USUAL] * before), burst(4, share)) == 4
        assert after(*([USUAL] * before), burst(4, share), USUAL) == 4


@pytest.mark.parametrize("before", [2, 6])
@pytest.mark.parametrize(("odd", "most"), [(burst(0.3), 4), (burst(9), 4 * ALIKE), (burst(4, 2.5), 4)])
def test_one_odd_burst_changes_little(before: int, odd: Lesson, most: float) -> None:
    assert after(*([USUAL] * before), odd) == most
    assert after(*([USUAL] * before), odd, USUAL) == 4


@pytest.mark.parametrize("new", [burst(1), burst(9), burst(4, 0.4), burst(4, 2.0)])
def test_an_application_that_changed_is_followed_within_three_bursts(new: Lesson) -> None:
    assert after(*([USUAL] * 6), new, new, new) == round(new.needed_bytes / GB, 3)


@pytest.mark.parametrize("sizes", [(4, 1), (4, 1, 1)])
def test_bursts_that_differ_in_turns_get_room_for_the_larger(sizes: tuple[float, ...]) -> None:
    for phase in range(len(sizes)):
        assert after(*([burst(gb) for gb in sizes] * 3), *[burst(gb) for gb in sizes[:phase]]) == 4


def test_where_a_cache_is_hardly_faster_room_is_bought_for_what_is_asked_for_often() -> None:
    lessons = (burst(4), burst(4), burst(1), burst(4), burst(1), burst(1), burst(4), burst(1))
    assert after(*lessons) == 4
    assert after(*lessons, policy=replace(FINE, cache_bandwidth_mb_s=20.1)) == 1


def test_the_first_cache_has_the_initial_size_and_later_ones_the_learned_one() -> None:
    assert next_size(None, POLICY) == POLICY.initial_size_bytes
    assert next_size(3 * GIB, POLICY) == 3 * GIB


def test_no_cache_leaves_the_bounds() -> None:
    assert next_size(1, POLICY) == POLICY.min_size_bytes
    assert next_size(10**15, POLICY) == POLICY.caps.max_size_bytes
