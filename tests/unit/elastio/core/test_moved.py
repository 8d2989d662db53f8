"""What a cgroup has moved since a reading."""

from __future__ import annotations

import pytest

from elastio.core.moved import Mix, Moved


@pytest.mark.parametrize(
    ("before", "after", "since"),
    [
        (Moved(), Moved(3, 5), Moved(3, 5)),
        (Moved(3, 5), Moved(3, 9), Moved(0, 4)),
        (Moved(3, 5), Moved(4, 2), Moved(4, 2)),
        (Moved(3, 5), Moved(1, 7), Moved(1, 7)),
        (Moved(3, 5, 2), Moved(4, 9, 5), Moved(1, 4, 3)),
        (Moved(3, 5, 2), Moved(1, 9, 5), Moved(1, 9, 5)),
    ],
)
def test_a_counter_that_has_decreased_has_begun_at_nothing(before: Moved, after: Moved, since: Moved) -> None:
    assert after.since(before) == since


def test_what_was_moved_adds_up() -> None:
    assert Moved(1, 2, 3).plus(Moved(10, 20, 30)) == Moved(11, 22, 33)
    assert Moved(11, 22).total_bytes == 33


def test_a_mix_is_that_of_the_first_reading_and_then_follows_the_next_ones() -> None:
    assert Mix().larger == 1.0
    mix = Mix().after(Moved(300, 100))
    assert mix.larger == 0.75
    assert mix.after(Moved()).larger == 0.75
    for _ in range(10):
        mix = mix.after(Moved(100, 300))
    assert 0.5 < mix.larger < 0.75
    assert mix.written_bytes > mix.read_bytes


@pytest.mark.parametrize(("read", "written", "larger"), [(54, 46, 0.5), (46, 54, 0.5), (60, 40, 0.6), (0, 7, 1.0)])
def test_a_mix_that_is_nearly_even_counts_as_even(read: int, written: int, larger: float) -> None:
    assert Mix().after(Moved(read, written)).larger == larger
