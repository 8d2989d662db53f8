"""`elastio prices`: what volumes cost, by the price list of a provider. No cloud is asked."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import click

from elastio import registry
from elastio.accounting.tables import table
from elastio.billing import Billing
from elastio.errors import ConfigError, ElastioError
from elastio.strategy.tariff import HOURS_A_MONTH, PriceList, Tariff
from elastio_cli.app import App

UNCONFIGURED = "aws"
HEADS = (
    *("region", "type", "currency", "GiB-month", "MB/s-month", "IOPS-month"),
    *("included", "least billed", "date", "source"),
)


@click.command(short_help="Show what a provider's volumes cost.")
@click.option("--region", metavar="REGION", default="", help="Only this region  [default: all]")
@click.option("--cloud", metavar="NAME", help="Provider to show without its settings  [default: the configured one]")
@click.option("--json", "as_json", is_flag=True, help="Print the prices as one JSON document.")
@click.pass_obj
def prices(app: App, region: str, cloud: str | None, as_json: bool) -> None:
    """Show what a provider's volumes cost, with the source and the date of each price.

    Without a configuration these are the prices of AWS that elastio comes with. The exit code is 1 if no price is
    known.
    """
    name, settings = (cloud, {}) if cloud else _configured(app)
    known = registry.price_list(name, settings, region)
    if known is None:
        raise ElastioError(f"the provider {name} has no price list", code="prices.none")
    if not known.tariffs:
        raise _unknown(name, region, known)
    if as_json:
        click.echo(json.dumps(to_dict(name, known), indent=2))
    else:
        click.echo(to_text(known), nl=False)


def _configured(app: App) -> tuple[str, Mapping[str, object]]:
    """Name and settings of the provider."""
    try:
        provider = app.config().provider
    except ConfigError as error:
        if error.code != "file.missing":
            raise
        return UNCONFIGURED, {}
    return provider.name, provider.settings


def _unknown(name: str, region: str, known: PriceList) -> ElastioError:
    place = f"{region} of the provider {name}" if region else f"the volumes of the provider {name}"
    remedy = f": {known.remedy}" if known.remedy else ""
    return ElastioError(f"no price is known for {place}{remedy}", code="prices.unknown")


def to_dict(name: str, known: PriceList) -> dict[str, Any]:
    """The list as JSON values. Prices are per month of 720 h, above what is included."""
    return {
        "provider": name,
        "hours_per_month": HOURS_A_MONTH,
        "tariffs": [_tariff_dict(each) for each in known.tariffs],
        "unknown": list(known.unknown),
    }


def _tariff_dict(tariff: Tariff) -> dict[str, Any]:
    """The fields of the tariff; `per_gib_hour` and its like become `per_gib_month`."""
    return {
        key.replace("_hour", "_month"): value * HOURS_A_MONTH if key.endswith("_hour") else value
        for key, value in asdict(tariff).items()
    }


def to_text(known: PriceList) -> str:
    """One row for each tariff, and the sources below."""
    sources = list(dict.fromkeys(t.source for t in known.tariffs))
    lines = table(HEADS, [_cells(t, sources) for t in known.tariffs], 0)
    lines += [f"source {number}: {source}" for number, source in enumerate(sources, 1)]
    lines.append(f"A MB/s is 10^6 bytes per second; a MiB/s costs 4.9 % more. A month has {HOURS_A_MONTH} h.")
    lines.append("Prices are without tax and discounts, and as old as their date.")
    if known.unknown:
        lines.append(f"No price is known for {', '.join(known.unknown)}: {known.remedy}.")
    return "\n".join(lines) + "\n"


def _billed(billing: Billing) -> str:
    least = f"{billing.minimum_s:g} s" if billing.minimum_s > billing.step_s else ""
    steps = f"steps of {billing.step_s:g} s" if billing.step_s else ""
    return ", ".join(filter(None, (least, steps))) or "-"


def _cells(tariff: Tariff, sources: Sequence[str]) -> tuple[str, ...]:
    rates = (tariff.per_gib_hour, tariff.per_mb_s_hour, tariff.per_iops_hour)
    included = (
        f"{tariff.included_mb_s:.0f} MB/s" if tariff.included_mb_s else "",
        f"{tariff.included_iops} IOPS" if tariff.included_iops else "",
    )
    return (
        tariff.region or "any",
        tariff.volume_type or "-",
        tariff.currency,
        *(f"{rate * HOURS_A_MONTH:.4f}" if rate else "-" for rate in rates),
        ", ".join(filter(None, included)) or "-",
        _billed(tariff.billing),
        tariff.date or "-",
        str(sources.index(tariff.source) + 1),
    )
