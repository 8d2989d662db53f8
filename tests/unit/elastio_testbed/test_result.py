from __future__ import annotations

import pytest

from elastio_testbed.experiment import Setup
from elastio_testbed.result import Result, SetupResult, to_text


def setup_result(setup: Setup, completion_s: float, agbs: float, left: int = 0) -> SetupResult:
    return SetupResult(
        setup=setup,
        completion_s=completion_s,
        total_s=completion_s + 10,
        agbs=agbs,
        cache_agbs=0.0,
        app_write_mb_s=50.0,
        dumps_s=(1.0,),
        checksums_ok=True,
        volumes_left=left,
    )


def result(*setups: SetupResult) -> Result:
    return Result("cm1", 1.0, 1.0, 1, "tcg", setups)


def test_comparison_gives_the_published_percentages_for_the_published_figures() -> None:
    numbers = result(
        setup_result(Setup.STATIC_SLOW, 1471, 100.0),
        setup_result(Setup.STATIC_FAST, 1190, 266.0),
        setup_result(Setup.ADAPTIVE, 1231, 93.0),
    ).comparison()
    assert numbers["overhead_slow_vs_fast_pct"] == pytest.approx(23.6, abs=0.1)
    assert numbers["overhead_vs_fast_pct"] == pytest.approx(3.4, abs=0.1)
    assert numbers["agbs_vs_fast_pct"] == pytest.approx(-65.0, abs=0.1)
    assert numbers["agbs_vs_slow_pct"] == pytest.approx(-7.0, abs=0.1)


def test_a_set_up_that_was_not_run_leaves_its_comparison_open() -> None:
    document = result(setup_result(Setup.ADAPTIVE, 100, 10.0)).to_json()
    assert document["overhead_vs_fast_pct"] is None
    assert document["setups"]["adaptive"]["completion_s"] == 100


def test_the_table_shows_volumes_that_were_left() -> None:
    text = to_text(result(setup_result(Setup.ADAPTIVE, 100, 10.0, left=2)))
    row = next(line for line in text.splitlines() if line.startswith("adaptive"))
    assert row.split()[-2:] == ["ok", "2"]
