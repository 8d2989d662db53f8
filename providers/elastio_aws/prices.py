"""Prices as data: `prices.json`, with its date and source, and `[provider.aws.prices]`. The network is not asked."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

from elastio.core.model import Quote
from elastio_aws.gp3 import FREE_IOPS, FREE_MIB_S, Purchase
from elastio_aws.settings import Settings


def quote(purchase: Purchase, settings: Settings, region: str) -> Quote:
    """The price of a purchase in a region: the operator's, else the list's. Where there is none the quote says so.

    EBS bills per second with a minimum of one minute; a month is taken as 30 days, as in the examples of its
    pricing page. "GB" there are the GiB of the API. 3,000 IOPS and 125 MiB/s are in the price of the size.
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
        spec=purchase.spec(settings.scale),
        currency=currency,
        price_per_hour=_per_month(purchase, rates) / data["hours_per_month"] if rates else 0.0,
        minimum_s=float(data["minimum_s"]),
        price_source=source,
        price_known=rates is not None,
    )


def _per_month(purchase: Purchase, rates: dict[str, float]) -> float:
    return (
        purchase.size_gib * rates["gb_month"]
        + (purchase.throughput_mib_s - FREE_MIB_S) * rates["mib_s_month"]
        + (purchase.iops - FREE_IOPS) * rates["iops_month"]
    )


@cache
def _table() -> dict[str, Any]:
    text = files("elastio_aws").joinpath("prices.json").read_text(encoding="utf-8")
    table: dict[str, Any] = json.loads(text)
    return table
