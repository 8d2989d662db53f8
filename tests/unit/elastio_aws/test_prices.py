from __future__ import annotations

import pytest

from elastio.errors import ConfigError
from elastio_aws.gp3 import Parameters
from elastio_aws.prices import quote
from elastio_aws.settings import Settings, parse


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


def test_region_without_a_price_has_no_price_of_another_region() -> None:
    there = quote(Parameters(1, 3000, 125), Settings(), "sa-east-1")
    assert (there.price_known, there.price_per_hour) == (False, 0.0)
    assert quote(Parameters(1, 3000, 125), Settings(), "us-east-1").price_known


@pytest.mark.parametrize("region", ["sa-east-1", "us-east-1"])
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
