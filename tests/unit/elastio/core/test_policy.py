"""When to boost, how big, and when to flush."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from elastio.core.model import Quote, Rates, Sample, Spend, Spent, VolumeSpec
from elastio.core.policy import as_load, is_load_high, is_quiet, utilization, watch_load
from elastio.core.state import LoadWatch
from elastio.strategy.caps import quote_refusal, spending_refusal
from elastio.strategy.learning import next_size
from elastio.strategy.spending import Caps
from elastio.units import GIB, agbs
from tests.values import POLICY


def sample(mb_s: float, at: float = 10.0, read_mb_s: float = 0.0) -> Sample:
    return Sample(at, 1.0, Rates(read_mb_s, mb_s))


def watched(*mb_s: float) -> LoadWatch:
    load = LoadWatch()
    for second, rate in enumerate(mb_s, start=1):
        load = watch_load(load, sample(rate, float(second)), POLICY)
    return load


def test_reads_and_writes_use_the_same_bandwidth() -> None:
    assert utilization(sample(4, read_mb_s=6), POLICY) == pytest.approx(0.5)


def test_a_load_that_does_not_count_is_no_load_and_is_remembered_only_beside_one_that_does() -> None:
    backup = replace(sample(15), counted=Rates(0.5, 1.0))
    beside = replace(sample(15, read_mb_s=3), counted=Rates(3, 6))
    assert utilization(backup, POLICY) == pytest.approx(0.075)
    assert as_load(backup, POLICY).adaptive == Rates(0.5, 1.0)
    assert as_load(beside, POLICY) == beside
    assert as_load(sample(15), POLICY) == sample(15)
    assert watch_load(LoadWatch(), backup, POLICY).above_since is None


def test_load_at_the_threshold_counts_from_the_beginning_of_its_sample() -> None:
    assert watched(0, 6, 6).above_since == 1.0


def test_load_between_the_thresholds_is_what_it_was() -> None:
    rising, falling = watched(0, 5.5), watched(10, 5.5)
    assert (rising.above_since, rising.below_since) == (None, 0.0)
    assert (falling.above_since, falling.below_since) == (0.0, None)


def test_one_sample_below_the_release_threshold_ends_a_load() -> None:
    assert watched(10, 4.9).above_since is None
    assert watched(10, 4.9, 10).above_since == 2.0


def test_a_late_sample_begins_no_load_and_continues_one() -> None:
    late = replace(sample(10, 90.0), seconds=80.0, is_late=True)
    quiet, busy = watch_load(watched(0), late, POLICY), watch_load(watched(10), late, POLICY)
    assert (quiet.above_since, quiet.below_since, quiet.utilization) == (None, 0.0, 0.5)
    assert busy.above_since == 0.0
    assert watch_load(quiet, sample(10, 91.0), POLICY).above_since == 90.0


@pytest.mark.parametrize(("trigger_delay_s", "is_high"), [(0, True), (3, True), (4, False)])
def test_the_load_must_last_for_the_trigger_delay(trigger_delay_s: float, is_high: bool) -> None:
    assert is_load_high(LoadWatch(above_since=7.0), 10.0, replace(POLICY, trigger_delay_s=trigger_delay_s)) is is_high


def test_quiet_is_the_inactivity_delay_without_load() -> None:
    load = LoadWatch(below_since=10.0)
    assert not is_quiet(load, 39.9, POLICY)
    assert is_quiet(load, 40.0, POLICY)
    assert not is_quiet(LoadWatch(above_since=10.0), 100.0, POLICY)


def test_nothing_is_refused_without_a_reason() -> None:
    assert spending_refusal(GIB, Spend(1000, 1e9, 1e9), POLICY) == ""


@pytest.mark.parametrize(
    ("caps", "spend", "words"),
    [
        (Caps(max_size_bytes=GIB), Spend(), "cache.max_size_gib"),
        (Caps(max_boosts_per_day=2), Spend(boosts=2), "caps.max_boosts_per_day"),
        (Caps(max_agbs_per_day=1000), Spend(), "caps.max_agbs_per_day"),
        (Caps(max_cost_per_day=1.0), Spend(currency=1.0), "caps.max_cost_per_day"),
        (Caps(max_boosts_per_month=2), Spend(month=Spent(boosts=2)), "caps.max_boosts_per_month"),
        (Caps(max_agbs_per_month=1000), Spend(), "caps.max_agbs_per_month"),
        (Caps(max_cost_per_month=1.0), Spend(month=Spent(currency=1.0)), "caps.max_cost_per_month"),
    ],
)
def test_a_cap_that_is_reached_is_named(caps: Caps, spend: Spend, words: str) -> None:
    assert words in spending_refusal(2 * GIB, spend, replace(POLICY, caps=caps))


@pytest.mark.parametrize(("step_s", "code"), [(0.0, ""), (3600.0, "caps.max_cost")])
def test_the_first_step_of_the_cloud_must_fit_below_the_cap(step_s: float, code: str) -> None:
    quote = Quote(VolumeSpec(GIB, 80.0), "USD", 3.6, 60.0, "a list", step_s=step_s)
    found, _ = quote_refusal(quote, needs_price=True, most_cost=1.0, least_s=600.0, max_size_bytes=GIB)
    assert found == code


@pytest.mark.parametrize("caps", [Caps(max_boosts_per_day=2), Caps(max_cost_per_day=1.0)])
def test_what_was_spent_earlier_in_the_month_does_not_count_for_the_day(caps: Caps) -> None:
    assert spending_refusal(GIB, Spend(month=Spent(boosts=9, currency=9.0)), replace(POLICY, caps=caps)) == ""


@pytest.mark.parametrize("key", ["boosts", "agbs", "cost"])
@pytest.mark.parametrize("period", ["day", "month"])
def test_with_a_cap_nothing_is_bought_while_the_spending_is_unknown(key: str, period: str) -> None:
    limit: dict[str, Any] = {f"max_{key}_per_{period}": 10**9}
    caps = Caps(**limit)
    assert spending_refusal(GIB, Spend(known=False), replace(POLICY, caps=caps)) != ""
    assert caps.needs_price is (key == "cost")


def test_a_boost_must_fit_into_the_rest_of_the_day_at_its_shortest() -> None:
    least = agbs(80, GIB, POLICY.least_boost_s)
    policy = replace(POLICY, caps=Caps(max_agbs_per_day=1000 + least))
    assert spending_refusal(GIB, Spend(agbs=1000), policy) == ""
    assert spending_refusal(GIB, Spend(agbs=1001), policy) != ""


def test_the_first_cache_has_the_initial_size_and_later_ones_the_learned_one() -> None:
    assert next_size(None, POLICY) == POLICY.initial_size_bytes
    assert next_size(3 * GIB, POLICY) == 3 * GIB


def test_no_cache_leaves_the_bounds() -> None:
    assert next_size(1, POLICY) == POLICY.min_size_bytes
    assert next_size(10**15, POLICY) == POLICY.caps.max_size_bytes
