"""The best cache size under a deadline or a budget, and sweeps."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from elastio.units import GB
from elastio_calibration import plots, sweep
from elastio_calibration.application import Application
from elastio_calibration.errors import CalibrationError, InfeasibleError, OutOfRangeError
from elastio_calibration.measurement import Price, Setup
from elastio_calibration.optimum import Candidate, Goal, best, candidates
from elastio_calibration.predict import CacheSizes, Interval, Predictor
from elastio_cli.charts import CAPTION
from tests.fixtures.errors import refused
from tests.values import present

from .values import CONDITIONS, PRICES, grid, measured, profile

APP = Application(checkpoint_gb=6, checkpoints=3, iteration_s=400, iterations=3)


def offered(*factors: float) -> tuple[Candidate, ...]:
    return candidates([Predictor(profile(*factors))], APP).accepted


def cost_of(choice: Candidate) -> float:
    return present(choice.forecast.cost).value


@pytest.mark.parametrize(("max_time_s", "expected_gb"), [(1700, 6), (1475, 6), (1430, 8), (1385, 10)])
def test_a_deadline_is_met_at_least_cost(max_time_s: float, expected_gb: int) -> None:
    found = offered()
    chosen = best(found, Goal(max_time_s=max_time_s))
    assert chosen.cache_bytes == expected_gb * GB
    cheaper = [c for c in found if c.forecast.agbs.value < chosen.forecast.agbs.value]
    assert all(c.forecast.completion_s.value > max_time_s for c in cheaper)


def test_a_deadline_is_compared_with_the_upper_end_of_the_interval() -> None:
    exact = best(offered(), Goal(max_time_s=1475))
    unsure = best(offered(0.95, 1.05), Goal(max_time_s=1475))
    assert unsure.cache_bytes > exact.cache_bytes


def test_within_a_budget_the_fastest_is_best() -> None:
    found = offered()
    budget = sorted(c.forecast.agbs.value for c in found)[2] + 1
    chosen = best(found, Goal(max_agbs=budget))
    affordable = [c for c in found if c.forecast.agbs.value <= budget]
    assert chosen.forecast.completion_s.value == min(c.forecast.completion_s.value for c in affordable)
    assert len(affordable) == 3


def test_a_budget_in_currency_needs_prices() -> None:
    cheap = min(cost_of(c) for c in offered())
    assert cost_of(best(offered(), Goal(max_cost=cheap * 1.0001))) == pytest.approx(cheap)
    with refused(InfeasibleError, "prices"):
        best(candidates([Predictor(profile(prices=None))], APP).accepted, Goal(max_cost=1.0))


def priced(per_hour: Callable[[float], float], *sizes_gb: int) -> Predictor:
    """A machine whose permanent volume costs next to nothing."""
    caches = tuple(Price(gb * GB, per_hour(gb)) for gb in sizes_gb)
    return Predictor(profile(prices=replace(PRICES, slow_per_hour=1e-9, caches=caches)))


def test_under_a_budget_in_currency_the_cheapest_in_currency_is_chosen() -> None:
    small_is_dear = candidates([priced(lambda gb: 1 / gb, 4, 6, 8, 10)], APP).accepted
    least = min(cost_of(c) for c in small_is_dear)
    assert best(small_is_dear, Goal(max_cost=least)).cache_bytes == 10 * GB
    with pytest.raises(InfeasibleError):
        best(small_is_dear, Goal(max_cost=0.99 * least))


def test_within_a_budget_in_currency_the_cheaper_of_equally_fast_sizes_is_best() -> None:
    equal = tuple(replace(c, forecast=replace(c.forecast, completion_s=Interval(1.0))) for c in offered())
    dear = tuple(replace(c, forecast=replace(c.forecast, cost=Interval(1 / c.cache_bytes))) for c in equal)
    assert best(dear, Goal(max_cost=1.0)).cache_bytes == 10 * GB
    assert best(dear, Goal(max_agbs=1e12)).cache_bytes == 6 * GB


def test_a_budget_in_currency_skips_sizes_without_a_price() -> None:
    some = candidates([priced(lambda gb: gb / 1000, 6, 8)], APP).accepted
    assert [c.forecast.cost is None for c in some] == [True, False, False, True]
    assert best(some, Goal(max_cost=1.0)).cache_bytes == 8 * GB


def test_pairs_of_a_dataset_and_its_cache_are_candidates() -> None:
    pairs = Predictor(profile(measurements=(measured(4, 6), measured(6, 10))))
    application = replace(APP, checkpoint_gb=4, initial_gb=6)
    (only,) = candidates([pairs], application).accepted
    assert (only.cache_bytes, present(only.forecast.initial).cache_bytes) == (6 * GB, 10 * GB)
    with pytest.raises(OutOfRangeError):
        candidates([pairs], application, 6 * GB)


@pytest.mark.parametrize("goal", [Goal(max_time_s=1300), Goal(max_agbs=1000), Goal(max_cost=1e-6)])
def test_refuses_a_goal_that_no_size_meets(goal: Goal) -> None:
    with pytest.raises(InfeasibleError):
        best(offered(), goal)


def test_bandwidths_of_the_cache_compete() -> None:
    faster = replace(CONDITIONS, cache_mb_s=256.0)
    quick = tuple(replace(m, seconds=m.seconds / 2) if m.setup is Setup.ADAPTIVE else m for m in grid(1.0))
    both = candidates([Predictor(profile()), Predictor(profile(conditions=faster, measurements=quick))], APP).accepted
    assert len(both) == 8
    assert best(both, Goal(max_time_s=1350)).cache_mb_s == 256.0


# --- sweeps ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "values"),
    [("Sc=3..5", (3, 4, 5)), ("Sc=3..4/0.5", (3, 3.5, 4)), ("M=4,6,8", (4, 6, 8)), ("K=1..3", (1, 2, 3))],
)
def test_reads_a_sweep(text: str, values: tuple[float, ...]) -> None:
    assert sweep.parse(text).values == pytest.approx(values)


@pytest.mark.parametrize(
    "text",
    [
        "Sc",
        "Sc=",
        "B=1..2",
        "Sc=5..3",
        "Sc=1..2/0",
        "Sc=a..b",
        "Sc=0..1/0.0001",
        "Sc=nan",
        "Sc=1..1e308/1e-10",
        "Sc=1..inf",
        "M=4,inf",
    ],
)
def test_refuses_what_is_not_a_sweep(text: str) -> None:
    with pytest.raises(CalibrationError):
        sweep.parse(text)


def test_refuses_a_sweep_without_a_predictable_value() -> None:
    with pytest.raises(CalibrationError):
        sweep.run(Predictor(profile()), APP, CacheSizes(10 * GB, 8 * GB), sweep.parse("Sc=20..30"))


def test_an_invalid_value_is_refused_and_the_others_predicted() -> None:
    steps = sweep.run(Predictor(profile()), APP, CacheSizes(10 * GB, 8 * GB), sweep.parse("n=0..2"))
    assert [bool(s.forecasts) for s in steps] == [False, True, True]
    assert steps[0].refusal
    steps = sweep.run(Predictor(profile()), APP, CacheSizes(10 * GB), sweep.parse("M=1e308,0,8"))
    assert [bool(s.forecasts) for s in steps] == [False, False, True]
    assert steps[0].refusal


def test_m_varies_the_cache_of_the_checkpoints() -> None:
    steps = sweep.run(Predictor(profile()), APP, CacheSizes(10 * GB), sweep.parse("M=4..10/2"))
    assert [s.forecasts[-1].checkpoints[-1].cache_bytes / GB for s in steps] == [4, 6, 8, 10]


# --- what is shown -----------------------------------------------------------------------------------------


def test_a_trace_is_drawn_and_an_unknown_kind_of_picture_refused(tmp_path: Path) -> None:
    trace = {"adaptive": [(0.0, 1.0, 0.0), (1.0, 90.0, 10.0)]}
    plots.timeline(trace, "trace", tmp_path / "c.svg")
    assert (tmp_path / "c.svg").stat().st_size > 5000
    with pytest.raises(CalibrationError):
        plots.timeline(trace, "trace", tmp_path / "c.nothing")


OUTSIDE = "awk '{print $1 + $2}' \x1b[31m\ud800 $x^_{$ " + "long " * 100
POINTS = [(8.0, 1.0, 2.0, 3.0), (16.0, 1.0, 1.5, 2.0)]


@pytest.mark.parametrize(
    "draw",
    [
        lambda path: plots.bandwidth(POINTS, 9.0, OUTSIDE, path),
        lambda path: plots.timeline({OUTSIDE: [(0.0, 1.0, 0.0), (1.0, 90.0, 10.0)]}, OUTSIDE, path),
        lambda path: plots.sweep([], OUTSIDE, OUTSIDE, path),
        lambda path: plots.trade_off([{"cache_mb_s": 1, "cache_gb": 1, "completion_of_fast": 1, "agbs_of_fast": 1,
                                       "chosen": True}], OUTSIDE, path),
    ],
    ids=["bandwidth", "timeline", "sweep", "trade-off"],
)  # fmt: skip
def test_text_from_outside_is_drawn_as_it_is_in_every_picture(draw: Callable[[Path], None], tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "No artists with labels")  # a sweep of nothing
        draw(tmp_path / "made.svg")
    names = re.findall(r"<!-- (.*?) -->", (tmp_path / "made.svg").read_text())
    shown = [name for name in names if name.startswith("awk")]
    assert shown
    assert all("$1 + $2}' ?[31m? $x^_{$ long" in name and len(name) <= CAPTION for name in shown)
