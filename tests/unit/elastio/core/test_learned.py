"""What is expected from past bursts, how long before it to buy, how long to wait, and what that may cost."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate

import pytest

from elastio.core.forecast import Burst
from elastio.core.learned import (
    DECIDES_S,
    LEAST_TOLERANCE_S,
    NOTHING_KNOWN,
    Bill,
    Past,
    Situation,
    is_affordable,
    next_burst,
    prices,
    tolerance_s,
)
from elastio.units import GB
from tests import values
from tests.values import present

# 60 MB/s of 50 GB behind caches of 128 MB/s: a second without the cache costs 1593.75 AGBs.
POLICY = replace(values.POLICY, backing_bandwidth_mb_s=60.0, cache_bandwidth_mb_s=128.0, inactivity_delay_s=30.0)
AT = Situation(POLICY, (9.0, 11.0, 10.0), 50 * GB)
IN_AGBS = Bill(total=100_000.0, per_s=1000.0)


def bursts(gaps: list[float], seconds: float = 20.0) -> tuple[Burst, ...]:
    begins = accumulate(gaps, lambda at, gap: at + seconds + gap, initial=1000.0)
    return tuple(Burst(at, at + seconds, 3 * GB) for at in begins)


def past(gaps: list[float], **changes: object) -> Past:
    return Past(bursts(gaps), IN_AGBS)._replace(**changes)  # type: ignore[arg-type]


def expected(of: Past, at: Situation = AT, after_s: float = 1.0) -> float | None:
    """When the next burst is expected, in seconds after the last one."""
    last = of.bursts[-1].ended_at
    found = next_burst(of, at, last + after_s)
    return None if found is None else found.begins_at - last


def test_one_gap_predicts_the_next_burst() -> None:
    assert expected(past([])) is None
    assert expected(past([300.0])) == 300
    assert next_burst(NOTHING_KNOWN, AT, 1000.0) is None


def test_before_a_time_to_attach_was_measured_the_lead_is_the_policys() -> None:
    new = replace(AT, attach_s=(), policy=replace(POLICY, lead_s=15.0))
    assert present(next_burst(past([300.0, 300.0]), new, 1700.0)).lead_s == 15 + DECIDES_S


def test_the_lead_is_a_quantile_of_the_times_to_attach() -> None:
    """c_l / (c_l + c_h) = 0.61: the second of three times; a second of waiting that costs more takes the longest."""
    assert present(next_burst(past([300.0]), AT, 1345.0)).lead_s == 10 + DECIDES_S
    dear = past([300.0], agbs=IN_AGBS._replace(per_s=100.0))
    assert present(next_burst(dear, AT, 1345.0)).lead_s == 11 + DECIDES_S


def test_errors_of_past_forecasts_make_the_lead_longer() -> None:
    """Bursts come 8 s early now and then: of the last five, two."""
    of = past([300.0, 300.0, 300.0, 292.0, 300.0, 292.0, 300.0], agbs=IN_AGBS._replace(per_s=400.0))
    found = present(next_burst(of, AT, of.bursts[-1].ended_at + 1))
    assert present(found.lead_s) > 15


def test_the_cache_waits_as_long_as_waiting_costs_less_than_buying_again() -> None:
    assert tolerance_s(10.0, 2.0, 1.0, POLICY) == 20
    assert tolerance_s(10.0, 9.0, 1.0, POLICY) == POLICY.inactivity_delay_s
    assert tolerance_s(10.0, 0.1, 1.0, POLICY) == LEAST_TOLERANCE_S
    assert tolerance_s(10.0, 1.0, 0.0, POLICY) == POLICY.inactivity_delay_s
    late, hold = prices(past([300.0]), AT)
    assert present(next_burst(past([300.0]), AT, 1345.0)).kept_s == pytest.approx(10 * late / hold)


def test_prices_are_in_currency_where_both_are_known() -> None:
    in_money = Bill(total=2.0, per_s=0.001)
    of = past([300.0], money=in_money)
    assert prices(of, AT) == (60 * 50 * (1 - 60 / 128), 1000.0)
    assert prices(of, replace(AT, waiting_per_hour=3.6)) == pytest.approx((0.001 * (1 - 60 / 128), 0.001))
    assert prices(past([300.0]), replace(AT, waiting_per_hour=3.6)) == prices(of, AT)


def test_a_cache_that_costs_more_than_waiting_is_bought_so_late_that_it_is_never_early() -> None:
    scattered = [300.0, 304.0, 296.0, 304.0, 296.0, 300.0]
    dear = past(scattered, agbs=IN_AGBS._replace(per_s=100_000.0))
    found = present(next_burst(dear, AT, dear.bursts[-1].ended_at + 1))
    assert present(found.lead_s) <= 9 + DECIDES_S - 4


def test_a_cache_that_is_no_faster_is_not_bought_ahead() -> None:
    assert expected(past([300.0]), replace(AT, policy=replace(POLICY, cache_bandwidth_mb_s=60.0))) is None


def test_after_three_misses_in_a_row_nothing_is_expected_until_a_hit_on_paper() -> None:
    rhythm, odd, cheap = [300.0] * 4, [500.0, 700.0, 900.0], IN_AGBS._replace(per_s=10.0)
    assert expected(past([*rhythm, *odd[:2]], agbs=cheap)) is not None
    assert expected(past([*rhythm, *odd], agbs=cheap)) is None
    again = past([*rhythm, *odd, *[700.0] * 8], agbs=cheap)
    assert present(next_burst(again, AT, again.bursts[-1].ended_at + 1)).confidence >= POLICY.least_confidence


def test_forecasts_whose_errors_cost_more_than_waiting_are_not_followed() -> None:
    """Two of the last five bursts came long after the cache would have been released."""
    odd = [300.0, 300.0, 300.0, 300.0, 500.0, 700.0]
    assert expected(past(odd, agbs=IN_AGBS._replace(per_s=10.0))) is not None
    assert expected(past(odd)) is None


@pytest.mark.parametrize(
    ("bill", "fits"),
    [
        (Bill(), True),  # the first one
        (Bill(total=1000.0, wrong=50.0, per_s=1.0), True),
        (Bill(total=1000.0, wrong=50.1, per_s=1.0), False),
        (Bill(total=10.0, wrong=10.0), False),
    ],
)
def test_nothing_is_bought_ahead_while_wrong_forecasts_cost_more_than_a_twentieth_of_the_bill(
    bill: Bill, fits: bool
) -> None:
    assert is_affordable(bill) is fits
    assert (expected(past([300.0], agbs=bill._replace(per_s=1000.0))) == 300) is fits


def test_the_bill_is_that_in_currency_where_it_is_known() -> None:
    spent = IN_AGBS._replace(wrong=IN_AGBS.total)
    assert expected(past([300.0], agbs=spent)) is None
    assert expected(past([300.0], agbs=spent, money=Bill(total=2.0, per_s=0.001))) == 300
    assert expected(past([300.0], money=Bill(total=2.0, wrong=2.0, per_s=0.001))) is None


def test_a_burst_that_is_overdue_is_no_longer_expected() -> None:
    kept_s = present(next_burst(past([300.0]), AT, 1345.0)).kept_s
    assert expected(past([300.0]), after_s=300 + present(kept_s)) is not None
    assert expected(past([300.0]), after_s=301 + present(kept_s)) is None
