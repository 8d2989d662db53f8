"""Volume types: what is shipped, and what a file may say."""

from __future__ import annotations

from pathlib import Path

import pytest

from elastio.errors import ConfigError
from elastio.units import GIB, MIB
from elastio_adviser.volume_types import parse, shipped, volume_type

MONTH_H = 720


@pytest.mark.parametrize(
    ("name", "gib", "mib_s", "a_month"),
    [
        ("gp3", 100, 125, 8.00),
        ("gp3", 500, 500 / 1.048576, 54.07),
        ("gp3", 100, 1000 / 1.048576, 45.22),  # with the IOPS that this bandwidth needs
        ("st1", 500, 40, 22.50),
        ("sc1", 500, 40, 7.50),
        ("sc1", 50, 10, 1.875),  # the least size is 125 GiB
    ],
)
def test_the_price_of_a_month(name: str, gib: float, mib_s: float, a_month: float) -> None:
    found = volume_type(name)
    assert found.per_hour(gib * GIB, mib_s * MIB / 1e6) * MONTH_H == pytest.approx(a_month, abs=0.005)


@pytest.mark.parametrize("name", [name for name in shipped() if name != "agbs"])
def test_what_is_shipped_says_where_its_prices_come_from(name: str) -> None:
    tariff = volume_type(name).tariff
    assert (tariff.currency, tariff.region, tariff.minimum_s) == ("USD", "us-east-1", 60)
    assert tariff.source
    assert tariff.date


def test_a_type_with_credits_has_the_rates_of_its_size() -> None:
    bucket = volume_type("st1").bucket(1024 * GIB, 131.0)
    assert (bucket.base_mb_s, bucket.burst_mb_s) == pytest.approx((40 * 1.048576, 250 * 1.048576))
    assert volume_type("gp3").bucket(1024 * GIB, 131.0).base_mb_s == 131.0


def test_a_short_use_is_billed_for_the_shortest_time() -> None:
    gp3 = volume_type("gp3")
    assert gp3.cost(6 * GIB, 500.0, 20.0) == gp3.cost(6 * GIB, 500.0, 60.0)
    assert gp3.cost(6 * GIB, 500.0, 61.5) == gp3.cost(6 * GIB, 500.0, 62.0)


def test_a_file_is_a_tariff_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "ours.toml").write_text('currency = "EUR"\nper_gib_hour = 0.0001\nstep_s = 3600\n')
    found = volume_type(str(tmp_path / "ours.toml"))
    assert (found.name, found.tariff.currency, found.tariff.step_s) == ("ours", "EUR", 3600)
    assert found.cost(100 * GIB, 500.0, 10.0) == pytest.approx(0.01)


def test_a_tariff_may_have_a_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "ours.toml").write_bytes('currency = "EUR"\r\nper_gib_hour = 0.0001\r\n'.encode("utf-16"))
    assert volume_type(str(tmp_path / "ours.toml")).tariff.currency == "EUR"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("currency = ", "tariff.syntax"),
        ("per_gib_hour = 1.0", "tariff.currency"),
        ('currency = "USD"', "tariff.price"),
        ('currency = "USD"\nper_gb_hour = 1.0', "tariff.field"),
        ('currency = "USD"\nper_gib_hour = -1.0', "tariff.number"),
        ('currency = "USD"\nper_gib_hour = nan', "tariff.number"),
        ('currency = "USD"\nper_gib_hour = true', "tariff.number"),
        ('currency = "USD"\nper_gib_hour = "0.1"', "tariff.number"),
        ('currency = "USD"\nper_gib_hour = 1\ncredits = 5', "tariff.credits"),
        ('currency = "USD"\nper_gib_hour = 1\n[credits]\nbase_mb_s_per_tib = 5', "tariff.credits"),
        ('currency = "USD"\nper_gib_hour = 1\n[credits]\nburst = 5', "tariff.field"),
    ],
)
def test_a_wrong_file_is_refused(text: str, code: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse(text.encode(), "x", "x.toml")
    assert refused.value.code == code


def test_what_is_neither_shipped_nor_a_file_is_refused(tmp_path: Path) -> None:
    for name, code in ((str(tmp_path / "nope"), "tariff.unknown"), (str(tmp_path), "tariff.unreadable")):
        with pytest.raises(ConfigError) as refused:
            volume_type(name)
        assert refused.value.code == code
