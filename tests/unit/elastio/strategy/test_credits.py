"""Credit buckets: what they hold, how long they last, and what a flush may spend."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastio.strategy.credits import TIB, CreditBalance, CreditBucket, CreditRule, constant
from elastio.units import GIB, MB, MIB

# EBS User Guide, HDD volumes: the tables of base and burst throughput, in MiB/s.
SC1 = CreditRule(12 * MIB / MB, 80 * MIB / MB, 192 * MIB / MB, 250 * MIB / MB)
BUCKET = CreditBucket(6.0, 40.0, 500 * GIB)


@pytest.mark.parametrize(("tib", "base", "burst"), [(0.125, 1.5, 10), (1, 12, 80), (3.125, 37.5, 250), (16, 192, 250)])
def test_the_size_sets_both_rates(tib: float, base: float, burst: float) -> None:
    bucket = SC1.bucket(tib * TIB)
    assert (bucket.base_mb_s, bucket.burst_mb_s) == pytest.approx((base * MIB / MB, burst * MIB / MB))
    assert bucket.capacity_bytes == tib * TIB


def test_a_full_bucket_of_1_tib_lasts_for_the_published_scan() -> None:
    """1 TiB at 80 MiB/s takes 3.64 hours (the same table), in which the base rate is earned again."""
    bucket = SC1.bucket(TIB)
    assert TIB / (bucket.burst_mb_s * MB) / 3600 == pytest.approx(3.64, abs=0.01)
    assert bucket.lasts_s(TIB, bucket.burst_mb_s) == pytest.approx(3.64 * 3600 * 80 / 68, rel=0.01)


def test_without_credits_only_the_base_rate_is_left() -> None:
    assert (BUCKET.available_mb_s(1.0), BUCKET.available_mb_s(0.0)) == (40.0, 6.0)
    assert BUCKET.lasts_s(0.0, 6.0) == math.inf


def test_a_balance_earns_the_base_rate_up_to_a_full_bucket() -> None:
    assert BUCKET.after(0.0, 0.0, 10.0) == 60 * MB
    assert BUCKET.after(0.0, 2.0, 10.0) == 40 * MB
    assert BUCKET.after(BUCKET.capacity_bytes, 0.0, 10.0) == BUCKET.capacity_bytes
    assert BUCKET.after(10 * MB, 40.0, 1000.0) == 0.0


def test_a_flush_leaves_the_reserve_to_applications() -> None:
    reserve = BUCKET.reserve_bytes
    assert BUCKET.flush_mb_s(2 * reserve, 0.0) == 40.0
    assert BUCKET.flush_mb_s(2 * reserve, 30.0) == 10.0
    assert BUCKET.flush_mb_s(reserve, 0.0) == 6.0
    assert BUCKET.flush_mb_s(reserve / 2, 30.0) == 0.0
    assert BUCKET.lasts_s(2 * reserve, 40.0, reserve) == pytest.approx(reserve / (34 * MB))


@given(st.floats(0, 1), st.floats(0, 40), st.floats(0.01, 1e6))
def test_a_balance_stays_in_the_bucket_and_a_flush_alone_never_empties_it(
    share: float, moved: float, seconds: float
) -> None:
    balance = share * BUCKET.capacity_bytes
    assert 0 <= BUCKET.after(balance, moved, seconds) <= BUCKET.capacity_bytes
    rate = BUCKET.flush_mb_s(balance, 0.0)
    until = min(seconds, BUCKET.lasts_s(balance, rate, BUCKET.reserve_bytes))
    assert BUCKET.after(balance, rate, until) >= min(balance, BUCKET.reserve_bytes) - 1


def test_a_volume_of_constant_speed_has_no_credits_to_lose() -> None:
    bucket = constant(125.0)
    assert (bucket.available_mb_s(0.0), bucket.flush_mb_s(0.0, 25.0), bucket.after(0.0, 125.0, 60.0)) == (125, 100, 0)


@given(st.floats(0, 1), st.floats(1e6, 200e9))
def test_a_flush_at_the_limit_ends_with_the_reserve_and_no_later_than_any_other(share: float, dirty: float) -> None:
    balance = share * BUCKET.capacity_bytes
    limit = BUCKET.flush_limit_mb_s(balance, dirty, 0.0)
    rate = BUCKET.burst_mb_s if limit is None else limit
    assert BUCKET.base_mb_s - 1e-9 <= rate <= BUCKET.burst_mb_s
    seconds = dirty / MB / rate
    kept = BUCKET.after(balance, rate, seconds)
    # A flush that is hardly limited is not limited at all, and then takes two hundredths of its bytes more.
    assert kept >= min(balance, BUCKET.reserve_bytes) - 0.02 * dirty - 1
    first_s = max(0.0, balance - BUCKET.reserve_bytes) / MB / (BUCKET.burst_mb_s - BUCKET.base_mb_s)
    greedy_s = first_s + max(0.0, dirty / MB - first_s * BUCKET.burst_mb_s) / BUCKET.base_mb_s
    if limit is not None:
        assert seconds == pytest.approx(greedy_s, rel=1e-6)


def test_applications_are_served_before_a_limited_flush_which_is_never_starved() -> None:
    reserve = BUCKET.reserve_bytes
    assert BUCKET.flush_limit_mb_s(reserve, 4e9, 0.0) == 6.0
    assert BUCKET.flush_limit_mb_s(reserve, 4e9, 2.0) == 4.0
    assert BUCKET.flush_limit_mb_s(reserve, 4e9, 30.0) == 3.0
    assert BUCKET.flush_limit_mb_s(2 * reserve, 4e9, 0.0) is None
    assert BUCKET.flush_limit_mb_s(0.0, 0.0, 0.0) is None


def test_the_sustained_rate_is_what_lasts() -> None:
    assert BUCKET.sustained_mb_s(0.0, 60.0) == 6.0
    assert BUCKET.sustained_mb_s(600 * MB, 60.0) == 16.0
    assert BUCKET.sustained_mb_s(BUCKET.capacity_bytes, 60.0) == 40.0


def test_what_nobody_watched_counts_as_spent_and_time_never_runs_back() -> None:
    before = CreditBalance(340 * MB, 100.0)
    assert before.unobserved(BUCKET, 105.0) == CreditBalance(170 * MB, 105.0)
    assert before.unobserved(BUCKET, 1000.0) == CreditBalance(0.0, 1000.0)
    assert before.unobserved(BUCKET, 90.0) == before
    assert before.observed(BUCKET, 26.0, 10.0) == CreditBalance(140 * MB, 110.0)


@pytest.mark.parametrize(
    ("balance", "moved", "seconds"), [(0, 60, 10), (1000, 400, 10), (340, 400, 10), (100, 400, 50)]
)
def test_bytes_are_moved_at_the_burst_rate_while_there_are_credits(
    balance: float, moved: float, seconds: float
) -> None:
    assert BUCKET.least_s(balance * MB, moved * MB) == pytest.approx(seconds)
    assert constant(20.0).least_s(0.0, 100 * MB) == pytest.approx(5)
