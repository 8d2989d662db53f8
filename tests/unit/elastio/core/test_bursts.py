"""Bursts as they are found in samples."""

from __future__ import annotations

import math

import pytest

from elastio.core.bursts import KEPT, BurstWatch, LoadRun, PastBurst, own_rate, past_loads, pauses, with_run
from elastio.core.hindsight import Pause

BACKING = 20.0


def watched(*loads: tuple[float, float], watch: BurstWatch | None = None) -> BurstWatch:
    """The watch after (seconds, MB/s written) in samples of a second; quiet time is one run, as in the history."""
    watch = watch or BurstWatch()
    at = 0.0 if math.isinf(watch.seen_wall) else watch.seen_wall
    for seconds, mb_s in loads:
        steps = [seconds] if mb_s == 0 else [1.0] * int(seconds)
        for step in steps:
            watch = with_run(watch, LoadRun(at, step, mb_s * step, mb_s * step), BACKING, 0.3, 0.25)
            at += step
    return watch


def test_a_burst_has_its_bytes_its_end_and_its_fastest_sample() -> None:
    found = watched((10, 0), (5, 20), (6, 80), (30, 0)).bursts
    assert found == (PastBurst(10.0, 21.0, 580.0, 80.0),)


def test_a_burst_that_goes_on_is_not_known_yet() -> None:
    watch = watched((10, 0), (5, 20))
    assert watch.bursts == ()
    assert len(watched((5, 0), watch=watch).bursts) == 1


@pytest.mark.parametrize(("pause_s", "bursts"), [(1, 1), (3, 2)])
def test_a_pause_of_two_seconds_ends_a_burst(pause_s: float, bursts: int) -> None:
    found = watched((5, 20), (pause_s, 0), (5, 20), (30, 0)).bursts
    assert len(found) == bursts
    assert sum(b.written_mb for b in found) == 200


def test_a_low_load_neither_begins_nor_lengthens_a_burst() -> None:
    found = watched((20, 4), (5, 20), (20, 4)).bursts
    assert [(b.begun_wall, b.ended_wall, b.written_mb) for b in found] == [(20, 25, 100)]


def test_a_burst_of_reads_alone_is_not_kept() -> None:
    watch = BurstWatch()
    for at in range(5):
        watch = with_run(watch, LoadRun(at, 1.0, 0.0, 20.0), BACKING, 0.3, 0.25)
    assert watch.current is not None
    assert watched((30, 0), watch=watch).bursts == ()


@pytest.mark.parametrize("jump_s", [100.0, -100.0])
def test_what_nobody_saw_ends_a_burst(jump_s: float) -> None:
    watch = watched((100, 0), (5, 20))
    later = with_run(watch, LoadRun(105 + jump_s, 1.0, 20.0, 20.0), BACKING, 0.3, 0.25)
    assert [b.written_mb for b in later.bursts] == [100]
    assert later.current is not None
    assert later.current.begun_wall == 105 + jump_s


def test_only_the_last_bursts_are_kept() -> None:
    watch = watched(*((2, 20), (10, 0)) * (KEPT + 5))
    assert len(watch.bursts) == KEPT
    assert watch.bursts[-1].begun_wall == pytest.approx((KEPT + 4) * 12)


@pytest.mark.parametrize(
    ("peak", "rate"),
    [(10, 10), (20, math.inf), (24, math.inf), (40, 40), (70, math.inf), (120, math.inf), (0, math.inf)],
)
def test_a_rate_that_neither_volume_explains_is_the_applications_own(peak: float, rate: float) -> None:
    assert own_rate(peak, BACKING, 80.0) == rate


def test_pauses_and_gaps_follow_their_bursts() -> None:
    found = watched((10, 20), (20, 0), (10, 20), (40, 0), (10, 20), (5, 0)).bursts
    assert [load.pause_s for load in past_loads(found, BACKING, 80)] == [20, 40, 30]
    assert pauses(found) == (Pause(20, 200, 10), Pause(40, 200, 10))
    assert math.isinf(past_loads(found[:1], BACKING, 80)[0].pause_s)


def test_nothing_is_known_of_no_burst() -> None:
    assert past_loads((), BACKING, 80) == ()
    assert pauses(()) == ()
