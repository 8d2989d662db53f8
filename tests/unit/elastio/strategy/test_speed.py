"""How large and how fast, by the tariff."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastio.strategy.speed import STEP_RATIO, best_choice, boost_refusal, choice, choices, in_ratio, slow_cost
from elastio.strategy.tariff import Tariff, agbs_tariff
from elastio.strategy.worth import Bounds, Offer, Terms, late_per_s, rebuy_price
from elastio.units import GB, GIB, MB, MIB
from tests.values import present

STEADILY = settings(deadline=None, derandomize=True, database=None)
# EBS gp3 in us-east-1, for a month of 730 h; MB/s are sold as MiB/s.
GP3 = Tariff("USD", 0.08 / 730, 0.04 / 730 * MB / MIB, 0.005 / 730, included_mb_s=131, included_iops=3000, minimum_s=60)
PUBLISHED = Terms(agbs_tariff(), 33 * 50, 33, overhead_s=10)
MACHINE = Terms(GP3, 0.8 / 3600, 131, overhead_s=10)
FINE = Offer(in_ratio(10, 4000), size_step_bytes=1, least_bytes=1)
SOLD = Offer(in_ratio(131, 2097))
WRITTEN = st.integers(GB // 2, 100 * GB)
VALUES = st.floats(0.01, 50)


def best_speed_by_product(terms: Terms, written_bytes: float) -> float:
    """B* in MB/s for a tariff of MB/s x GB alone, in any amount, with d = b. 0: a cache is never worth its price."""
    per_gb_mb_s = terms.tariff.per_gib_mb_s_hour / 3600 / GIB * 1000 * MB
    held_s = written_bytes / MB / terms.backing_mb_s + terms.overhead_s
    square = terms.waiting_per_s * 1000 * terms.cutoff / (per_gb_mb_s * held_s) - terms.backing_mb_s**2
    return math.sqrt(max(0.0, square))


def best_speed_additive(terms: Terms, written_bytes: float) -> float:
    """B* in MB/s where bandwidth has its own price, with d = b; room, IOPS and what is included count as nothing."""
    held_s = terms.tariff.billed_s(written_bytes / MB / terms.backing_mb_s + terms.overhead_s)
    return math.sqrt(terms.waiting_per_s * written_bytes / MB / (terms.tariff.per_mb_s_hour / 3600 * held_s))


@STEADILY
@given(WRITTEN, VALUES, st.sampled_from([PUBLISHED, MACHINE]))
def test_nothing_that_is_sold_is_cheaper_than_what_is_chosen(written: int, factor: float, terms: Terms) -> None:
    terms = replace(terms, waiting_per_s=terms.waiting_per_s * factor)
    best = best_choice(terms, SOLD, written)
    least = min([slow_cost(terms, written), *(c.cost for c in choices(terms, SOLD, written))])
    assert (slow_cost(terms, written) if best is None else best.cost) == pytest.approx(least)


@STEADILY
@given(WRITTEN, VALUES)
def test_in_agbs_the_best_speed_is_that_of_the_closed_form(written: int, factor: float) -> None:
    terms = replace(PUBLISHED, waiting_per_s=PUBLISHED.waiting_per_s * factor)
    expected = best_speed_by_product(terms, written)
    every = [present(choice(terms, FINE, written, b + 33, 33)) for b in in_ratio(34, 4000)]
    found = min(every, key=lambda c: c.cost).app_mb_s
    if 34 <= expected <= 4000:
        assert expected / STEP_RATIO**1.01 <= found <= expected * STEP_RATIO**1.01


@STEADILY
@given(WRITTEN, VALUES)
def test_with_a_price_per_mb_s_the_best_speed_is_that_of_the_closed_form(written: int, factor: float) -> None:
    tariff = Tariff("USD", per_mb_s_hour=GP3.per_mb_s_hour, minimum_s=60)
    terms = Terms(tariff, MACHINE.waiting_per_s * factor, 131, overhead_s=10)
    expected = best_speed_additive(terms, written)
    every = [present(choice(terms, FINE, written, b + 131, 131)) for b in in_ratio(132, 16000)]
    found = min(every, key=lambda c: c.cost).app_mb_s
    if 132 <= expected <= 16000:
        assert expected / STEP_RATIO**1.01 <= found <= expected * STEP_RATIO**1.01


def test_the_published_bandwidth_is_near_the_best_in_agbs() -> None:
    best = best_speed_by_product(replace(PUBLISHED, cutoff=1.0), 4 * GB)
    assert best == pytest.approx(107, abs=1), "the experiments were run with 128 MB/s"


def test_at_the_price_of_a_machine_a_dump_is_worth_a_gigabyte_a_second() -> None:
    assert best_speed_additive(MACHINE, 4 * GB) == pytest.approx(1000, rel=0.25)


def test_a_drain_is_worth_its_bandwidth_in_agbs_and_not_in_dollars() -> None:
    assert present(best_choice(PUBLISHED, Offer(in_ratio(33, 1000)), 3 * GB)).drain_mb_s == 33
    assert present(best_choice(MACHINE, SOLD, 4 * GB)).drain_mb_s == 0


def test_the_instance_and_the_configured_most_bound_the_choice() -> None:
    free = present(best_choice(MACHINE, SOLD, 4 * GB))
    for bounds in (Bounds(instance_mb_s=400), Bounds(most_mb_s=400)):
        bound = present(best_choice(MACHINE, SOLD, 4 * GB, bounds))
        assert bound.app_mb_s + 2 * bound.drain_mb_s <= 400 < free.app_mb_s
    assert best_choice(MACHINE, SOLD, 4 * GB, Bounds(instance_mb_s=130)) is None


def test_a_large_burst_charged_by_the_product_is_first_written_slowly() -> None:
    assert present(best_choice(PUBLISHED, FINE, 3 * GB)).late_s == 0
    assert present(best_choice(PUBLISHED, FINE, 12 * GB)).late_s > 0


def test_a_burst_that_is_over_before_the_cache_serves_buys_none() -> None:
    late = replace(MACHINE, late_s=10.0)
    assert best_choice(late, SOLD, 10 * 131 * MB) is None
    assert best_choice(late, SOLD, 40 * 131 * MB) is not None


def test_a_volume_has_the_iops_that_its_bandwidth_needs_and_whole_steps() -> None:
    offer = Offer((600.0, 1000.0), mb_s_per_iops=0.25, least_iops=3000)
    assert present(offer.spec(GIB + 1, 600)).iops == 3000
    fast = present(offer.spec(GIB + 1, 1000))
    assert (fast.iops, fast.size_bytes) == (4000, 2 * GIB)
    assert replace(offer, most_bytes=GIB).spec(GIB + 1, 600) is None


def test_priced_requests_refuse_a_boost_that_saves_less_than_they_cost() -> None:
    """4 GB at 128 KiB are 61,000 requests more than without a cache: at 2 USD a million, 0.12 USD."""
    priced = replace(MACHINE, tariff=replace(GP3, per_million_requests=2.0))
    found = present(choice(priced, SOLD, 4 * GB, SOLD.bandwidths_mb_s[8], 0))
    assert found.bill == pytest.approx(0.122, rel=0.02)
    assert "USD" in boost_refusal(priced, found, 4 * GB)
    assert boost_refusal(replace(priced, waiting_per_s=0.01), found, 4 * GB) == ""
    assert best_choice(priced, SOLD, 4 * GB) is None


def test_buying_again_costs_the_late_seconds_and_what_is_billed_for_nothing() -> None:
    terms = replace(MACHINE, late_s=6.0, per_boost=0.001)
    spec = present(SOLD.spec(GIB, 524))
    per_s = GP3.per_hour(spec) / 3600
    late = late_per_s(terms, 524) * 6
    assert late == pytest.approx(0.8 / 3600 * 0.75 * 6)
    assert rebuy_price(terms, spec, 524, 100) == pytest.approx(late + 10 * per_s + 0.001)
    assert rebuy_price(terms, spec, 524, 25) == pytest.approx(late + 45 * per_s + 0.001), "billed for a minute"
    by_hour = replace(terms, tariff=replace(GP3, minimum_s=3600.0, step_s=3600.0))
    assert rebuy_price(by_hour, spec, 524, 25) == pytest.approx(late + 10 * per_s + 0.001), "the hour is used later"
