"""`elastio predict`: the completion time and the cost of an application before it runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from elastio.units import GB, GIB
from elastio_calibration.cli.options import (
    FILE,
    application_of,
    application_options,
    emit,
    gb,
    predictors,
    profile_options,
    require_extra,
)
from elastio_cli.options import ABOVE_0
from elastio_cli.out_file import require_directory

if TYPE_CHECKING:
    from elastio_calibration.predict import Forecast
    from elastio_calibration.sweep import Step

# The default of cache.initial_size_gib.
INITIAL_BYTES = 10 * GIB
INITIAL_GB = INITIAL_BYTES / GB


@click.command(short_help="Predict completion time and cost from a calibration.")
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
@click.option("--png", type=FILE, help="Plot of the sweep, to write.")
def predict(profiles: tuple[Path, ...], backing_gb: float | None, **values: Any) -> None:
    """Predict completion time and cost on a slow, a fast and the adaptive device from a calibration."""
    if values["as_json"] and values["as_csv"]:
        raise click.UsageError("use only one of --json and --csv")
    if values["png"] is not None and values["swept"] is None:
        raise click.UsageError("--png needs --sweep")
    require_directory(values["png"])
    require_extra()
    from elastio_calibration import sweep  # noqa: PLC0415  needs the extra
    from elastio_calibration.predict import CacheSizes  # noqa: PLC0415

    predictor = predictors(profiles, backing_gb, values["pattern"], one=True)[0]
    application = application_of(values)
    first = gb(values["initial_cache_gb"])
    sizes = CacheSizes(first or INITIAL_BYTES, gb(values["checkpoint_cache_gb"]), first is not None)
    currency = predictor.prices.currency if predictor.prices else ""
    if values["swept"] is None:
        _show(predictor.all_setups(application, sizes), currency, values)
    else:
        found = sweep.parse(values["swept"])
        _show_sweep(found.symbol, sweep.run(predictor, application, sizes, found), currency, values)


def _show(forecasts: Sequence[Forecast], currency: str, values: Mapping[str, Any]) -> None:
    from elastio_calibration import render  # noqa: PLC0415  needs the extra

    rows, notes = [render.row(f, currency) for f in forecasts], render.notes(forecasts)
    aside = notes if values["as_csv"] else ()  # the text has them
    emit(values, {"setups": rows, "notes": notes}, rows, render.forecasts_text(forecasts, currency), aside)


def _show_sweep(symbol: str, steps: Sequence[Step], currency: str, values: Mapping[str, Any]) -> None:
    from elastio_calibration import plots, render  # noqa: PLC0415  needs the extra

    by_value = [(step.value, step.forecasts) for step in steps]
    rows = [{symbol: value, **render.row(f, currency)} for value, forecasts in by_value for f in forecasts]
    refused = [f"{symbol}={step.value:g}: {step.refusal}" for step in steps if step.refusal]
    notes = render.notes_by(f"{symbol}=", by_value)
    if values["png"] is not None:
        plots.sweep(steps, symbol, f"prediction over {symbol}", values["png"])
    document = {"sweep": rows, "refused": refused, "notes": notes}
    emit(values, document, rows, render.sweep_text(symbol, by_value, currency), [*refused, *notes])
