"""The program of an application that uses a volume beside others."""

from __future__ import annotations

import time
from typing import Any

import pytest

from elastio_testbed.guest.beside import LAG_S, Account, Pace, in_flight, run_until, turns_of


def test_requests_of_a_pace_begin_as_far_apart_as_their_bytes_take() -> None:
    pace = Pace(1000.0, 10.0)
    assert [pace.at(500, 10.0) for _ in range(3)] == [10.0, 10.5, 11.0]


def test_who_was_held_back_makes_up_for_a_moment_only() -> None:
    pace = Pace(1000.0, 10.0)
    pace.at(50, 10.0)
    begins = [pace.at(50, 20.0) for _ in range(4)]
    assert begins == pytest.approx([20.0, 20.0, 20.0, 20.0 - LAG_S + 0.15])


def test_without_a_rate_requests_begin_at_once() -> None:
    pace = Pace(0.0, 10.0)
    assert [pace.at(1 << 20, 12.0) for _ in range(2)] == [12.0, 12.0]


def test_an_interval_has_the_requests_that_ended_in_it() -> None:
    account = Account(100.0, 0.25)
    for n in range(20):
        account.add(100.1, 100.2 + n / 1000, 10)
    account.add(100.1, 100.3, 7)
    first, second = account.lines()
    assert first == {"interval": 0, "bytes": 200, "requests": 20, "p95_ms": 118.0, "p99_ms": 118.0}
    assert (second["interval"], second["bytes"], second["requests"]) == (1, 7, 1)


def test_the_99th_percentile_is_that_of_the_slowest_of_a_hundred() -> None:
    account = Account(100.0, 5.0)
    for n in range(101):
        account.add(101.0, 101.0 + n / 1000, 10)
    assert [(line["p95_ms"], line["p99_ms"]) for line in account.lines()] == [(95.0, 99.0)]


@pytest.mark.runs_programs
def test_a_command_that_ends_in_its_turn_is_an_error() -> None:
    with pytest.raises(OSError, match="true"):
        run_until("true", time.monotonic() + 60)


def test_turns_follow_each_other_from_the_begin() -> None:
    spec: dict[str, Any] = {"begins_s": 5.0, "turns": [{"seconds": 2.0}, {"seconds": 3.0}]}
    assert [(begins, ends) for _, begins, ends in turns_of(spec)] == [(5.0, 7.0), (7.0, 10.0)]


def test_requests_in_flight_are_the_time_that_they_took_over_the_time_that_passed() -> None:
    before, after = (f"  10 0 80 5 20 0 160 7 0 9 {ms} 0 0 0 0 0 0\n" for ms in (1000, 9000))
    assert in_flight((100.0, before), (102.0, after)) == 4.0
