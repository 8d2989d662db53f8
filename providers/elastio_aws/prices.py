"""Prices as data: `prices.json`, with its date and source. Nothing here asks the network."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

from elastio.model import Quote
from elastio_aws.gp3 import FREE_IOPS, FREE_MIB_S, Purchase
from elastio_aws.settings import Scale


def quote(purchase: Purchase, scale: Scale, region: str) -> Quote:
    """The price of a purchase in a region; in one that is not listed the default region's, and it says so.

    EBS bills per second with a minimum of one minute; a month is taken as 30 days, as in the examples of its
    pricing page. "GB" there are the GiB of the API. 3,000 IOPS and 125 MiB/s are in the price of the size.
    """
    data = _table()
    known = region in data["regions"]
    rates = data["regions"][region if known else data["default_region"]]
    per_month = (
        purchase.size_gib * rates["gb_month"]
        + (purchase.throughput_mib_s - FREE_MIB_S) * rates["mib_s_month"]
        + (purchase.iops - FREE_IOPS) * rates["iops_month"]
    )
    place = region if known else f"{data['default_region']}, as none is known for {region}"
    return Quote(
        spec=purchase.spec(scale),
        currency=data["currency"],
        price_per_hour=per_month / data["hours_per_month"],
        minimum_s=float(data["minimum_s"]),
        price_source=f"{data['source']}; {place}; {data['date']}",
    )


@cache
def _table() -> dict[str, Any]:
    text = files("elastio_aws").joinpath("prices.json").read_text(encoding="utf-8")
    table: dict[str, Any] = json.loads(text)
    return table
