"""Which seconds are overloaded, which bounds were kept in them, and which bars that meets."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest

from elastio_testbed.bars import missed
from elastio_testbed.bars_report import section, to_text
from elastio_testbed.sharing.controls import NONE, SHARES, STRICT
from elastio_testbed.sharing.courses import (
    AS_PUBLISHED,
    BESIDE_WRITER,
    COURSE_S,
    LARGE,
    SMALL,
    WITHIN_SHARE,
    Run,
    Wants,
    courses,
    is_overloaded,
    run_of_intervals,
    run_of_json,
)
from elastio_testbed.sharing.slo import (
    Commits,
    bars,
    calm_kept,
    commits_of_intervals,
    commits_of_json,
    overloaded_got,
    overloaded_kept,
    restored,
    total_over_none,
)
from elastio_testbed.sharing.slo_report import latencies

C = 16.0
SCALE = 0.04
ALL_WAITED = [Commits(NONE, (3.0,), (900.0, 900.0), 8.0), Commits(SHARES, (3.0,), (900.0, 99.0), 8.0)]
Got = Callable[[Wants], tuple[tuple[float, float], tuple[float | None, float | None]]]


def fair(wants: Wants) -> tuple[tuple[float, float], tuple[float | None, float | None]]:
    """What both get, and their 95th percentiles, where the first application gets at most two thirds."""
    first, second = (1.0 if share is None else share for share in wants)
    first = min(first, max(2 / 3, 1 - second))
    return (first * C, min(second, 1 - first) * C), (50.0 if first else None, 200.0 if second else None)


def crowded(wants: Wants) -> tuple[tuple[float, float], tuple[float | None, float | None]]:
    """As without control: who has the most in flight gets the most, and all wait."""
    mb_s, p95_ms = fair(wants)
    if 0 in wants:
        return mb_s, p95_ms
    return (1.0, C - 1.0), (500.0, 500.0)


def runs_of(control: str, got: Got, scale: float = SCALE) -> list[Run]:
    found = []
    for course, steps in courses(scale).items():
        wants = [(step.wishes[0].share, step.wishes[1].share) for step in steps for _ in range(step.seconds)]
        mb_s, p95_ms = zip(*map(got, wants), strict=True)
        each = tuple((step.seconds, (step.wishes[0].share, step.wishes[1].share)) for step in steps)
        found.append(Run(control, course, each, mb_s, p95_ms, (2.0,) * len(wants)))
    return found


def all_runs() -> list[Run]:
    """As everything is to be."""
    return [*runs_of(NONE, crowded), *runs_of(SHARES, fair)]


def run_with(*steps: tuple[int, Wants, float | None], course: str = WITHIN_SHARE, second: float | None = 100.0) -> Run:
    """A run with shares. Of each step the seconds, the wishes, and the 95th percentile of the first application."""
    p95_ms = tuple((first, second) for seconds, _, first in steps for _ in range(seconds))
    lengths = tuple((seconds, wants) for seconds, wants, _ in steps)
    return Run(SHARES, course, lengths, ((1.0, 1.0),) * len(p95_ms), p95_ms, (0.0,) * len(p95_ms))


# --- seconds -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wants", "is_overloaded"),
    [((0.4, 0.54), False), ((0.4, 0.56), True), ((0.0, 0.96), True), ((0.1, None), True), ((0.6, 0.0), False)],
)
def test_from_more_than_95_percent_of_the_capacity_on_a_second_is_overloaded(wants: Wants, is_overloaded: bool) -> None:
    assert [second.is_overloaded for second in run_with((1, wants, 1.0)).seconds] == [is_overloaded]


def test_the_second_after_an_overload_still_has_its_queue() -> None:
    run = run_with((2, (0.0, 0.5), None), (2, (1.0, 0.5), 1.0), (3, (0.0, 0.5), None))
    assert [second.is_calm for second in run.seconds] == [True, True, False, False, False, True, True]


def test_calm_seconds_count_once_for_each_application_that_wants_something() -> None:
    run = run_with((2, (0.0, 0.5), None), (1, (0.4, 0.5), 101.0), (1, (0.4, 0.5), 100.0))
    assert calm_kept([run], SHARES) == pytest.approx(5 / 6)
    assert calm_kept([replace(run, course=BESIDE_WRITER)], SHARES) is None


def test_each_application_has_its_own_bound() -> None:
    run = run_with((1, (0.4, 1.0), 200.0), second=300.0)
    assert [overloaded_kept([run], WITHIN_SHARE, SHARES, each) for each in (0, 1)] == [0.0, 1.0]


def test_a_second_in_which_all_requests_waited_is_not_within_the_bound() -> None:
    run = run_with((1, (0.4, 1.0), 50.0), (1, (0.4, 1.0), None))
    assert overloaded_kept([run], WITHIN_SHARE, SHARES) == 0.5


def test_overloads_without_the_first_application_do_not_count_for_it() -> None:
    run = run_with((3, (0.0, 1.0), None), (1, (0.4, 1.0), 50.0))
    assert overloaded_kept([run], WITHIN_SHARE, SHARES) == 1.0


# --- courses -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [0.01, SCALE, 0.3, 1.0])
def test_every_course_has_each_kind_of_second(scale: float) -> None:
    runs = {run.course: run.seconds for run in runs_of(SHARES, fair, scale)}
    assert all(any(second.is_calm for second in runs[course]) for course in (AS_PUBLISHED, WITHIN_SHARE))
    within = [second.is_overloaded for second in runs[WITHIN_SHARE] if second.wants_any(0)]
    assert set(within) == {True, False}
    assert all(second.is_overloaded for second in runs[AS_PUBLISHED] if second.wants_any(0))


def test_at_scale_1_a_course_is_the_published_one() -> None:
    steps = courses(1.0)[AS_PUBLISHED]
    assert (sum(step.seconds for step in steps), {step.seconds for step in steps}) == (COURSE_S, {50})
    assert {step.wishes[0].share for step in steps} == {0.0, 1.0}
    seconds = [step.wishes[1].share or 0.0 for step in steps]
    assert (seconds[0], seconds[-1]) == (0.4, 1.0)
    assert all(later > earlier for earlier, later in pairwise(seconds))


def test_what_two_services_report_is_one_application() -> None:
    steps = courses(SCALE)[BESIDE_WRITER]
    first = [{"interval": n, "bytes": 1_500_000, "p95_ms": ms} for n in range(8) for ms in (20.0, 30.0)]
    second = [{"interval": 9, "bytes": 4_000_000, "p95_ms": 70.0}]
    run = run_of_intervals(NONE, BESIDE_WRITER, steps, [first, second], {9: 7.5})
    assert run.steps == ((8, (0.6, 0.0)), (8, (0.6, None)), (8, (0.1, 0.0)), (8, (0.1, None)))
    assert (run.mb_s[0], run.p95_ms[0]) == ((3.0, 0.0), (30.0, None))
    assert (run.mb_s[9], run.p95_ms[9]) == ((0.0, 4.0), (None, 70.0))
    assert run.in_flight[8:10] == (0.0, 7.5)


# --- bars ----------------------------------------------------------------------------------------------------


def test_all_bars_are_met_where_everything_is_as_it_has_to_be() -> None:
    found = bars(all_runs(), ALL_WAITED, C)
    assert missed(found) == ()
    assert len({bar.name for bar in found}) == len(found)


def late(wants: Wants) -> tuple[tuple[float, float], tuple[float | None, float | None]]:
    mb_s, (first, second) = fair(wants)
    return mb_s, (101.0 if first and is_overloaded(wants) else first, second)


def starved(wants: Wants) -> tuple[tuple[float, float], tuple[float | None, float | None]]:
    (first, second), p95_ms = fair(wants)
    return (0.75 * first if second else first, second), p95_ms


def slow(wants: Wants) -> tuple[tuple[float, float], tuple[float | None, float | None]]:
    mb_s, (first, _) = fair(wants)
    return mb_s, (first, 301.0)


@pytest.mark.parametrize(
    ("got", "names"),
    [
        (late, ["App1 within 100 ms while App2 overloads"]),
        (slow, ["not overloaded: seconds within their bound"]),
        (
            starved,
            [
                "App1 of its wish while App2 overloads",
                "as published, overloaded: total over no control",
                "large requests beside a writer: throughput over that alone",
                "small requests beside a writer: throughput over that alone",
            ],
        ),
    ],
)
def test_a_bar_is_missed(got: Got, names: list[str]) -> None:
    runs = [*runs_of(NONE, crowded), *runs_of(SHARES, got)]
    assert [bar.name for bar in missed(bars(runs, ALL_WAITED, C))] == names


def test_a_baseline_that_keeps_the_bounds_misses_its_bars() -> None:
    found = [bar.name for bar in missed(bars([*runs_of(NONE, fair), *runs_of(SHARES, fair)], ALL_WAITED, C))]
    assert found == [
        "App1 within 100 ms while App2 overloads, no control",
        "large requests beside a writer: throughput over that alone, no control",
        "small requests beside a writer: throughput over that alone, no control",
    ]


def test_bars_without_a_measurement_are_missed() -> None:
    assert [bar.measured for bar in bars([], [], C)] == [None] * len(bars([], [], C))
    assert len(missed(bars([], [], C))) == len(bars([], [], C))


def test_what_was_got_of_a_wish_counts_only_while_the_second_overloads() -> None:
    assert overloaded_got(runs_of(SHARES, starved), SHARES, C) == pytest.approx(0.75)
    assert total_over_none(all_runs(), SHARES) == pytest.approx(1.0)


def test_what_a_writer_leaves_is_compared_with_what_was_moved_alone_without_control() -> None:
    runs = all_runs()
    assert restored(runs, LARGE, NONE) == pytest.approx(1.0 / (0.6 * C))
    assert restored(runs, SMALL, NONE) == pytest.approx(1.0 / (0.1 * C))
    assert restored(runs, SMALL, SHARES) == pytest.approx(1.0)
    assert restored(runs, SMALL, STRICT) is restored(runs_of(SHARES, fair), SMALL, SHARES) is None


def test_the_first_seconds_beside_a_writer_do_not_count() -> None:
    run = next(run for run in all_runs() if (run.course, run.control) == (BESIDE_WRITER, SHARES))
    begins = 8  # of the large requests beside the writer
    mb_s = [*run.mb_s[:begins], *([(0.0, 0.0)] * 3), *run.mb_s[begins + 3 :]]
    runs = [*runs_of(NONE, crowded), replace(run, mb_s=tuple(mb_s))]
    assert restored(runs, LARGE, SHARES) == pytest.approx(1.0)


def test_durable_writes_count_from_the_second_interval_beside_tar_on() -> None:
    found = Commits(SHARES, (200.0,), (900.0, 20.0, 101.0), 8.0)
    assert found.worst_ms == 101.0
    assert replace(found, beside_ms=(900.0, None, 101.0)).worst_ms is None
    assert replace(found, beside_ms=(900.0,)).worst_ms is None
    names = [bar.name for bar in missed(bars(all_runs(), [found], C))]
    assert names == ["durable writes of 4 KiB beside tar: 99th percentile, ms"]


def test_durable_writes_of_two_services_are_as_late_as_the_later_ones() -> None:
    lines = [{"interval": n, "p99_ms": ms} for n, ms in ((0, 2.0), (0, 3.0), (1, 9.0), (2, 8.0), (4, 7.0))]
    found = commits_of_intervals(SHARES, lines, 1, 4, 8.125)
    assert found == Commits(SHARES, (3.0,), (9.0, 8.0, None), 8.12)
    assert commits_of_json(json.loads(json.dumps(found.to_json()))) == found


# --- results -------------------------------------------------------------------------------------------------


def document() -> dict[str, object]:
    runs = all_runs()
    return {
        "experiment": "slo",
        "machine": "A processor",
        "hypervisor": "uml",
        "accelerator": "none",
        "kernel": "6.1.0",
        "date": "2026-01-01T00:00:00+00:00",
        "code": "0.1.0",
        "scale": SCALE,
        "bandwidth": 0.5,
        "capacity_mb_s": C,
        "absent": [{"control": "BFQ", "reason": "the kernel has none"}],
        "bars": [bar.to_json() for bar in bars(runs, ALL_WAITED, C)],
        "runs": [run.to_json() for run in runs],
        "commits": [each.to_json() for each in ALL_WAITED],
    }


def test_a_stored_run_is_the_run() -> None:
    for run in all_runs():
        stored = json.loads(json.dumps(run.to_json()))
        assert run_of_json(stored).to_json() == stored
        assert run_of_json(stored).seconds[-1].wants == run.seconds[-1].wants


def test_tables_have_every_control_and_the_published_figures() -> None:
    kept, beside, durable, *figures = latencies(document())
    assert [row[0] for row in kept.rows] == [NONE, SHARES]
    assert beside.rows[0] == ("large requests", "10", "100", "31", "59")
    assert [row[0] for row in figures[-1].rows] == ["9.6 + 0.0", "9.6 + all", "1.6 + 0.0", "1.6 + all"]
    assert durable.rows[1] == (SHARES, "3", "900, 99", "8.0")
    assert figures[0].rows[1][2] == "10.7 + 5.3; 50, 200; 2.0"


def test_text_and_section_name_bars_and_absent_controls() -> None:
    assert "absent: BFQ: the kernel has none" in to_text(document())
    assert "#### App1 within its share" in section(document())
