"""What was paid, saved, and what static volumes would have cost, in currency: thirty days by hand, to a cent."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from elastio.accounting.ledger import GAP_S, Ledger
from elastio.accounting.report import Report, build
from elastio.accounting.report_render import to_dict, to_text
from elastio.accounting.rows import DevicePrices, DeviceSpan
from elastio.core.cycle import Cycle, Trigger
from elastio.core.model import Quote, Serial, Volume, VolumeId, VolumeSpec, VolumeState

from .test_report import NOON, cycle, report_of, span

GIB = 2**30
DAY_S = 86400.0
BEGIN = datetime(2026, 9, 1, tzinfo=UTC).timestamp()
# gp3 in us-east-1 for a month of 720 h: 500 GiB with what is included, and with 500 MB/s (477 MiB/s are sold).
SLOW_A_MONTH = 500 * 0.08  # 40.00 USD
FAST_A_MONTH = 500 * 0.08 + (477 - 125) * 0.04  # 54.08 USD
PRICES = DevicePrices("USD", SLOW_A_MONTH / 720, FAST_A_MONTH / 720)
CACHE_PER_HOUR = (8 * 0.08 + (602 - 125) * 0.04) / 720  # 8 GiB with 602 MiB/s: 19.72 USD a month


def bought(number: int, begin: float, seconds: float) -> Cycle:
    token, spec = f"boost-{number:03}", VolumeSpec(8 * GIB, 631.0, 3000)
    volume = Volume(
        VolumeId(f"vol-{number}"), Serial(f"vol{number}"), VolumeState.GONE, 8 * GIB, 631.0, token, "dev", begin
    )
    return Cycle(
        token,
        Trigger.LOAD,
        spec,
        begin - BEGIN,
        begin,
        volume_id=volume.id,
        volume=volume,
        quote=Quote(spec, "USD", CACHE_PER_HOUR, 60.0, "a price list"),
        opened_wall=begin,
        closed_wall=begin + seconds,
    )


@pytest.fixture
def month(tmp_path: Path) -> Path:
    """Thirty days: four boosts of 180 s and one of 20 s, of which 60 s are billed, on each day."""
    path = tmp_path / "ledger.sqlite"
    with Ledger(path) as ledger:
        for turn in range(int(30 * DAY_S / GAP_S) + 1):
            ledger.touch_device("dev", 500 * GIB, 131.0, 500.0, BEGIN + turn * GAP_S, PRICES)
        for number in range(30 * 5):
            day, hour = divmod(number, 5)
            begin = BEGIN + day * DAY_S + (hour + 1) * 4 * 3600
            ledger.record(bought(number, begin, 180.0 if hour < 4 else 20.0), BEGIN)
    return path


def report_on(path: Path, since: float = 0.0) -> Report:
    with Ledger(path, read_only=True) as ledger:
        return build(ledger.cycles(since, BEGIN + 31 * DAY_S), ledger.spans(since, BEGIN + 31 * DAY_S), since,
                     BEGIN + 31 * DAY_S, UTC)  # fmt: skip


def test_thirty_days_equal_a_calculation_by_hand_to_a_cent(month: Path) -> None:
    vm = to_dict(report_on(month))["vm"]
    # 30 days of 24 h are a month of 720 h. Caches: 30 x (4 x 180 s + 60 s) = 23,400 s = 6.5 h of 19.72 USD / 720 h.
    assert vm["baseline"] == pytest.approx(40.00, abs=0.005)
    assert vm["static_fast"] == pytest.approx(54.08, abs=0.005)
    assert vm["paid"] == pytest.approx(40.18, abs=0.005)
    assert vm["saved"] == pytest.approx(13.90, abs=0.005)
    assert vm["cost"] == pytest.approx(19.72 * 6.5 / 720)
    assert vm["currency"] == "USD"


def test_days_add_up_to_the_whole_and_the_first_line_says_what_was_saved(month: Path) -> None:
    report = report_on(month)
    days = to_dict(report)["days"]
    assert len(days) == 30
    for key in ("baseline", "static_fast", "paid", "saved"):
        assert sum(day[key] for day in days) == pytest.approx(to_dict(report)["vm"][key])
    assert to_text(report).splitlines()[0] == (
        "saved 13.90 USD in this period: paid 40.18 (backing volume 40.00, caches 0.18), always fast 54.08"
    )


def test_each_stretch_counts_at_its_own_price(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        for turn in range(25):
            prices = PRICES if turn < 12 else replace(PRICES, backing_per_hour=2.0, fast_per_hour=5.0)
            ledger.touch_device("dev", 500 * GIB, 131.0, 500.0, BEGIN + turn * GAP_S, prices)
    vm = report_on(tmp_path / "ledger.sqlite").vm
    assert vm.baseline == pytest.approx(SLOW_A_MONTH / 720 + 2.0)
    assert vm.saved == pytest.approx(FAST_A_MONTH / 720 + 5.0 - SLOW_A_MONTH / 720 - 2.0)


def test_prices_that_are_determined_late_hold_from_the_beginning_of_the_span(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        for second, prices in ((0, None), (60, None), (120, PRICES), (180, None), (240, PRICES)):
            ledger.touch_device("dev", 500 * GIB, 131.0, 500.0, BEGIN + second, prices)
        (only,) = ledger.spans(0, BEGIN + DAY_S)
    assert (only.prices, only.seconds) == (PRICES, 240)


def test_a_price_does_not_hold_for_time_long_before_it_was_known(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    with Ledger(path) as ledger:
        for minute in range(61):
            ledger.touch_device("dev", 500 * GIB, 131.0, 500.0, BEGIN + 60 * minute, PRICES if minute >= 30 else None)
        first, second = ledger.spans(0, BEGIN + DAY_S)
    assert (first.prices, second.prices) == (DevicePrices(), PRICES)
    report = report_on(path)
    assert (report.vm.baseline, report.vm.saved, report.priced_since) == (None, None, BEGIN + 1800)
    assert to_text(report).startswith(
        "saved: unknown, because prices of the backing volume are known from 2026-09-01 00:30"
    )
    assert report_on(path, BEGIN + 1800).vm.baseline == pytest.approx(SLOW_A_MONTH / 720 / 2)


def priced(first: float, last: float, currency: str = "USD") -> DeviceSpan:
    return replace(span(first, last), prices=DevicePrices(currency, 1.0, 4.0))


def test_a_boost_without_a_price_makes_what_was_paid_unknown_and_nothing_else() -> None:
    free = replace(cycle(NOON, NOON + 100), price_per_hour=None, currency="")
    vm = report_of([free], [priced(NOON, NOON + 3600)], NOON + 3600).vm
    assert (vm.paid, vm.saved) == (None, None)
    assert (vm.baseline, vm.static_fast) == pytest.approx((1.0, 4.0))
    text = to_text(report_of([free], [priced(NOON, NOON + 3600)], NOON + 3600))
    assert text.startswith("saved: unknown, because 1 boost(s)")


def test_prices_that_were_never_known_are_said_to_be_unknown() -> None:
    report = report_of([cycle(NOON, NOON + 100)], [span(NOON, NOON + 3600)], NOON + 3600)
    assert (report.priced_since, report.vm.baseline, report.vm.currency) == (None, None, "USD")
    assert report.vm.cost == pytest.approx(0.1)
    assert to_text(report).splitlines()[0].endswith("(see `elastio prices`)")


def test_amounts_in_two_currencies_are_not_added() -> None:
    report = report_of([cycle(NOON, NOON + 100)], [priced(NOON, NOON + 3600, "EUR")], NOON + 3600)
    assert (report.vm.currency, report.vm.cost, report.vm.baseline, report.vm.saved) == (
        "EUR and USD",
        None,
        None,
        None,
    )
    assert "EUR and USD" in to_text(report).splitlines()[0]


def test_caches_that_cost_more_than_they_save_are_a_loss() -> None:
    vm = report_of([cycle(NOON, NOON + 3600)], [priced(NOON, NOON + 3600)], NOON + 3600)
    assert vm.vm.saved == pytest.approx(4.0 - (1.0 + 3.6))
    assert to_text(vm).startswith("lost 0.60 USD")


def test_without_boosts_only_the_permanent_volumes_count() -> None:
    vm = report_of([], [priced(NOON, NOON + 3600)], NOON + 3600).vm
    assert vm.cost is None
    assert (vm.paid, vm.saved) == pytest.approx((1.0, 3.0))
