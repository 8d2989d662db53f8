"""Native modification: as seldom as the cloud allows, and in time for every peak."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastio_adviser.modification import DAY_S, ChangeRule, fast_s

HOUR_S = 3600.0
ANY = ChangeRule(1000, 1.0)


def test_without_a_rule_it_is_fast_for_the_peaks_alone() -> None:
    assert fast_s([(10.0, 20.0), (50.0, 70.0)], 100.0, ANY) == pytest.approx(30.0)


def test_without_a_peak_it_is_never_fast_and_without_changes_always() -> None:
    assert fast_s([], 100.0, ChangeRule()) == 0
    assert fast_s([(10.0, 20.0)], 100.0, ChangeRule(0)) == 100


def test_two_peaks_a_day_can_be_followed_and_four_cannot() -> None:
    two = [(h * HOUR_S, (h + 1) * HOUR_S) for h in (6, 18)]
    four = [(h * HOUR_S, (h + 1) * HOUR_S) for h in (3, 9, 15, 21)]
    assert fast_s(two, DAY_S, ChangeRule()) == pytest.approx(2 * HOUR_S)
    # Two of the four pauses of 5 h are used each day.
    assert fast_s(four, DAY_S, ChangeRule()) == pytest.approx(24 * HOUR_S - 2 * 5 * HOUR_S, abs=2 * HOUR_S)


def test_a_short_recording_recurs_and_does_not_get_changes_for_itself_alone() -> None:
    assert fast_s([(100.0, 130.0)], 600.0, ChangeRule()) > 0.95 * 600.0


def test_the_next_change_waits_until_the_last_has_completed() -> None:
    busy = [(h * HOUR_S, (h + 1) * HOUR_S) for h in (6, 8)]
    assert fast_s(busy, DAY_S, ChangeRule(4, DAY_S, 0.0)) == pytest.approx(2 * HOUR_S)
    # Down for the hour between them is too short for two changes.
    assert fast_s(busy, DAY_S, ChangeRule(4, DAY_S, 1.5 * HOUR_S)) == pytest.approx(3 * HOUR_S)


@given(st.lists(st.tuples(st.floats(0, 80_000), st.floats(1, 5000)), min_size=1, max_size=20), st.integers(1, 6))
def test_more_changes_never_cost_more_and_every_peak_is_served(peaks: list[tuple[float, float]], changes: int) -> None:
    busy, at = [], 0.0
    for begin, length in sorted(peaks):
        if begin >= at:
            at = begin + length
            busy.append((begin, at))
    served = sum(end - begin for begin, end in busy)
    found = fast_s(busy, 90_000.0, ChangeRule(changes))
    assert served - 1e-3 <= found <= 90_000.0 + 1e-3
    assert fast_s(busy, 90_000.0, ANY) <= found + 1e-3
