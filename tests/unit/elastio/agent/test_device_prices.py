"""The prices of the backing volume: the operator's, else the provider's, and unknown rather than guessed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from elastio.accounting.ledger import Ledger
from elastio.accounting.recorder import CostRecorder
from elastio.accounting.rows import DevicePrices
from elastio.agent.daemon import touch_device
from elastio.agent.market import DevicePricing, device_prices, volume_price
from elastio.config.schema import Config, parse
from elastio.core.model import Identity, VolumeSpec
from elastio.units import GIB
from tests.simulated import KERNEL, machine
from tests.values import present

SIZE = 500 * GIB


def config(provider: str, settings: dict[str, Any] | None = None, **device: Any) -> Config:
    return parse(
        {
            "device": {"backing_uuid": "5f0e1d2c-0000-4000-8000-000000000001", "bandwidth_mb_s": 131, **device},
            "cache": {"bandwidth_mb_s": 500},
            "provider": {"name": provider, provider: settings or {}},
        }
    )


def instance(region: str) -> Identity:
    return Identity("aws", "i-1", f"{region}a", region, "m7i.large")


def test_both_volumes_have_the_providers_prices() -> None:
    prices = device_prices(config("aws"), "us-east-1", SIZE)
    assert prices.currency == "USD"
    assert prices.backing_per_hour == pytest.approx(40.0 / 720)
    assert prices.fast_per_hour == pytest.approx((40.0 + 352 * 0.04) / 720)


def test_a_volume_that_was_found_has_the_price_of_the_list_where_the_region_is_known() -> None:
    spec = VolumeSpec(SIZE, 131)
    known = present(volume_price(config("aws"), instance("us-east-1"), spec))
    assert known.price_per_hour == pytest.approx(40.0 / 720 + 0.0, rel=0.1)
    assert present(volume_price(config("aws", {"region": "us-east-1"}), None, spec)) == known
    unknown = volume_price(config("aws"), None, spec)
    assert unknown is None or not unknown.price_known


def test_the_operator_prices_a_backing_volume_of_another_type() -> None:
    prices = device_prices(config("aws", bandwidth_mb_s=12, price_per_month=7.2), "us-east-1", SIZE)
    assert prices.backing_per_hour == pytest.approx(0.01)
    assert prices.fast_per_hour == pytest.approx((40.0 + 352 * 0.04) / 720)


@pytest.mark.parametrize(
    ("where", "settings"),
    [("me-central-1", {}), ("us-east-1", {"region": "me-central-1"}), ("", {})],
)
def test_a_region_without_prices_leaves_them_unknown(where: str, settings: dict[str, Any]) -> None:
    assert device_prices(config("aws", settings), where, SIZE) == DevicePrices()


def test_a_type_without_a_price_leaves_that_price_unknown() -> None:
    types = {"slow": {"bandwidth_mb_s": 131, "price_per_gib_hour": 0.0001}, "fast": {"bandwidth_mb_s": 900}}
    prices = device_prices(config("openstack", {"types": types}), "", SIZE)
    assert (prices.currency, prices.fast_per_hour) == ("EUR", None)
    assert prices.backing_per_hour == pytest.approx(0.05)


def test_a_provider_without_a_price_list_or_without_such_a_volume_leaves_them_unknown() -> None:
    assert device_prices(config("openstack", {"types": {}}, price_per_month=7), "", SIZE) == DevicePrices()
    assert device_prices(config("none-such"), "", SIZE) == DevicePrices()


def test_prices_are_determined_once_the_machine_is_known_and_again_when_its_size_changes() -> None:
    pricing, asked = DevicePricing(), config("aws")
    assert pricing.at(asked, None, SIZE) is None
    first = pricing.at(asked, instance("us-east-1"), SIZE)
    assert first == device_prices(asked, "us-east-1", SIZE)
    assert pricing.at(asked, instance("us-east-1"), SIZE) is first
    assert pricing.at(asked, instance("us-east-1"), 2 * SIZE) == device_prices(asked, "us-east-1", 2 * SIZE)


def test_the_ledger_gets_the_prices_of_the_device_that_the_agent_sees(tmp_path: Path) -> None:
    sim, asked = machine(), config("sim")
    sim.run_for(5)
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        touch_device(CostRecorder(ledger, KERNEL.backing_uuid), present(sim.agent), asked, DevicePricing(), 1e9)
        (span,) = ledger.spans(0, 2e9)
    assert span.size_bytes == KERNEL.backing_bytes
    assert span.prices == device_prices(asked, "sim-1", KERNEL.backing_bytes)
    assert span.prices.backing_per_hour == pytest.approx(0.00011 * KERNEL.backing_bytes / GIB + 0.00006 * 131)
