"""Counters that are asked at other times than they are scraped: what was moved, or a refusal, never a peak too high."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elastio.units import MB
from elastio_adviser.counters import Counter, means
from elastio_adviser.rates import TraceError
from elastio_adviser.series import Series

BUSY_MB_S = 40.0


def steady(at_s: float) -> float:
    """The bytes until then, with 5 minutes of load and 25 of little."""
    whole, part = divmod(at_s, 1800)
    return (whole * 300 + min(part, 300)) * BUSY_MB_S * MB + at_s * 1e5


def asked(step_s: int, scrape_s: int, first_s: int = 0, phase_s: float = 0.0, count: int = 120) -> Counter:
    """The answers of a range query: each the last scrape before its time."""
    times = range(first_s, first_s + count * step_s, step_s)
    values = [(float(t), steady((t - phase_s) // scrape_s * scrape_s + phase_s)) for t in times if t >= phase_s]
    return Counter("db1 sda", "written", tuple(values), "f.json", "db1")


def series(*counters: Counter) -> list[Series]:
    return [part for part in means(counters) if isinstance(part, Series)]


def peak(found: list[Series]) -> float:
    return max(mb_s for each in found for _, _, mb_s in each.points)


def moved(found: list[Series]) -> float:
    return sum(seconds * mb_s for each in found for _, seconds, mb_s in each.points)


@pytest.mark.parametrize("phase_s", [0, 7, 31, 59])
@pytest.mark.parametrize("step_s", [5, 10, 15, 20, 30, 60])
def test_a_step_that_divides_the_scrape_interval_has_the_same_samples(step_s: int, phase_s: int) -> None:
    found = series(asked(step_s, 60, 60, phase_s, 1800 // step_s))
    assert peak(found) == pytest.approx(BUSY_MB_S + 0.1, rel=0.01)
    assert {seconds for each in found for _, seconds, _ in each.points} == {60.0}


@pytest.mark.parametrize("step_s", [25, 35, 40, 45, 50, 70, 80, 90, 100, 150])
def test_a_step_that_is_no_multiple_is_refused(step_s: int) -> None:
    with pytest.raises(TraceError) as refused:
        series(asked(step_s, 60))
    assert refused.value.code == "step"


def test_a_pause_of_the_load_is_no_missing_scrape() -> None:
    values = [0, 1, 3, 4, 4, 4, 4, 5, 9, 9, 10, 11, 15, 15, 15, *range(16, 27)]
    counter = Counter("sda", "read", tuple((15.0 * n, v * 1e9) for n, v in enumerate(values)), "f", "db1")
    assert peak(series(counter)) == pytest.approx(4e9 / 15 / MB)
    with pytest.raises(TraceError) as refused:  # too few changes in a row show it
        series(replace(counter, values=counter.values[:20]))
    assert refused.value.code == "step"


def test_another_device_of_the_host_shows_that_each_step_was_a_scrape() -> None:
    seldom = [0, 0, 0, 5, 5, 5, 5, 5, 5, 9, 9, 9]
    quiet = Counter("sda", "read", tuple((15.0 * n, v * 1e9) for n, v in enumerate(seldom)), "f", "db1")
    root = Counter("sdb", "read", tuple((15.0 * n, n * 1e6) for n in range(12)), "f", "db1")
    assert peak(series(quiet)) == pytest.approx(5e9 / 90 / MB)  # it may have been scraped each 90 s
    assert peak(series(quiet, root)) == pytest.approx(5e9 / 15 / MB)


def test_what_was_moved_between_two_windows_counts() -> None:
    whole = asked(60, 60, count=40)
    first, second = (Counter("db1 sda", "written", part, name, "db1") for part, name in
                     ((whole.values[:17], "a"), (whole.values[17:], "b")))  # fmt: skip
    assert series(second, first)[0].points == series(whole)[0].points
    assert moved(series(first, whole)) == moved(series(whole))


def test_a_restart_is_no_negative_throughput_and_two_servers_are_no_restart() -> None:
    rows = ((0.0, 5e12), (15.0, 5.1e12), (30.0, 1e9))
    assert series(Counter("sda", "read", rows, "f", "t"))[0].points[1][2] == pytest.approx(1e9 / 15 / MB)
    flapping = ((0.0, 5e12), (15.0, 5.1e12), (30.0, 5.05e12))
    with pytest.raises(TraceError) as refused:
        series(Counter("sda", "read", flapping, "f", "t"))
    assert refused.value.code == "counter"


def test_two_values_at_one_time_are_refused() -> None:
    with pytest.raises(TraceError) as refused:
        series(*(Counter("sda", "read", ((0.0, 1.0), (15.0, end)), "f", "t") for end in (2.0, 3.0)))
    assert refused.value.code == "overlap"


def test_two_servers_that_ask_at_other_times_are_refused() -> None:
    first, second = asked(60, 60, count=20), asked(60, 60, first_s=7, phase_s=3, count=20)
    with pytest.raises(TraceError) as refused:
        series(first, replace(second, source="g.json"))
    assert refused.value.code == "overlap"
