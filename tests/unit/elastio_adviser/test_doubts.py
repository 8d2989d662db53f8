"""What a recording cannot tell."""

from __future__ import annotations

import re

import pytest

from elastio.units import GIB, MB
from elastio_adviser.doubts import as_bursts, doubts, interval_s, saturation
from elastio_adviser.rates import Rate
from elastio_adviser.replay import Demand, demands
from elastio_adviser.volume_types import volume_type
from elastio_adviser.whatif import Question, answer

FINE = tuple(Rate(n, 1.0, 0.0, 100.0 if n < 10 else 0.0) for n in range(100))
COARSE = tuple(Rate(300.0 * n, 300.0, 0.0, 10.0) for n in range(300))


def said(rates: tuple[Rate, ...], mb_s: float, saturated: float | None = None, cold: bool = False) -> int:
    asked = Question(
        demands(rates, saturated), None, mb_s, 4 * mb_s, 500 * GIB, replayed=False,
        cold=(volume_type("sc1"),) if cold else (),
    )  # fmt: skip
    return len(doubts(rates, asked, answer(asked), saturated))


def test_a_long_fine_recording_below_the_limit_has_no_doubts() -> None:
    day = tuple(Rate(n, 1.0, 0.0, 10.0) for n in range(86400))
    assert said(day[:1], 100.0) == 1  # too short
    assert said(day, 100.0) == 0


@pytest.mark.parametrize(
    ("rates", "mb_s", "saturated", "cold", "count"),
    [
        (COARSE, 200.0, None, False, 1),  # coarse
        (FINE, 100.0, None, False, 2),  # short, and at the limit
        (FINE, 100.0, 100.0, False, 1),  # short
        (FINE, 50.0, None, False, 2),  # short, and from a faster device
        (FINE, 200.0, None, True, 3),  # short, the size of requests, and credits that do not last
        (COARSE, 200.0, None, True, 3),  # coarse, the size of requests, and credits that do not last
    ],
)
def test_each_doubt_is_told(
    rates: tuple[Rate, ...], mb_s: float, saturated: float | None, cold: bool, count: int
) -> None:
    assert said(rates, mb_s, saturated, cold) == count


def test_what_was_reached_is_what_was_seen_and_not_the_threshold() -> None:
    rates = tuple(Rate(n, 1.0, 0.0, 122.9 if n < 10 else 0.0) for n in range(100))
    asked = Question(demands(rates, None), None, 131.072, 500.0, 500 * GIB, replayed=False)
    told = " ".join(doubts(rates, asked, answer(asked), None))
    assert re.findall(r"reached ([\d.]+) MB/s", told) == ["122.9"]
    assert "--saturated 131.072" in told


def test_the_length_of_samples_is_that_under_load() -> None:
    merged = (Rate(0, 3600, 0, 0.1), *(Rate(3600 + n, 1.0, 0.0, 90.0) for n in range(3)), Rate(3603, 3600, 0, 0.1))
    assert interval_s(merged) == 1.0


def test_a_device_at_its_limit_wanted_more_and_a_faster_one_did_not() -> None:
    assert saturation(FINE, 100.0) == 100.0
    assert saturation(FINE, 105.0) == 105.0
    assert saturation(FINE, 200.0) is None
    assert saturation(FINE, 50.0) is None


def test_a_mean_may_have_been_one_burst() -> None:
    assert as_bursts(COARSE[:1], 100.0) == (Demand(0.0, 3000 * MB, 0.0), Demand(270.0, 0.0, 0.0))
    assert as_bursts((Rate(0, 10.0, 0, 0),), 100.0) == (Demand(10.0, 0.0, 0.0),)
    assert as_bursts((Rate(0, 10.0, 50.0, 50.0),), 100.0) == (Demand(0.0, 500 * MB, 500 * MB),)
