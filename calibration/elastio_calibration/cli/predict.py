"""`elastio predict`: the completion time and the cost of an application before it runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from elastio.cli.numbers import ABOVE_0
from elastio.units import GB, GIB
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

# The default of cache.initial_size_gib.
INITIAL_BYTES = 10 * GIB
INITIAL_GB = INITIAL_BYTES / GB


@dataclass(frozen=True, slots=True)
class Shown:
    """The form of the output."""

    as_json: bool
    as_csv: bool
    png: Path | None


@click.command()
@profile_options
@application_options
@click.option("--initial-cache-gb", type=ABOVE_0, help=f"Cache of the initial dump, M(Si)  [default: {INITIAL_GB:.4g}]")
@click.option(
    "--checkpoint-cache-gb", type=ABOVE_0, help="Cache of a checkpoint, M(Sc)  [default: as the agent learns]"
)
@click.option(
    "--sweep", "swept", metavar="Sc=2..12", help="Range of Sc, Si, K, I, It, n or M; also Sc=2..12/0.5, M=4,6,8."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.option("--csv", "as_csv", is_flag=True, help="Print one CSV table.")
@click.option("--png", type=click.Path(path_type=Path, dir_okay=False), help="Plot of the sweep, to write.")
def predict(profiles: tuple[Path, ...], backing_gb: float | None, **values: Any) -> None:
    """Predict completion time and cost on a slow, a fast and the adaptive device from a calibration."""
    shown = Shown(values["as_json"], values["as_csv"], values["png"])
    if shown.as_json and shown.as_csv:
        raise click.UsageError("use only one of --json and --csv")
    if shown.png is not None and values["swept"] is None:
        raise click.UsageError("--png needs --sweep")
    require_extra()
    from elastio_calibration import sweep  # noqa: PLC0415  needs the extra
    from elastio_calibration.predict import CacheSizes  # noqa: PLC0415

    predictor = predictors(profiles, backing_gb, values["pattern"], one=True)[0]
    application = application_of(values)
    first = gb(values["initial_cache_gb"])
    sizes = CacheSizes(first or INITIAL_BYTES, gb(values["checkpoint_cache_gb"]), first is not None)
    currency = predictor.prices.currency if predictor.prices else ""
    if values["swept"] is None:
        _show(predictor.all_setups(application, sizes), currency, shown)
    else:
        found = sweep.parse(values["swept"])
        _show_sweep(found.symbol, sweep.run(predictor, application, sizes, found), currency, shown)


def _show(forecasts: Sequence[Forecast], currency: str, shown: Shown) -> None:
    from elastio_calibration import render  # noqa: PLC0415  needs the extra

    rows, notes = [render.row(f, currency) for f in forecasts], render.notes(forecasts)
    if shown.as_json:
        click.echo(render.to_json({"setups": rows, "notes": notes}))
    elif shown.as_csv:
        click.echo(render.to_csv(rows), nl=False)
        _aside(notes)
    else:
        click.echo(render.forecasts_text(forecasts, currency))


def _show_sweep(symbol: str, steps: Sequence[Step], currency: str, shown: Shown) -> None:
    from elastio_calibration import plots, render  # noqa: PLC0415  needs the extra

    by_value = [(step.value, step.forecasts) for step in steps]
    rows = [{symbol: value, **render.row(f, currency)} for value, forecasts in by_value for f in forecasts]
    refused = [f"{symbol}={step.value:g}: {step.refusal}" for step in steps if step.refusal]
    notes = render.notes_by(f"{symbol}=", by_value)
    if shown.png is not None:
        plots.sweep(steps, symbol, f"prediction over {symbol}", shown.png)
    if shown.as_json:
        click.echo(render.to_json({"sweep": rows, "refused": refused, "notes": notes}))
        return
    click.echo(render.to_csv(rows) if shown.as_csv else f"{render.sweep_text(symbol, by_value, currency)}\n", nl=False)
    _aside([*refused, *notes])


def _aside(lines: Sequence[str]) -> None:
    for line in lines:
        click.echo(line, err=True)
