from __future__ import annotations

import json
from dataclasses import fields
from importlib.resources import files

import pytest

from elastio.core.model import VolumeSpec
from elastio.errors import ConfigError, RefusedError
from elastio.strategy.tariff import Tariff
from elastio.units import GIB
from elastio_adviser.volume_types import volume_type
from elastio_aws.gp3 import IOPS_PER_MIB_S, Parameters
from elastio_aws.prices import price, price_list, quote, tariff
from elastio_aws.settings import Scale, Settings, parse
from elastio_testbed.optimum.market import gp3_market

UNKNOWN = "me-central-1"
TABLE = json.loads(files("elastio_aws").joinpath("prices.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("volume", "per_month"),
    [(Parameters(100, 3000, 125), 8.00), (Parameters(200, 8000, 2000), 200 * 0.08 + 1875 * 0.04 + 5000 * 0.005)],
)
def test_size_and_throughput_and_iops_above_the_included_ones_are_billed(volume: Parameters, per_month: float) -> None:
    found = quote(volume, Settings(), "us-east-1")
    assert found.price_per_hour * 720 == pytest.approx(per_month)
    assert (found.currency, found.minimum_s) == ("USD", 60)
    assert found.price_source.endswith("us-east-1; 2026-11-20")
    assert found.spec == volume.spec(Settings().scale)


def test_every_tariff_of_gp3_in_the_project_is_that_of_the_price_list() -> None:
    """`elastio` may not import a provider, so the tariff that comes with the simulator is a copy."""
    listed = tariff(Settings(), "us-east-1")
    assert listed is not None
    copied = volume_type("gp3")
    for name in (f.name for f in fields(Tariff)):
        ours, theirs = getattr(copied.tariff, name), getattr(listed, name)
        if name.startswith(("per_", "included_", "minimum_")):
            assert ours == pytest.approx(theirs, rel=1e-9), name
    assert (copied.tariff.currency, copied.tariff.region, copied.tariff.date) == (
        listed.currency,
        listed.region,
        listed.date,
    )
    assert copied.mb_s_per_iops == pytest.approx(Settings().scale.mb_s(1) / IOPS_PER_MIB_S)
    assert gp3_market().cache == listed
    assert gp3_market().backing == listed


def test_region_without_a_price_has_no_price_of_another_region() -> None:
    there = quote(Parameters(1, 3000, 125), Settings(), UNKNOWN)
    assert (there.price_known, there.price_per_hour) == (False, 0.0)
    assert quote(Parameters(1, 3000, 125), Settings(), "us-east-1").price_known


@pytest.mark.parametrize("region", [UNKNOWN, "us-east-1"])
def test_configured_price_is_used(region: str) -> None:
    prices = {"gb_month": 0.152, "mib_s_month": 0.076, "iops_month": 0.0095, "currency": "BRL", "source": "contract"}
    bought = quote(Parameters(200, 8000, 2000), parse({"prices": prices}), region)
    assert bought.price_per_hour * 720 == pytest.approx(200 * 0.152 + 1875 * 0.076 + 5000 * 0.0095)
    assert (bought.price_known, bought.currency, bought.price_source) == (True, "BRL", "contract")


@pytest.mark.parametrize(
    "table",
    [
        {"gb_month": 0.1},
        {"gb_month": 0.1, "mib_s_month": 0.1, "iops_month": -1},
        {"gb_month": 0.1, "mib_s_month": 0.1, "iops_month": "0.1"},
        {"gb_month": 0.1, "mib_s_month": 0.1, "iops_month": True},
        {"gb_month": 0.1, "mib_s_month": 0.1, "iops_month": 0.1, "currency": 5},
        {"gb_month": 0.1, "mib_s_month": 0.1, "iops_month": 0.1, "currency": ""},
        {"gb_month": 0.1, "mib_s_month": 0.1, "iops_month": 0.1, "gib_month": 0.1},
    ],
)
def test_incomplete_price_is_refused(table: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        parse({"prices": table})


@pytest.mark.parametrize(
    ("region", "currency", "date", "per_month"),
    [
        ("us-east-1", "USD", "2026-11-20", 200 * 0.08 + 1875 * 0.04 + 5000 * 0.005),
        ("sa-east-1", "USD", "2022-02-10", 200 * 0.152 + 1875 * 0.076 + 5000 * 0.0095),
        ("cn-north-1", "CNY", "2022-02-10", 200 * 0.5968 + 1875 * 0.2984 + 5000 * 0.0373),
        ("ap-southeast-5", "USD", "2026-09-25", 200 * 0.0864 + 1875 * 0.0432 + 5000 * 0.0054),
    ],
)
def test_each_region_has_its_own_prices_and_date(region: str, currency: str, date: str, per_month: float) -> None:
    bought = quote(Parameters(200, 8000, 2000), Settings(), region)
    assert bought.price_per_hour * 720 == pytest.approx(per_month)
    assert (bought.currency, bought.price_source.rpartition("; ")[2]) == (currency, date)


def test_every_region_of_the_table_has_three_prices_a_currency_and_a_dated_source() -> None:
    known = price_list({}, "").tariffs
    assert [t.region for t in known] == sorted(TABLE["regions"])
    for each in known:
        assert min(each.per_gib_hour, each.per_mb_s_hour, each.per_iops_hour) > 0
        assert each.currency in ("USD", "CNY")
        assert each.source
        assert each.date >= "2022-02-10"
    assert not set(TABLE["unknown"]) & set(TABLE["regions"])


def test_list_of_one_region_has_that_region_or_says_that_it_is_unknown() -> None:
    assert [t.region for t in price_list({}, "eu-west-1").tariffs] == ["eu-west-1"]
    unknown = price_list({}, UNKNOWN)
    assert (unknown.tariffs, unknown.unknown) == ((), (UNKNOWN,))
    assert price_list({}, "mars-1").tariffs == ()


def test_the_operators_prices_are_the_whole_list() -> None:
    prices = {"gb_month": 0.072, "mib_s_month": 0.036, "iops_month": 0.0045}
    (own,) = price_list({"prices": prices}, "").tariffs
    assert own.per_gib_hour * 720 == pytest.approx(0.072)
    assert (own.region, own.source) == ("", "[provider.aws.prices]")


def test_a_price_without_a_call_is_that_of_the_quote() -> None:
    fast = price({}, "us-east-1", VolumeSpec(100 * GIB, 500.0))
    assert fast == quote(Parameters(100, 3000, 477), Settings(), "us-east-1")
    assert price({"region": "sa-east-1"}, "us-east-1", VolumeSpec(GIB, 1.0)).price_per_hour * 720 == pytest.approx(
        0.152
    )
    with pytest.raises(RefusedError):
        price({}, "us-east-1", VolumeSpec(100 * GIB, 5000.0))


def test_a_scaled_endpoint_sells_its_own_units() -> None:
    scale = Scale(gib_bytes=GIB // 64, mib_s_bytes=2**20 // 8)
    known = tariff(Settings(scale=scale), "us-east-1")
    assert known is not None
    spec = Parameters(200, 8000, 2000).spec(scale)
    assert known.per_hour(spec) * 720 == pytest.approx(200 * 0.08 + 1875 * 0.04 + 5000 * 0.005)
