"""Whether the report advises a modification: for long boosts, where it is cheaper, within the rule of the cloud."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elastio.accounting.report_render import LONG_S, cheaper_modification, to_dict, to_text
from elastio.accounting.rows import CycleRow, DevicePrices

from .test_report import NOON, cycle, report_of, span

HOUR_S = 3600.0
PRICES = DevicePrices("USD", 1.0, 3.0)


def boosts(*begins_h: float, hours: float = 2.0, price: float | None = 3.6) -> tuple[list[CycleRow], float]:
    rows = [cycle(NOON + h * HOUR_S, NOON + (h + hours) * HOUR_S, f"t{h}") for h in begins_h]
    return [replace(row, price_per_hour=price) for row in rows], NOON + (max(begins_h) + hours + 1) * HOUR_S


def found(*begins_h: float, hours: float = 2.0, price: float | None = 3.6, prices: DevicePrices = PRICES) -> object:
    rows, until = boosts(*begins_h, hours=hours, price=price)
    report = report_of(rows, [replace(span(NOON - 1, until), prices=prices)], until)
    return cheaper_modification(report.boosts)


def test_a_long_boost_that_is_dearer_than_the_modification_is_named_with_both_sums() -> None:
    rows, until = boosts(0.0)
    report = report_of(rows, [replace(span(NOON - 1, until), prices=PRICES)], until)
    advice = to_dict(report)["modification"]
    assert advice == {
        "boosts": 1,
        "seconds": 2 * HOUR_S,
        "caches": pytest.approx(7.2),
        "modified": pytest.approx(4.0),
        "currency": "USD",
    }
    assert "modify the backing volume" in to_text(report)


@pytest.mark.parametrize(
    "short_of",
    [{"hours": LONG_S / HOUR_S - 0.01}, {"price": 2.0}, {"price": None}, {"prices": DevicePrices("USD", None, 3.0)}],
)
def test_short_cheap_and_unpriced_boosts_are_not(short_of: dict[str, object]) -> None:
    assert found(0.0, **short_of) is None  # type: ignore[arg-type]


def test_only_what_a_fast_volume_costs_beyond_the_slow_one_counts() -> None:
    assert found(0.0, price=2.4) is not None


@pytest.mark.parametrize(
    ("begins_h", "allowed"), [((0, 4), 2), ((0, 4, 8), 2), ((0, 4, 24, 28), 4), ((0, 8, 16, 23), 2)]
)
def test_no_more_count_than_changes_are_allowed(begins_h: tuple[float, ...], allowed: int) -> None:
    advice = found(*begins_h)
    assert getattr(advice, "boosts", 0) == allowed
