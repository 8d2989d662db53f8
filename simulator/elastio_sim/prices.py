"""The tariff of the simulated cloud."""

from __future__ import annotations

from collections.abc import Mapping

from elastio.core.model import Quote, VolumeSpec
from elastio.strategy.tariff import PriceList, Tariff
from elastio_sim.settings import parse_settings

TARIFF = Tariff(
    "USD", per_gib_hour=0.00011, per_mb_s_hour=0.00006, minimum_s=60.0, source="simulated price list", volume_type="sim"
)


def price_list(table: Mapping[str, object], region: str) -> PriceList:
    """The one tariff, whatever the region. Raises ConfigError."""
    parse_settings(table)
    return PriceList((TARIFF,))


def price(table: Mapping[str, object], region: str, spec: VolumeSpec) -> Quote:
    """The price of a volume of exactly this size and bandwidth. Raises ConfigError."""
    parse_settings(table)
    return TARIFF.quote(spec)
