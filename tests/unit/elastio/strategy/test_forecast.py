"""The next burst, learned from the bursts before it."""

from __future__ import annotations

import random
from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastio.strategy.forecast import (
    MISSES,
    Basis,
    Burst,
    attempts,
    forecast,
    is_silent,
    quantile,
    recent_errors,
    steadiest,
)
from elastio.units import GB
from tests.values import present

STEADILY = settings(deadline=None, derandomize=True, database=None)
TOLERANCE_S = 10.0


def by_gaps(gaps: list[float], seconds: float = 30.0) -> list[Burst]:
    """Bursts of `seconds`, the first at 0, with these gaps between them."""
    begins = accumulate(gaps, lambda at, gap: at + seconds + gap, initial=0.0)
    return [Burst(at, at + seconds, 4 * GB) for at in begins]


def expected_after(bursts: list[Burst]) -> float | None:
    found = forecast(bursts, bursts[-1].ended_at, TOLERANCE_S)
    return None if found is None else found.begins_at


def bought_ahead(bursts: list[Burst], least: float = 0.8) -> list[int]:
    """Which bursts a cache was bought ahead of."""
    found = []
    for n in range(1, len(bursts)):
        seen = forecast(bursts[:n], bursts[n - 1].ended_at, TOLERANCE_S)
        if seen is not None and seen.confidence >= least:
            found.append(n)
    return found


def test_constant_gaps_predict_from_the_end_of_a_burst_whatever_its_length() -> None:
    ends = [(0, 30), (330, 400), (700, 710), (1010, 1100)]
    bursts = [Burst(b, e, 4 * GB) for b, e in ends]
    assert present(steadiest(bursts)).basis is Basis.GAP
    assert expected_after(bursts) == 1400


def test_constant_periods_predict_from_its_begin() -> None:
    bursts = [Burst(b, b + s, 4 * GB) for b, s in [(0, 30), (300, 90), (600, 5), (900, 60)]]
    assert present(steadiest(bursts)).basis is Basis.PERIOD
    assert expected_after(bursts) == 1200


def test_two_intervals_are_needed_and_must_agree() -> None:
    assert expected_after(by_gaps([300])) is None
    assert expected_after(by_gaps([300, 302])) is not None
    assert expected_after(by_gaps([300, 600])) is None


def test_one_odd_interval_does_not_move_the_forecast() -> None:
    bursts = by_gaps([300, 300, 900, 300])
    assert expected_after(bursts) == bursts[-1].ended_at + 300


def test_errors_are_those_of_the_intervals_until_three_bursts_were_predicted() -> None:
    assert recent_errors(by_gaps([300])) == ()
    assert recent_errors(by_gaps([300, 310, 320])) == (-10, 0, 10)
    assert recent_errors(by_gaps([300, 310, 305, 300, 312])) == (0, -5, 9.5)


def test_a_burst_that_is_overdue_is_no_longer_expected() -> None:
    bursts = by_gaps([300, 300])
    due = bursts[-1].ended_at + 300
    assert forecast(bursts, due + TOLERANCE_S, TOLERANCE_S) is not None
    assert forecast(bursts, due + TOLERANCE_S + 1, TOLERANCE_S) is None


def test_three_misses_in_a_row_silence_it_until_it_is_right_on_paper() -> None:
    """A rhythm of 300 s that becomes one of 500 s: the median follows after three gaps."""
    steady, changed = [300.0] * 5, [500.0] * MISSES
    assert expected_after(by_gaps(steady + changed[:-1])) is not None
    silent = by_gaps(steady + changed)
    assert is_silent(attempts(silent), TOLERANCE_S)
    assert expected_after(silent) is None
    again = forecast(by_gaps([*steady, *changed, 500.0]), 0.0, TOLERANCE_S)
    assert again is not None
    assert again.confidence < 0.8, "right once is not yet trusted"
    assert present(forecast(by_gaps([*steady, *[500.0] * 7]), 0.0, TOLERANCE_S)).confidence >= 0.8


@pytest.mark.parametrize("seed", range(20))
def test_a_load_with_random_gaps_buys_nothing_ahead_after_three_misses(seed: int) -> None:
    draw = random.Random(seed)
    bursts = by_gaps([draw.expovariate(1 / 600) for _ in range(200)])
    tried = attempts(bursts[:12])
    missed = [abs(a.error_s) > TOLERANCE_S for a in tried]
    third = next(i for i in range(len(missed)) if all(missed[i : i + MISSES]))
    known_at_first = len(bursts[:12]) - len(tried)
    assert not [n for n in bought_ahead(bursts) if n > known_at_first + third + MISSES]


def test_a_steady_load_is_met_from_the_fourth_burst_on() -> None:
    assert bought_ahead(by_gaps([300.0] * 8)) == [3, 4, 5, 6, 7, 8]


@STEADILY
@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=20), st.floats(0, 1))
def test_a_quantile_is_not_exceeded_by_its_share_of_the_values(values: list[float], share: float) -> None:
    found = quantile(values, share)
    assert sum(v <= found for v in values) >= share * len(values) - 1e-6
    assert sum(v < found for v in values) < max(share * len(values), 1e-6) + 1e-6


def test_a_size_is_promised_that_most_bursts_do_not_exceed() -> None:
    bursts = [Burst(b.begun_at, b.ended_at, n * GB) for n, b in enumerate(by_gaps([300.0] * 4), 1)]
    assert present(forecast(bursts, 0.0, TOLERANCE_S)).written_bytes == 5 * GB
