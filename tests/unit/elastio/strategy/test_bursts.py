"""Bursts as they are found in samples."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from elastio.strategy.bursts import (
    KEPT,
    KEPT_RATES,
    OWN_RATE,
    BurstWatch,
    LoadRun,
    PastBurst,
    given_mb_s,
    own_rate,
    past_loads,
    pauses,
    unwaited_s,
    with_run,
)
from elastio.strategy.hindsight import Pause
from tests.values import present

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
    assert found == (PastBurst(10.0, 21.0, 580.0, 80.0, moved_mb_s=80.0, bare_mb_s=80.0, last_mb_s=(80.0, 80.0)),)


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


CACHED = PastBurst(0.0, 10.0, 300.0, 45.0, offered_mb_s=80.0)
# All of it fits into its ten seconds at 22 MB/s.
LATE = replace(CACHED, written_mb=220.0, cached_mb_s=(80, 78, 45, 22, 22, 22, 22))


@pytest.mark.parametrize(
    ("cached_mb_s", "rate"),
    [
        ((22, 22, 22), 22),  # near the backing volume's 20: the cache offered 80
        ((45, 25, 24, 22, 23, 25), 25),  # one that stands out
        ((80, 78, 60), math.inf),
        ((30, 22), math.inf),  # too few
        ((45, 22, 22), math.inf),  # some of so few are of parts of a second
        ((12, 12, 12), math.inf),  # the end of a burst that has written 20 without a cache
    ],
)
def test_on_a_cache_a_rate_below_what_it_offers_is_the_applications_own(
    cached_mb_s: tuple[float, ...], rate: float
) -> None:
    (found,) = past_loads([replace(CACHED, cached_mb_s=cached_mb_s)], BACKING, 80)
    assert found.rate_mb_s == rate


@pytest.mark.parametrize(
    ("burst", "rate"),
    [
        (LATE, 22),
        (replace(LATE, written_mb=300.0), math.inf),  # it has written more than that rate explains
        (replace(LATE, cached_mb_s=LATE.cached_mb_s[::-1]), math.inf),
        (replace(LATE, cached_mb_s=(80, 78, 80, 79, 50, 40, 5, 5)), math.inf),  # the end of it, and what follows
    ],
)
def test_an_application_that_catches_up_shows_its_own_rate_afterwards(burst: PastBurst, rate: float) -> None:
    (found,) = past_loads([burst], BACKING, 80)
    assert found.rate_mb_s == rate


def test_a_burst_that_the_backing_volume_limited_is_as_fast_as_the_fastest_on_a_cache() -> None:
    limited, slow = PastBurst(20.0, 30.0, 200.0, 20.0), PastBurst(40.0, 50.0, 90.0, 9.0)
    own = [replace(CACHED, cached_mb_s=(rate,) * 3) for rate in (24.0, 30.0)]
    assert [load.rate_mb_s for load in past_loads([*own, limited, slow], BACKING, 80)] == [24, 30, 30, 9]
    small = PastBurst(0.0, 10.0, 60.0, 6.0, (6.0,) * 3, 80.0)
    busy_in_part = replace(limited, written_mb=120.0)
    assert [load.rate_mb_s for load in past_loads([small, busy_in_part], BACKING, 80)] == [6, 20]


def test_a_volume_that_was_used_throughout_does_not_show_how_fast_the_application_is() -> None:
    """It may be as much faster as a rate that shows is at the least."""
    small, limited = PastBurst(0.0, 10.0, 60.0, 6.0, (6.0,) * 3, 80.0), PastBurst(20.0, 30.0, 200.0, 20.0)
    assert [load.rate_mb_s for load in past_loads([small, limited], BACKING, 80)] == [6, 25]


def test_a_burst_that_never_used_all_of_the_backing_volume_wrote_at_its_own_rate() -> None:
    """One that did may have wanted any more, also if most of it was read. Two samples may be of parts of a second."""
    found = [watched((10, 0), (seconds, mb_s), (30, 0)).bursts for seconds, mb_s in ((9, 19.2), (9, 19.6), (2, 19.2))]
    assert [past_loads(bursts, BACKING, 80)[0].rate_mb_s for bursts in found] == [19.2, math.inf, math.inf]
    watch = BurstWatch()
    for at in range(9):
        watch = with_run(watch, LoadRun(at, 1.0, 17.0, 20.0), BACKING, 0.3, 0.25)
    assert past_loads(watched((30, 0), watch=watch).bursts, BACKING, 80)[0].rate_mb_s == math.inf


def test_a_burst_waited_at_what_the_backing_volume_has_shown_to_give() -> None:
    """It gives 18 MB/s, not the 20 that are configured: a burst wrote faster as soon as it had a cache."""
    (slow,) = watched((10, 0), (9, 18), (30, 0)).bursts
    assert (given_mb_s([slow], BACKING), past_loads([slow], BACKING, 80)[0].rate_mb_s) == (BACKING, 18)
    begun = watched((10, 0), (5, 18), (2, 40))
    for rate, given, own in ((79, 18, math.inf), (60, 18, 60), (18, BACKING, 18)):
        watch = begun
        for at in range(17, 27):
            watch = with_run(watch, LoadRun(at, 1.0, rate, rate, 80.0), BACKING, 0.3, 0.25)
        known = [*watched((5, 30), (30, 0), watch=watch).bursts, slow]  # at last its cache is full
        assert given_mb_s(known, BACKING) == given
        assert past_loads(known, BACKING, 80)[1].rate_mb_s == own


def test_for_how_long_bursts_have_not_waited_is_counted_from_the_last_one_that_did_or_had_a_cache() -> None:
    waited, first, last = watched((10, 0), (9, 20), (30, 0), (8, 15), (30, 0), (7, 15), (30, 0)).bursts
    assert [unwaited_s(known, BACKING) for known in ((), (waited,), (waited, first, last))] == [0, 0, 15]
    assert unwaited_s((first, replace(first, offered_mb_s=80.0), last), BACKING) == 7
    fast = replace(first, bare_mb_s=15.0, cached_mb_s=(60.0,) * 5, offered_mb_s=80.0)
    assert unwaited_s((fast, last), BACKING) == 0, "it gives no more"


def test_a_peak_is_a_rate_if_nobody_knows_its_cache_and_the_burst_had_whole_samples() -> None:
    """40 MB/s on a cache of 40 may be its limit, and of three samples none may be of a whole second."""
    longer = PastBurst(0.0, 5.0, 120.0, 40.0)
    assert past_loads([longer], BACKING, 80)[0].rate_mb_s == 40
    assert past_loads([longer], BACKING, 40)[0].rate_mb_s == math.inf
    assert past_loads([replace(longer, ended_wall=3.0)], BACKING, 80)[0].rate_mb_s == math.inf
    assert (
        past_loads([replace(longer, cached_mb_s=(40.0, 38.0), offered_mb_s=80.0)], BACKING, 80)[0].rate_mb_s == math.inf
    )


def test_a_burst_that_its_cache_limited_is_as_fast_as_one_on_a_faster_cache_or_a_little_faster_than_it_was() -> None:
    """Else the small cache that fits would be followed by a fast one, and that by a small one again."""
    on_fast, on_small = (
        replace(CACHED, cached_mb_s=(24.0,) * 3),
        replace(CACHED, cached_mb_s=(24.0,) * 3, offered_mb_s=25),
    )
    assert [load.rate_mb_s for load in past_loads([on_fast, on_small], BACKING, 80)] == [24, 24 / OWN_RATE]
    assert [load.rate_mb_s for load in past_loads([on_small, on_fast], BACKING, 80)] == [24, 24]
    slower = replace(on_fast, cached_mb_s=(21.0,) * 3)
    assert [load.rate_mb_s for load in past_loads([on_small, slower], BACKING, 80)] == [24, 21]
    faster = replace(on_fast, cached_mb_s=(45.0,) * 3)
    assert [load.rate_mb_s for load in past_loads([faster, on_small], BACKING, 80)] == [45, 45]
    assert past_loads([on_small], BACKING, 80)[0].rate_mb_s == math.inf
    on_slower = PastBurst(0.0, 10.0, 60.0, 14.0, (14.0,) * 3, 20.0)
    assert [load.rate_mb_s for load in past_loads([on_slower, on_small], BACKING, 80)] == [14, math.inf]


def test_a_burst_that_made_up_for_what_was_late_was_not_limited_by_its_cache() -> None:
    """At 24 of 25 MB/s first, and at 21 from then on: that is its own rate, although a cache of 25 is hardly faster."""
    made_up = PastBurst(0.0, 10.0, 210.0, 24.0, (21.0,) * 6, 25.0)
    assert past_loads([made_up], BACKING, 80)[0].rate_mb_s == 21
    assert past_loads([replace(made_up, peak_mb_s=22.0)], BACKING, 80)[0].rate_mb_s == math.inf, "never faster"
    fastest = replace(made_up, cached_mb_s=(24.0,) * 6, peak_mb_s=60.0)
    assert past_loads([fastest], BACKING, 80)[0].rate_mb_s == math.inf, "another cache was faster before"


def test_a_burst_keeps_its_last_whole_samples_on_a_cache() -> None:
    watch = with_run(BurstWatch(), LoadRun(-1.0, 0.5, 10.0, 10.0, 0), BACKING, 0.3, 0.25)
    watch = with_run(watch, LoadRun(-0.5, 0.1, 8.0, 8.0, 80), BACKING, 0.3, 0.25)
    assert present(watch.current).cached_mb_s == ()
    for at, (mb_s, offered) in enumerate(((20, 0), (45, 80), (22, 80), (23, 80), (24, 80))):
        watch = with_run(watch, LoadRun(float(at), 1.0, mb_s, mb_s, offered), BACKING, 0.3, 0.25)
    watch = with_run(watch, LoadRun(5.0, 0.1, 8.0, 8.0, 80), BACKING, 0.3, 0.25)
    assert present(watch.current).cached_mb_s == (45, 22, 23, 24)
    assert present(watch.current).offered_mb_s == 80
    watch = with_run(watch, LoadRun(5.1, 1.0, 30.0, 30.0, 500), BACKING, 0.3, 0.25)
    assert (present(watch.current).cached_mb_s, present(watch.current).offered_mb_s) == ((30,), 500)
    for at in range(KEPT_RATES + 5):
        watch = with_run(watch, LoadRun(6.1 + at, 1.0, 30.0 + at, 30.0 + at, 500), BACKING, 0.3, 0.25)
    assert present(watch.current).cached_mb_s == tuple(35.0 + at for at in range(KEPT_RATES))


def test_pauses_and_gaps_follow_their_bursts() -> None:
    watch = watched((10, 20), (20, 0), (10, 20), (40, 0), (10, 20), (5, 0))
    found = watch.bursts
    assert [load.pause_s for load in past_loads(found, BACKING, 80)] == [20, 40, 30]
    assert pauses(watch, BACKING, 80) == (Pause(0, 0, 0), Pause(20, 200, 10), Pause(40, 200, 10))
    assert math.isinf(past_loads(found[:1], BACKING, 80)[0].pause_s)


def test_nothing_is_known_of_no_burst() -> None:
    assert past_loads((), BACKING, 80) == ()
    assert pauses(watched((30, 0)), BACKING, 80) == ()


def test_the_time_before_the_first_burst_is_a_pause_as_far_as_it_was_seen() -> None:
    watch = watched((600, 0), (10, 24), (5, 0))
    assert pauses(watch, BACKING, 80) == (Pause(600, 0, 0),)
    many = watched(*((2, 20), (10, 0)) * (KEPT + 5))
    assert len(pauses(many, BACKING, 80)) == KEPT - 1, "the first burst is forgotten"


def test_a_pause_knows_the_own_rate_of_the_burst_before_it() -> None:
    watch = watched((10, 9), (20, 0), (10, 9), (5, 0))
    assert [pause.rate_mb_s for pause in pauses(watch, BACKING, 80)] == [math.inf, 9]
