"""The tariff of gp3, from `prices.json` or from `[provider.aws.prices]`. No network.

EBS bills per second, for at least one minute; a month is 30 days, as in the examples of its pricing page. "GB" there
is GiB in the API, and throughput is sold in MiB/s. 3,000 IOPS and 125 MiB/s are included in the price of the size.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from elastio.core.model import Quote, VolumeSpec
from elastio.strategy.tariff import PriceList, Tariff, unpriced
from elastio.units import GIB
from elastio_aws.gp3 import FREE_IOPS, FREE_MIB_S, Parameters, parameters_for
from elastio_aws.settings import Prices, Settings, parse

REMEDY = "set [provider.aws.prices]"


def tariff(settings: Settings, region: str) -> Tariff | None:
    """The tariff of a region: the operator's, else the list's; None: its prices are not known."""
    if settings.prices is not None:
        return _tariff(settings, settings.prices)
    row = _table()["regions"].get(region)
    if row is None:
        return None
    source = _table()["sources"][row["source"]]
    rates = (row["gb_month"], row["mib_s_month"], row["iops_month"])
    return _tariff(settings, Prices(*rates, row["currency"], source["text"]), region, source["date"])


def quote(volume: Parameters, settings: Settings, region: str) -> Quote:
    """The price of a volume in a region. `price_known` is False if there is none."""
    known, spec = tariff(settings, region), volume.spec(settings.scale)
    if known is None:
        return unpriced(spec, "USD", float(_table()["minimum_s"]), f"no price is known for {region}, {REMEDY}")
    return known.quote(spec)


def price_list(table: Mapping[str, object], region: str) -> PriceList:
    """The tariff of one region, or of all if `region` is empty. Raises ConfigError."""
    settings = parse(table)
    if settings.prices is not None:
        return PriceList((_tariff(settings, settings.prices),), remedy=REMEDY)
    names = [region] if region else sorted(_table()["regions"])
    found = tuple(t for name in names if (t := tariff(settings, name)) is not None)
    return PriceList(found, tuple(n for n in _table()["unknown"] if region in ("", n)), REMEDY)


def price(table: Mapping[str, object], region: str, spec: VolumeSpec) -> Quote:
    """The price of the smallest volume that provides `spec`, without a call. Raises ConfigError, RefusedError."""
    settings = parse(table)
    return quote(parameters_for(spec, settings.scale), settings, settings.region or region)


def _tariff(settings: Settings, rates: Prices, region: str = "", date: str = "") -> Tariff:
    """The rates of a month as a tariff in GiB and MB/s. The scale of a test endpoint changes what its units are."""
    scale, hours = settings.scale, float(_table()["hours_per_month"])
    return Tariff(
        rates.currency,
        per_gib_hour=rates.gb_month / hours * GIB / scale.gib_bytes,
        per_mb_s_hour=rates.mib_s_month / hours / scale.mb_s(1),
        per_iops_hour=rates.iops_month / hours,
        included_mb_s=scale.mb_s(FREE_MIB_S),
        included_iops=FREE_IOPS,
        minimum_s=float(_table()["minimum_s"]),
        region=region,
        source=rates.source,
        date=date,
        volume_type=settings.volume_type,
    )


@cache
def _table() -> dict[str, Any]:
    text = files("elastio_aws").joinpath("prices.json").read_text(encoding="utf-8")
    table: dict[str, Any] = json.loads(text)
    return table
