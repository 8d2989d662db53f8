"""Prices from `prices.json`, with date and source, or from `[provider.aws.prices]`. No network."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

from elastio.core.model import Quote
from elastio_aws.gp3 import FREE_IOPS, FREE_MIB_S, Parameters
from elastio_aws.settings import Settings


def quote(volume: Parameters, settings: Settings, region: str) -> Quote:
    """The price of a volume in a region: the operator's, else the list's. `price_known` is False if there is none.

    EBS bills per second with a minimum of one minute; a month is 30 days, as in the examples of its
    pricing page. "GB" there is GiB in the API. 3,000 IOPS and 125 MiB/s are included in the price of the size.
    """
    data, own = _table(), settings.prices
    rates = data["regions"].get(region)
    currency, source = data["currency"], f"{data['source']}; {region}; {data['date']}"
    if own is not None:
        rates = {"gb_month": own.gb_month, "mib_s_month": own.mib_s_month, "iops_month": own.iops_month}
        currency, source = own.currency, own.source
    elif rates is None:
        source = f"no price is known for {region}, set [provider.aws.prices]"
    return Quote(
        spec=volume.spec(settings.scale),
        currency=currency,
        price_per_hour=_per_month(volume, rates) / data["hours_per_month"] if rates else 0.0,
        minimum_s=float(data["minimum_s"]),
        price_source=source,
        price_known=rates is not None,
    )


def _per_month(volume: Parameters, rates: dict[str, float]) -> float:
    return (
        volume.size_gib * rates["gb_month"]
        + (volume.throughput_mib_s - FREE_MIB_S) * rates["mib_s_month"]
        + (volume.iops - FREE_IOPS) * rates["iops_month"]
    )


@cache
def _table() -> dict[str, Any]:
    text = files("elastio_aws").joinpath("prices.json").read_text(encoding="utf-8")
    table: dict[str, Any] = json.loads(text)
    return table
