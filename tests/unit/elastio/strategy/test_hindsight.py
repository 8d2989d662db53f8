"""The settings that would have been cheapest for the last bursts."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastio.core.model import VolumeSpec
from elastio.strategy.hindsight import PastLoad, Pause, candidates, gaps_s, plan_cost, supposed
from elastio.strategy.speed import best_choice, in_ratio
from elastio.strategy.tariff import Tariff, agbs_tariff
from elastio.strategy.worth import Bounds, Offer, Plan, Terms
from elastio.units import GB, GIB, MB
from tests.simulated import best_plan
from tests.values import present

STEADILY = settings(deadline=None, derandomize=True, database=None, max_examples=20)
# A second of a cache costs a 3,600th of a dollar for each MB/s, a second of waiting a dollar.
SIMPLE = Terms(Tariff("USD", per_mb_s_hour=1.0), 1.0, 100, cutoff=0.5, late_s=5, overhead_s=10)
SIZE = VolumeSpec(8000 * MB, 500)  # room for 4,000 MB
PLAN = Plan(SIZE, app_mb_s=500, drain_mb_s=0, delay_s=0, holding_s=0)
PER_S = 500 / 3600
AGBS = Terms(agbs_tariff(), 33 * 50, 33, late_s=7, overhead_s=11)
SOLD = Offer(in_ratio(48, 400))
FOREVER = math.inf


def cost(*past: PastLoad, **changes: Any) -> float:
    return plan_cost(SIMPLE, replace(PLAN, **changes), past)


def test_a_burst_is_written_slowly_until_the_cache_serves() -> None:
    """500 MB in 5 s, 2,000 MB at 500 MB/s in 4 s; then 20 s of flushing."""
    assert cost(PastLoad(2500, FOREVER, FOREVER)) == pytest.approx(9 + (4 + 20 + 10) * PER_S)


def test_what_finds_no_room_is_written_slowly() -> None:
    """4,000 MB are absorbed in 8 s, 1,000 MB are not."""
    assert cost(PastLoad(5500, FOREVER, FOREVER)) == pytest.approx(5 + 8 + 10 + (8 + 10 + 40 + 10) * PER_S)


def test_a_drain_makes_room_while_the_burst_lasts() -> None:
    """80 of 400 MB/s flow back: of 5,000 MB 4,000 stay."""
    found = cost(PastLoad(5500, FOREVER, FOREVER), app_mb_s=400, drain_mb_s=80)
    assert found == pytest.approx(5 + 12.5 + (12.5 + 40 + 10) * PER_S)


def test_a_burst_that_ends_before_the_cache_serves_pays_for_it_in_vain() -> None:
    assert cost(PastLoad(400, FOREVER, FOREVER)) == pytest.approx(4 + 10 * PER_S)
    assert cost(PastLoad(400, FOREVER, FOREVER), delay_s=4) == pytest.approx(4), "it ends before the purchase"


def test_a_cache_that_came_too_late_for_its_burst_is_held_for_the_next() -> None:
    past = PastLoad(400, FOREVER, 30), PastLoad(2500, FOREVER, FOREVER)
    assert cost(*past, holding_s=40) == pytest.approx(4 + 5 + (30 + 5 + 25 + 10) * PER_S)
    assert cost(*past, holding_s=20) == pytest.approx(4 + (20 + 10) * PER_S + 9 + (4 + 20 + 10) * PER_S)


def test_an_application_that_writes_at_its_own_rate_gains_no_more_than_that() -> None:
    """What it leaves of 80 % of the cache, up to what the backing volume takes, flows back meanwhile."""
    assert cost(PastLoad(2900, 200, FOREVER)) == pytest.approx(5 + 12 + (12 + 12 + 10) * PER_S)
    assert cost(PastLoad(4100, 360, FOREVER)) == pytest.approx(5 + 10 + (10 + 32 + 10) * PER_S)


def test_a_burst_that_comes_before_the_flush_is_done_finds_the_cache() -> None:
    """20 s of dirty data and 10 s of pause: the next 2,500 MB are written at full speed, beside 1,000 dirty MB."""
    found = cost(PastLoad(2500, FOREVER, 10), PastLoad(2500, FOREVER, FOREVER))
    assert found == pytest.approx(9 + 5 + (4 + 10 + 5 + 35 + 10) * PER_S)


def test_what_is_still_dirty_takes_room_from_the_next_burst() -> None:
    """1,000 MB are left: 3,000 MB are absorbed in 6 s, 500 MB written slowly."""
    found = cost(PastLoad(2500, FOREVER, 10), PastLoad(3500, FOREVER, FOREVER))
    assert found == pytest.approx(9 + 11 + (4 + 10 + 11 + 40 + 10) * PER_S)


def test_a_cache_is_held_as_long_as_the_plan_says() -> None:
    bursts = (PastLoad(2500, FOREVER, 50), PastLoad(2500, FOREVER, FOREVER))
    released = 2 * (9 + 34 * PER_S)
    assert cost(*bursts) == pytest.approx(released)
    held = cost(*bursts, holding_s=31)
    assert held == pytest.approx(9 + 5 + (4 + 50 + 5 + 25 + 10) * PER_S), "after the last one nothing is known to come"


@STEADILY
@given(
    st.lists(
        st.builds(PastLoad, st.floats(10, 20000), st.sampled_from([50.0, 200.0, FOREVER]), st.floats(1, 2000)),
        min_size=1,
        max_size=4,
    ),
    st.sampled_from(SOLD.bandwidths_mb_s),
    st.integers(1, 40),
    st.floats(0, 200),
)
def test_no_other_plan_of_one_speed_and_size_is_much_cheaper(
    past: list[PastLoad], mb_s: float, gib: int, delay_s: float
) -> None:
    """Sizes and delays are tried in coarse steps: what is left to gain is a few per cent of everything."""
    nothing = sum(AGBS.waiting_per_s * p.written_mb / min(33, p.rate_mb_s) for p in past)
    best = best_plan(AGBS, SOLD, past)
    found = nothing if best is None else best.cost
    other = Plan(VolumeSpec(gib * GIB, mb_s), mb_s - 33, 33, delay_s, 0)
    if other.app_mb_s > 33:
        assert found <= plan_cost(AGBS, other, past) * 1.06
    assert found <= nothing


def test_one_more_burst_is_supposed_that_exceeds_all_known_ones() -> None:
    known = (PastLoad(2000, 120, 10), PastLoad(1000, 200, 20))
    assert supposed(known) == (*known, PastLoad(4000, 250, FOREVER))


def test_the_supposed_burst_is_hardly_faster_where_the_known_ones_are_equally_fast() -> None:
    def supposed_rate(*rates: float) -> float:
        return supposed([PastLoad(1000, rate, 10) for rate in rates])[-1].rate_mb_s

    assert supposed_rate(100.0) == pytest.approx(125)
    assert supposed_rate(*[100.0] * 8) == pytest.approx(100 * 1.25 ** (1 / 5))
    assert supposed_rate(100, 90, 80, 70) == pytest.approx(100 * (1.25 * 100 / 80 * 90 / 80 / 1) ** (1 / 3))
    assert supposed_rate(100, 1, 1, 1) == pytest.approx(125), "by no more than nobody knows"
    assert supposed_rate(100, math.inf) == math.inf


@pytest.mark.parametrize(
    ("lasted_s", "app_mb_s", "drain_mb_s", "gap_s"),
    [
        (40, 100, 0, 100 - (4000 - 330) / 33),  # ten seconds at 33 MB/s before the cache is there
        (46.7, 100, 33, 100 - (4000 - 330 - 33 * 36.7) / 33),  # 36.7 s at 100 MB/s, 33 of which flow back
        (46.7, 100, 60, 100 - (4000 - 330 - 33 * 36.7) / 33),  # the backing volume takes no more
        (121, 100, 33, 100 - (4000 - 330 - 33 * 36.7) / 33),  # without a cache it took longer
        (46.7, 50, 33, 100 - (4000 - 330 - 33 * 36.7) / 33),  # the application had more to do than to write
        (8, 100, 33, 100 - (4000 - 264) / 33),  # over before there is a cache
        (1e6, 1, 33, 100.0),
    ],
)
def test_what_flows_back_during_a_burst_is_clean_before_the_next_one(
    lasted_s: float, app_mb_s: float, drain_mb_s: float, gap_s: float
) -> None:
    terms = replace(AGBS, late_s=10.0)
    (found,) = gaps_s(terms, [Pause(100.0, 4000.0, lasted_s)], app_mb_s, drain_mb_s)
    assert found == pytest.approx(max(0.0, gap_s))


def test_what_an_application_leaves_of_its_cache_flows_back_before_the_gap() -> None:
    terms = replace(AGBS, late_s=10.0)
    (found,) = gaps_s(terms, [Pause(100.0, 4000.0, 46.7, 50.0)], 100, 0)
    assert found == pytest.approx(100 - (4000 - 330 - (0.8 * 100 - 50) * 36.7) / 33)


def test_for_one_burst_it_is_the_best_choice() -> None:
    never_soon = [Pause(1e6, 4000, 60)]
    plan = present(best_plan(AGBS, SOLD, [PastLoad(4000, FOREVER, FOREVER)], pauses=never_soon))
    choice = present(best_choice(AGBS, SOLD, 4 * GB))
    assert plan.cost == pytest.approx(choice.cost, rel=0.02)


def test_nothing_is_bought_where_no_plan_pays_or_no_burst_is_known() -> None:
    assert best_plan(AGBS, SOLD, []) is None
    assert best_plan(AGBS, SOLD, [PastLoad(200, FOREVER, FOREVER)] * 3) is None
    assert best_plan(AGBS, SOLD, [PastLoad(4000, 33, FOREVER)]) is None, "the application is no faster"
    assert best_plan(AGBS, SOLD, [PastLoad(4000, FOREVER, FOREVER)], Bounds(most_mb_s=45)) is None


def test_one_large_burst_among_small_ones_gets_its_room_where_room_is_cheap() -> None:
    past = [PastLoad(2000, FOREVER, 600.0)] * 7 + [PastLoad(12000, FOREVER, FOREVER)]
    cheap = Terms(Tariff("USD", per_gib_hour=0.0001, per_mb_s_hour=0.00005), 0.8 / 3600, 131, late_s=7, overhead_s=11)
    assert present(best_plan(cheap, Offer((500.0,)), past)).spec.size_bytes > 12 * GIB
    assert present(best_plan(AGBS, SOLD, past)).spec.size_bytes < 6 * GIB


def test_delays_are_tried_only_where_they_are_asked_for() -> None:
    past = (PastLoad(4000, FOREVER, FOREVER),)
    assert {plan.delay_s > 0 for plan in candidates(AGBS, SOLD, past)} == {False, True}
    assert {plan.delay_s for plan in candidates(AGBS, SOLD, past, late_shares=())} == {0.0}
