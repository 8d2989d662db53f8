"""A lower limit is written after what is in force, in time, and by half at most."""

from __future__ import annotations

from elastio.host.lowering import LATEST_S, LEAST, SETTLES_S, allowed, lowered

IN_FORCE = {"up": 4.0, "down": 8.0, "far down": 8.0}
NEW = {"new": 1.0, "up": 5.0, "down": 6.0, "far down": 1.0}
FIRST = {"down": 8.0, "far down": 8.0}


def test_first_those_that_go_down_are_written_as_they_are() -> None:
    assert lowered(NEW, IN_FORCE) == FIRST


def test_none_is_lower_than_half_of_what_was_in_force() -> None:
    assert allowed(NEW, FIRST, SETTLES_S) == {**NEW, "far down": LEAST * 8.0}


def test_where_it_is_too_late_those_to_be_lower_stay() -> None:
    assert allowed(NEW, FIRST, LATEST_S + 0.001) == {"new": 1.0, "up": 5.0}
