from __future__ import annotations

import pytest

from elastio_testbed.experiment import Setup
from elastio_testbed.result import Result

from .documents import boost, repetition, setup_result


def test_the_published_figures_have_the_published_percentages() -> None:
    numbers = repetition().comparison()
    assert numbers["overhead_slow_vs_fast_pct"] == pytest.approx(23.6, abs=0.1)
    assert numbers["overhead_vs_fast_pct"] == pytest.approx(3.4, abs=0.1)
    assert numbers["agbs_vs_fast_pct"] == pytest.approx(-65.0, abs=0.1)
    assert numbers["agbs_vs_slow_pct"] == pytest.approx(-7.0, abs=0.1)


def test_without_a_set_up_there_is_no_comparison_with_it() -> None:
    document = Result((setup_result(Setup.ADAPTIVE, 100, 10.0),)).to_json()
    assert document["overhead_vs_fast_pct"] is None
    assert document["ratios"]["adaptive"] == dict.fromkeys(document["ratios"]["adaptive"])
    assert document["setups"]["adaptive"]["completion_s"] == 100


def test_the_later_cache_ratio_excludes_each_vms_first_boost() -> None:
    boosts = (
        boost(1.2, 300.0, 100.0, "vm0"),
        boost(0.4, 120.0, 100.0, "vm0"),
        boost(1.2, 500.0, 100.0, "vm1"),
        boost(0.4, 140.0, 100.0, "vm1"),
    )
    ran = setup_result(Setup.ADAPTIVE, 100, 10.0, cache_agbs=1100.0, boosts=boosts)
    assert ran.cache_agbs_bound == 400.0
    assert ran.cache_agbs_ratio == 2.75
    assert ran.cache_agbs_ratio_later == 1.3


def test_there_is_no_cache_ratio_without_a_boost_and_no_later_one_after_a_single_boost() -> None:
    assert setup_result(Setup.STATIC_FAST, 100, 10.0).cache_agbs_ratio is None
    once = setup_result(Setup.ADAPTIVE, 100, 10.0, cache_agbs=300.0, boosts=(boost(1.2, 300.0, 100.0),))
    assert once.cache_agbs_ratio == 3.0
    assert once.cache_agbs_ratio_later is None
