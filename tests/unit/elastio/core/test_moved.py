"""What a cgroup has moved since a reading."""

from __future__ import annotations

import random

import pytest

from elastio.core.moved import FEW, LEAST_FILLED, WEIGHT, Mix, Moved, with_use

NEW = Mix()


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


@pytest.mark.parametrize(
    ("read", "requests", "larger"),
    [(64, 44, 0.5), (66, 44, 0.66), (56, 398, 0.56), (69, 4, 0.5), (71, 4, 0.71), (100, 1, 1.0)],
)
def test_a_mix_of_few_requests_has_to_be_further_from_even(read: int, requests: int, larger: float) -> None:
    assert Mix().after(Moved(read, 100 - read, requests)).larger == larger


def test_a_mix_of_some_readings_strays_as_one_of_more_requests() -> None:
    mix = Mix()
    for _ in range(100):
        mix = mix.after(Moved(50, 50, 5))
    squares = sum((WEIGHT * (1 - WEIGHT) ** n) ** 2 / 5 for n in range(100))
    assert mix.requests == pytest.approx(1 / squares)


def test_a_mix_begins_again_where_a_load_changes() -> None:
    reads = Mix().after(Moved(100, 0, 25)).after(Moved(100, 0, 25))
    assert reads.after(Moved(50, 50, 25)).larger == 0.5
    assert reads.after(Moved(92, 8, 25)).larger == pytest.approx(0.984), "by chance"
    assert reads.after(Moved(80, 20, 25)).larger == pytest.approx(0.8)
    even = Mix().after(Moved(50, 50, 25)).after(Moved(50, 50, 25))
    assert even.after(Moved(10, 0, 10)).larger < 1.0, "all that wait may be of one kind"
    assert even.after(Moved(24, 0, 24)).larger == 1.0
    assert reads.after(Moved(0, 100, 2)).larger == pytest.approx(0.8), "of so few requests nothing is known"
    assert reads.after(Moved(0, 0, 0)).larger == 1.0
    pieces = Mix().after(Moved(0, 100, 25))
    assert pieces.after(Moved(90, 10)).larger == pytest.approx(0.82), "in how many requests is not known"


def mixed(reading: Moved, readings: int, mix: Mix = NEW) -> Mix:
    for _ in range(readings):
        mix = mix.after(reading)
    return mix


EVEN, READS = Moved(50, 50, 5), Moved(100, 0, 5)


def test_a_mix_begins_again_after_some_readings_of_few_requests() -> None:
    mix = mixed(EVEN, 20)
    for _ in range(4):
        mix = mix.after(READS)
        assert mix.larger < 1.0
        mix = mix.after(Moved(0, 40, FEW - 1))
    assert mix.after(READS).larger == 1.0
    assert mixed(READS, 4, mix.after(EVEN)).larger < 1.0, "a reading that does not stray ends the run"


def test_a_mix_begins_again_with_the_last_reading_alone() -> None:
    """What has strayed before may have been of another mix, and delays nothing."""
    few = mixed(READS, 7, mixed(EVEN, 20).after(Moved(55, 45, 5)))
    assert few.larger == 1.0
    many = mixed(Moved(72, 28, 64), 7, mixed(Moved(70, 30, 64), 20))
    assert many.after(Moved(100, 0, 64)).larger == 1.0


@pytest.mark.parametrize("requests", [1, 3, 10])
def test_a_mix_begins_again_however_few_requests_it_began_with_and_however_long_it_has_lasted(requests: int) -> None:
    long = mixed(Moved(4000, 0, 400), 1000, Mix().after(Moved(requests, 0, requests)))
    assert long.after(Moved(76, 24, 400)).larger == pytest.approx(0.76)


def test_limits_of_an_even_mix_are_higher_by_what_it_cannot_use() -> None:
    even, writes = Mix().after(Moved(50, 50, 400)), Mix().after(Moved(0, 100, 400))
    assert (even.part, writes.part) == (0.5, 1.0)
    mixes = {"a": even, "b": writes}
    for _ in range(100):
        mixes = with_use(mixes, {"a": 47.5 / mixes["a"].filled, "b": 45.0}, {"a": 50.0, "b": 50.0}, 100.0)
    assert mixes["a"].part == pytest.approx(0.5 / 0.95)
    assert mixes["b"].part == 1.0
    low, high = mixes, mixes
    for _ in range(100):
        low, high = with_use(low, {"a": 10.0}, {"a": 50.0}, 100.0), with_use(high, {"a": 101.0}, {"a": 200.0}, 100.0)
    assert low["a"].part == 0.5 / LEAST_FILLED
    assert high["a"].part == pytest.approx(0.5)
    assert low["a"].after(Moved(0, 10**6, 400)).used(0.9, is_full=False).part < 1.01


def test_requests_drawn_at_random_are_even() -> None:
    draw, mix, found = random.Random(1), Mix(), []
    for _ in range(400):
        reads = sum(draw.random() < 0.5 for _ in range(5))
        mix = mix.after(Moved(reads, 5 - reads, 5))
        found.append(mix.larger)
    assert sum(found) / len(found) < 0.51
