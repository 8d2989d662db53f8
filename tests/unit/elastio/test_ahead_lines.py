"""What purchases ahead of bursts gained and wasted, computed by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC
from pathlib import Path

import pytest

from elastio.accounting.ahead_lines import ahead_lines
from elastio.accounting.report import build
from elastio.accounting.report_render import to_dict, to_text
from elastio.accounting.rows import StepDurations

from .test_past_bursts import NO_LOAD, load, row
from .test_report import NOON, refused, span

GOLDEN = Path(__file__).parents[2] / "golden"
# Attached 8 s after the decision, 0.001 USD and 1280 AGBs a second.
STEPS = StepDurations(boost_s=8.0)
CYCLES = [
    row("load", 0, steps=STEPS),
    row("right", 300, trigger="forecast", steps=STEPS),
    row("late", 600, trigger="forecast", steps=STEPS),
    row("wrong", 900, trigger="forecast", steps=STEPS, closed_wall=NOON + 940),
    row("open", 1800, trigger="forecast", closed_wall=None),
    row("announced", 1200, trigger="announced", steps=STEPS),
]
LOADS = {
    "load": load(-1, 60),
    "right": load(312, 340),
    "late": load(605, 640),
    "wrong": NO_LOAD,
    "open": NO_LOAD,
    "announced": load(1209, 1230),
}
END = NOON + 1830


def test_right_and_wrong_purchases_are_counted_apart_for_each_kind() -> None:
    announced, learned = ahead_lines(CYCLES, LOADS, NOON - 10, END)
    assert (announced.kind, announced.bought, announced.right, announced.wrong) == ("announced", 1, 1, 0)
    assert (learned.kind, learned.bought, learned.right, learned.wrong) == ("learned", 4, 2, 1)
    assert announced.hit_rate == 1.0
    assert learned.hit_rate == pytest.approx(2 / 3)


def test_wasted_is_what_waited_for_its_burst_and_what_waited_in_vain() -> None:
    """Four seconds early, and 40 s in vain, of which the cloud bills 60."""
    _, learned = ahead_lines(CYCLES, LOADS, NOON - 10, END)
    assert (learned.early_s, learned.wrong_s, learned.wasted_s) == pytest.approx((4, 40, 44))
    assert (learned.early_agbs, learned.wrong_agbs) == pytest.approx((4 * 1280, 40 * 1280))
    assert (learned.early_cost, learned.wrong_cost, learned.wasted_cost) == pytest.approx((0.004, 0.06, 0.064))
    assert learned.wrong_share == pytest.approx(0.06 / (4 * 0.1 + 0.06 + 0.06))
    assert learned.wasted_share == pytest.approx(0.064 / (4 * 0.1 + 0.06 + 0.06))
    assert learned.currency == "USD"


def test_without_a_price_the_share_is_that_of_agbs() -> None:
    unpriced = [replace(c, price_per_hour=None, currency="") for c in CYCLES]
    _, learned = ahead_lines(unpriced, LOADS, NOON - 10, END)
    assert (learned.early_cost, learned.wrong_cost, learned.wasted_cost) == (None, None, None)
    assert (learned.wrong_share, learned.wasted_share) == pytest.approx((40 / 470, 44 / 470))


def test_costs_in_two_currencies_are_not_added() -> None:
    mixed = [replace(CYCLES[0], currency="EUR"), *CYCLES[1:]]
    _, learned = ahead_lines(mixed, LOADS, NOON - 10, END)
    assert (learned.wasted_cost, learned.currency) == (None, "")


def test_a_purchase_that_was_refused_is_wrong_and_costs_nothing() -> None:
    rejected = replace(refused(NOON + 20), trigger="forecast")
    _, learned = ahead_lines([CYCLES[0], rejected], LOADS, NOON - 10, END)
    assert (learned.bought, learned.wrong, learned.wrong_s, learned.wrong_cost) == (1, 1, 0.0, 0.0)


def test_nothing_was_bought_ahead() -> None:
    announced, learned = ahead_lines(CYCLES[:1], LOADS, NOON - 10, END)
    assert (announced.hit_rate, learned.hit_rate, learned.wasted_s, learned.wrong_share) == (None, None, 0, 0.0)
    report = build(CYCLES[:1], [span(NOON, END)], NOON - 10, END, UTC, LOADS)
    assert "ahead" not in to_text(report)
    assert ahead_lines([], {}, NOON, END)[0].wrong_share is None


def test_the_report_has_them_as_text_and_json(golden: Callable[[str, str], None]) -> None:
    report = build(CYCLES, [span(NOON, END)], NOON - 10, END, UTC, LOADS)
    golden("report_ahead.txt", to_text(report))
    assert to_dict(report)["ahead_allowance"] == {"agbs": 153_600, "cost": pytest.approx(0.12), "currency": "USD"}
    document = to_dict(report)["ahead"]
    assert list(document) == ["announced", "learned"]
    assert document["learned"]["wasted_s"] == pytest.approx(44)
    assert set(document["announced"]) == {
        *("bought", "right", "wrong", "hit_rate", "early_s", "early_agbs", "early_cost", "wrong_s", "wrong_agbs"),
        *(
            "wrong_cost",
            "wrong_share",
            "early_share",
            "wasted_share",
            "wasted_s",
            "wasted_agbs",
            "wasted_cost",
            "currency",
        ),
    }
