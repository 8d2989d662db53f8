"""What is expected from past bursts, how long before it to buy, how long to wait, and what that may cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate

import pytest

from elastio.billing import TO_THE_INSTANT, Billing
from elastio.core.model import Forecast, VolumeSpec
from elastio.core.policy import Ahead, Model, Policy
from elastio.strategy.forecast import Burst
from elastio.strategy.learned import (
    DECIDES_S,
    LEAST_TOLERANCE_S,
    NOTHING_KNOWN,
    CacheCosts,
    ForecastTerms,
    Past,
    allowance,
    in_vain,
    is_affordable,
    met_ahead,
    next_burst,
    prices,
    tolerance_s,
)
from elastio.units import GB, GIB, MB
from tests import values
from tests.values import present

# 60 MB/s of 50 GB behind caches of 128 MB/s: a second without the cache costs 1593.75 AGBs.
POLICY = replace(values.POLICY, backing_bandwidth_mb_s=60.0, cache_bandwidth_mb_s=128.0, inactivity_delay_s=30.0)
AT = ForecastTerms(POLICY, (9.0, 11.0, 10.0), 50 * GB)
IN_AGBS = CacheCosts(total=100_000.0, per_s=1000.0, allowed=120_000.0)


def bursts(gaps: list[float], seconds: float = 20.0) -> tuple[Burst, ...]:
    begins = accumulate(gaps, lambda at, gap: at + seconds + gap, initial=1000.0)
    return tuple(Burst(at, at + seconds, 3 * GB) for at in begins)


def past(gaps: list[float], **changes: object) -> Past:
    return Past(bursts(gaps), IN_AGBS)._replace(**changes)  # type: ignore[arg-type]


def expected(of: Past, at: ForecastTerms = AT, after_s: float = 1.0) -> float | None:
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


LEARNS = replace(POLICY, ahead=Ahead.LEARNED)


def met(of: Sequence[Burst], policy: Policy = LEARNS, again_s: float = 0.0) -> float:
    """A second without the cache costs ten times what a second with one does, and attaching takes ten seconds."""
    return met_ahead(of, 10.0, 10.0, 1.0, policy, again_s)


def test_a_load_with_a_rhythm_is_met_ahead_and_any_other_is_not() -> None:
    assert met(bursts([300.0] * 6)) == 1.0
    assert met(bursts([300.0])) == 1.0
    for unsure in (bursts([]), (), bursts([300.0, 900.0, 40.0, 500.0, 70.0, 1200.0])):
        assert met(unsure) == 0.0
    assert met(bursts([300.0, 300.0, 300.0, 400.0, 300.0])) == 0.0, "two of four were missed"
    assert met(bursts([300.0] * 6), POLICY) == 0.0, "nothing is bought ahead"
    assert [met(bursts([300.0] * 6), again_s=again_s) for again_s in (290.0, 291.0)] == [1.0, 0.0]


def test_a_burst_is_met_late_after_one_that_left_too_little_time_for_another_cache() -> None:
    """Every 300 s. One of the last five came after 150 s of a burst: 145 s later 5 are left, half of what it takes."""
    of = [Burst(300.0 * n, 300.0 * n + seconds, MB) for n, seconds in enumerate((10, 60, 110, 150, 10, 60, 10))]
    assert met(of, again_s=0.0) == met(of, again_s=135.0) > 0
    assert met(of, again_s=145.0) == pytest.approx(met(of) - 0.5 / 5)


def test_what_may_not_be_bought_ahead_is_not_met_ahead() -> None:
    of, asked = bursts([300.0] * 6), []

    def refused(burst: Forecast) -> bool:
        asked.append((burst.begins_at - of[-1].ended_at, burst.lead_s, burst.kept_s))
        return False

    assert met_ahead(of, 10.0, 10.0, 1.0, LEARNS, may_buy=refused) == 0.0
    assert asked == [(300.0, 10.0, POLICY.inactivity_delay_s)]


def test_bursts_that_come_about_when_they_are_expected_are_met_in_part() -> None:
    """One that comes 20 s early waits for all of the ten seconds; the next one's cache has waited for 20 s."""
    assert met(bursts([300.0, 300.0, 280.0])) == pytest.approx(1 - (0 + 10 * 10) / 2 / 100)
    assert met(bursts([300.0, 280.0, 300.0])) == pytest.approx(1 - (10 * 10 + 20) / 2 / 100)


def test_the_cache_waits_as_long_as_waiting_costs_less_than_buying_again() -> None:
    assert tolerance_s(10.0, 2.0, 1.0, POLICY) == 20
    assert tolerance_s(10.0, 9.0, 1.0, POLICY) == POLICY.inactivity_delay_s
    assert tolerance_s(10.0, 0.1, 1.0, POLICY) == LEAST_TOLERANCE_S
    assert tolerance_s(10.0, 1.0, 0.0, POLICY) == POLICY.inactivity_delay_s
    late, hold = prices(past([300.0]), AT)
    assert present(next_burst(past([300.0]), AT, 1345.0)).kept_s == pytest.approx(10 * late / hold)


def test_prices_are_in_currency_where_both_are_known() -> None:
    in_money = CacheCosts(total=2.0, per_s=0.001)
    of = past([300.0], money=in_money)
    assert prices(of, AT) == (60 * 50 * (1 - 60 / 128), 1000.0)
    assert prices(of, replace(AT, waiting_per_hour=3.6)) == pytest.approx((0.001 * (1 - 60 / 128), 0.001))
    assert prices(past([300.0]), replace(AT, waiting_per_hour=3.6)) == prices(of, AT)


def test_a_cache_that_costs_more_than_waiting_is_bought_so_late_that_it_is_never_early() -> None:
    scattered = [300.0, 304.0, 296.0, 304.0, 296.0, 300.0]
    dear = past(scattered, agbs=IN_AGBS._replace(per_s=100_000.0, allowed=1e8))
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
        (CacheCosts(), False),  # nothing is known
        (CacheCosts(total=1000.0, wasted=2.0), True),
        (CacheCosts(total=1000.0, wasted=2.6), False),
        (CacheCosts(total=10.0, allowed=50.0), True),
        (CacheCosts(total=10.0, wasted=1.0, allowed=50.0), False),
    ],
)
def test_a_cache_that_would_waste_more_than_a_twentieth_and_the_allowance_is_not_bought_ahead(
    bill: CacheCosts, fits: bool
) -> None:
    assert is_affordable(bill, 50.0) is fits


def test_the_allowance_is_two_caches_like_the_first_for_a_minute_or_their_least_time() -> None:
    assert allowance(0.5, TO_THE_INSTANT) == 60
    assert allowance(0.5, Billing(step_s=3600.0)) == 3600


def test_what_a_cache_in_vain_costs_is_what_is_billed_until_its_release_is_over() -> None:
    burst = Forecast(0.0, GIB, 1.0, lead_s=12.0, kept_s=20.0)
    at, money = replace(AT, release_s=15.0), CacheCosts(per_s=0.5)
    assert in_vain(burst, Past(agbs=CacheCosts(per_s=2.0)), at) == 2 * 47
    assert in_vain(burst, Past(money=money, billing=Billing(60.0)), at) == 30
    by_money = replace(at, policy=replace(POLICY, model=Model.MONEY))
    assert in_vain(burst, Past(money=money, billing=Billing(60.0)), by_money) == 30
    assert in_vain(burst, Past(money=money, billing=Billing(step_s=3600.0)), by_money) == 1800
    slow = replace(by_money, release_s=90.0)
    assert in_vain(burst, Past(money=money, billing=Billing(step_s=3600.0)), slow) == 3600


def test_a_larger_or_faster_cache_in_vain_costs_at_most_in_proportion() -> None:
    burst = Forecast(0.0, GIB, 1.0, lead_s=10.0, kept_s=0.0)
    sold = ((VolumeSpec(GIB, 100.0), 1.0), (VolumeSpec(3 * GIB, 100.0), 1.5))
    known = Past(agbs=CacheCosts(per_s=1.0, sold=sold))
    wanted = [VolumeSpec(size * GIB, mb_s) for size, mb_s in ((1, 100.0), (2, 100.0), (6, 100.0), (1, 200.0))]
    plans: Iterator[VolumeSpec] = iter(wanted)
    at = replace(AT, release_s=0.0, spec_for=lambda burst: next(plans))
    found = [in_vain(burst, known, at) for _ in wanted]
    assert found == [10, 15, 30, 20]


def test_the_bill_is_that_in_currency_where_it_is_known() -> None:
    spent = IN_AGBS._replace(wasted=IN_AGBS.total, allowed=0.0)
    assert expected(past([300.0], agbs=spent)) is None
    assert expected(past([300.0], agbs=spent, money=CacheCosts(total=2.0, per_s=0.001))) == 300
    assert expected(past([300.0], money=CacheCosts(total=2.0, wasted=2.0, per_s=0.001))) is None


def test_a_burst_that_is_overdue_is_no_longer_expected() -> None:
    kept_s = present(next_burst(past([300.0]), AT, 1345.0)).kept_s
    assert expected(past([300.0]), after_s=300 + present(kept_s)) is not None
    assert expected(past([300.0]), after_s=301 + present(kept_s)) is None
