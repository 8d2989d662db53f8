"""`elastio predict`: how long an application takes and what it costs, before it runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from elastio.cli.numbers import ABOVE_0
from elastio.units import GIB
from elastio_calibration.cli.options import (
    application_of,
    application_options,
    gb,
    predictors,
    profile_options,
    require_extra,
)

if TYPE_CHECKING:
    from elastio_calibration.predict import Forecast
    from elastio_calibration.sweep import Step

# The agent's own first size, where the operator names none.
INITIAL_GB = 10 * GIB / 1e9


@dataclass(frozen=True, slots=True)
class Shown:
    """How the result is given out."""

    as_json: bool
    as_csv: bool
    png: Path | None


@click.command()
@profile_options
@application_options
@click.option("--initial-cache-gb", type=ABOVE_0, default=INITIAL_GB, show_default=True, help="M(Si)")
@click.option("--checkpoint-cache-gb", type=ABOVE_0, help="M(Sc)  [default: what the agent learns]")
@click.option("--sweep", "swept", metavar="Sc=2..12", help="Vary Sc, Si, K, I, It, n or M; also Sc=2..12/0.5, M=4,6,8.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.option("--csv", "as_csv", is_flag=True, help="Print one CSV table.")
@click.option("--png", type=click.Path(path_type=Path, dir_okay=False), help="Draw the sweep here.")
def predict(profiles: tuple[Path, ...], backing_gb: float | None, **values: Any) -> None:
    """Predict completion time and cost on a slow, a fast and the adaptive device, from a calibration."""
    shown = Shown(values["as_json"], values["as_csv"], values["png"])
    if shown.as_json and shown.as_csv:
        raise click.UsageError("--json or --csv, not both")
    if shown.png is not None and values["swept"] is None:
        raise click.UsageError("--png draws a --sweep: give both")
    require_extra()
    from elastio_calibration import sweep  # noqa: PLC0415  needs the extra
    from elastio_calibration.predict import CacheSizes  # noqa: PLC0415

    predictor = predictors(profiles, backing_gb, values["pattern"], one=True)[0]
    application = application_of(values)
    sizes = CacheSizes(gb(values["initial_cache_gb"]) or 0, gb(values["checkpoint_cache_gb"]))
    prices = predictor.profile.prices
    currency = prices.currency if prices else ""
    if values["swept"] is None:
        _show(predictor.all_setups(application, sizes), currency, shown)
    else:
        found = sweep.parse(values["swept"])
        _show_sweep(found.symbol, sweep.run(predictor, application, sizes, found), currency, shown)


def _show(forecasts: Sequence[Forecast], currency: str, shown: Shown) -> None:
    from elastio_calibration import render  # noqa: PLC0415  needs the extra

    rows = [render.row(f, currency) for f in forecasts]
    if shown.as_json:
        notes = [note for f in forecasts for note in f.notes]
        click.echo(json.dumps({"setups": rows, "notes": notes}, indent=2))
    else:
        click.echo(render.to_csv(rows).rstrip() if shown.as_csv else render.forecasts_text(forecasts, currency))


def _show_sweep(symbol: str, steps: Sequence[Step], currency: str, shown: Shown) -> None:
    from elastio_calibration import plots, render  # noqa: PLC0415  needs the extra

    rows = [{symbol: step.value, **render.row(f, currency)} for step in steps for f in step.forecasts]
    refused = [f"{symbol}={step.value:g}: {step.refusal}" for step in steps if step.refusal]
    if shown.png is not None:
        plots.sweep(steps, symbol, f"prediction over {symbol}", shown.png)
    if shown.as_json:
        click.echo(json.dumps({"sweep": rows, "refused": refused}, indent=2))
        return
    if shown.as_csv:
        click.echo(render.to_csv(rows), nl=False)
    else:
        click.echo(render.sweep_text(symbol, rows))
    for line in refused:
        click.echo(line, err=True)
