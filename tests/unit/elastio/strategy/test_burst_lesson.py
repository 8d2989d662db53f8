"""What the account of a burst teaches of its bandwidth."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from elastio.codec import decode, encode
from elastio.strategy.account import AtCap, Totals, totals_of
from elastio.strategy.bandwidth import LEAST_INSTANTS, LEAST_SEEN, MOST_UNKNOWN, Before, best_mb_s, lesson_of
from elastio.strategy.memory import BurstLesson
from elastio.strategy.waits import sample_of
from elastio.units import MB
from tests.unit.elastio.strategy.wait_runs import Stretch, moments


def totals(bandwidth_s: float, seconds: float = 10.0, unknown_s: float = 0.0, instants: int = 100) -> Totals:
    waited = AtCap(bandwidth_s, bandwidth_s * 20 * MB)
    return Totals(
        seconds=seconds,
        unclear_s=unknown_s,
        least=waited,
        likely=waited,
        most=waited,
        moved_bytes=int(seconds * 8 * MB),
        instants=instants,
    )


def taught(seconds: float = 10.0, **groups: Totals) -> BurstLesson | None:
    return lesson_of(7.0, 64.0, groups, seconds, 80 * MB)


def test_a_burst_teaches_what_the_cgroup_shows_that_waited_longest_for_bandwidth() -> None:
    asleep = totals(0.5)
    found = taught(logs=asleep, db=totals(4.0), web=totals(1.0))
    assert found is not None
    assert (found.at, found.mb_s, found.seconds, found.waited_s) == (7.0, 64.0, 10.0, 4.0)
    assert [found.waited_mb, found.moved_mb] == pytest.approx([80.0, 80.0])


def test_waiting_below_the_limit_is_told_apart_with_what_moves_meanwhile() -> None:
    below = replace(totals(1.0), latency_s=2.0, latency_bytes=30.0 * MB)
    found = taught(db=below)
    assert found is not None
    assert [found.waited_s, found.waited_mb] == pytest.approx([1.0, 20.0])
    assert [found.latency_s, found.latency_mb] == pytest.approx([2.0, 30.0])


def test_waiting_at_a_limit_of_the_cgroup_itself_is_below_that_of_the_cache() -> None:
    held = replace(totals(6.0), limited=AtCap(5.0, 50.0 * MB))
    found = taught(20.0, db=held, web=totals(0.5))
    assert found is not None
    assert [found.waited_s, found.waited_mb] == pytest.approx([1.0, 70.0])
    assert [found.latency_s, found.latency_mb] == pytest.approx([5.0, 50.0])
    other = taught(db=held, web=totals(3.0))
    assert other is not None
    assert other.waited_s == pytest.approx(3.0), "it waited longer for the cache"
    alone = taught(logs=totals(0.0), db=replace(held, limited=held.likely))
    assert alone is not None
    assert [alone.waited_s, alone.latency_s] == pytest.approx([0.0, 6.0])


def test_a_lesson_of_an_earlier_release_has_no_waiting_below_the_limit() -> None:
    lesson = BurstLesson(7.0, 64.0, 10.0, 4.0, 80.0, 90.0)
    kept = encode(lesson)
    del kept["latency_s"], kept["latency_mb"]
    assert decode(BurstLesson, kept) == lesson


def test_what_a_burst_did_before_it_had_its_cache_is_in_the_rest_of_it() -> None:
    found = lesson_of(7.0, 64.0, {"db": totals(4.0)}, 10.0, 80 * MB, Before(90.0, 300 * MB))
    assert found == BurstLesson(7.0, 64.0, 100.0, 4.0, 80.0, 380.0)


def test_what_is_seen_too_little_of_or_is_unknown_teaches_nothing() -> None:
    assert taught() is None
    assert taught(db=totals(4.0, instants=LEAST_INSTANTS - 1)) is None
    assert taught(db=totals(4.0, instants=LEAST_INSTANTS)) is not None
    assert taught(db=totals(4.0, unknown_s=10.1 * MOST_UNKNOWN)) is None
    assert taught(9.9 / LEAST_SEEN, db=totals(4.0)) is not None
    assert taught(10.1 / LEAST_SEEN, db=totals(4.0)) is None
    met = replace(totals(4.0), moved_bytes=int(79 * MB * LEAST_SEEN))
    assert taught(db=met) is None, "looks have met few of the bytes, and so perhaps no wait"


# Seconds in which the steps of a workflow copy their files in, compute, and copy them out, at 8 MB/s; and what copying
# moved in a second. Measured in a guest.
STEPS = [
    (0.62, 4.6), (3.29, 0), (1.51, 7.5), (1.37, 8.3), (6.34, 0), (3.76, 0), (0.86, 13.2), (7.05, 0), (1.51, 7.5),
    (1.38, 8.2), (3.05, 0), (1.04, 8.2),
]  # fmt: skip
WORKFLOW = [Stretch(seconds, waiting=int(mb_s > 0), mb_s=mb_s) for seconds, mb_s in STEPS]
LOOK = 50  # moments


def seen_of(pause: int, seed: int) -> BurstLesson | None:
    """What the workflow teaches, looked at for a second after pauses of up to so many looks."""
    found = [replace(each, delayed_s=None) for each in moments(WORKFLOW)]
    chance, counted, since = random.Random(seed), Totals(), 0
    while (begin := since + chance.randrange(pause * LOOK)) + LOOK < len(found):
        look, last = sample_of(found[begin : begin + LOOK + 1]), found[begin + LOOK]
        assert look is not None
        moved_bytes = last.disk.moved_bytes - found[since].disk.moved_bytes
        counted = counted.plus(totals_of(look, 7.13).standing_for(last.at - found[since].at, moved_bytes))
        since = begin + LOOK
    end = found[-1]
    return lesson_of(0.0, 8.0, {"db": counted}, end.at, end.disk.moved_bytes)


@pytest.mark.parametrize("pause", [1, 2, 4])
def test_some_looks_at_a_burst_of_half_a_minute_show_its_b_star(pause: int) -> None:
    """Of the waits they meet between a third and twice as much, and the bytes are known."""
    waited_s = sum(seconds for seconds, mb_s in STEPS if mb_s)
    for seed in range(12):
        lesson = seen_of(pause, seed)
        assert lesson is not None
        true = replace(lesson, waited_s=waited_s, waited_mb=lesson.moved_mb)
        assert best_mb_s([lesson], 0.08) == pytest.approx(best_mb_s([true], 0.08), rel=0.1)
