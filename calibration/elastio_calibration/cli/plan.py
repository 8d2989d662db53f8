"""`elastio plan`: the cache size that meets a deadline at least cost, or is fastest within a budget."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from elastio.config.schema import load
from elastio.control.protocol import UnreachableError
from elastio.units import GB, GIB
from elastio_calibration.apply import write_drop_in
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
from elastio_cli.app import App
from elastio_cli.options import ABOVE_0
from elastio_cli.out_file import require_directory

if TYPE_CHECKING:
    from elastio_calibration.measurement import Conditions
    from elastio_calibration.optimum import Candidate


@click.command(short_help="Choose the cache size for a deadline or a budget.")
@profile_options
@application_options
@click.option(
    "--initial-cache-gb", type=ABOVE_0, help="Cache of the initial dump, M(Si)  [default: as for checkpoints]"
)
@click.option("--max-time", "max_time_s", type=ABOVE_0, metavar="SECONDS", help="Deadline for the completion time T.")
@click.option("--max-cost", type=ABOVE_0, help="Budget for all VMs, in the currency of the profile.")
@click.option("--max-agbs", type=ABOVE_0, help="Budget for all VMs, in AGBs.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.option("--csv", "as_csv", is_flag=True, help="Print one CSV table.")
@click.option("--png", type=FILE, help="Plot of time and cost over the size, to write.")
@click.option("--apply", "applied", is_flag=True, help="Set the size in the configuration and the agent.")
@click.pass_obj
def plan(app: App, /, profiles: tuple[Path, ...], backing_gb: float | None, **values: Any) -> None:
    """Choose the cache size for checkpoints: the cheapest within a deadline, or the fastest within a budget.

    All calibrated sizes are compared, also those of profiles that differ only in the bandwidth of the cache.
    """
    limits = [values[key] for key in ("max_time_s", "max_agbs", "max_cost")]
    if sum(limit is not None for limit in limits) > 1 or (values["as_json"] and values["as_csv"]):
        raise click.UsageError("use only one of --max-time, --max-cost and --max-agbs, and one of --json and --csv")
    require_directory(values["png"])
    require_extra()
    from elastio_calibration import optimum, plots, render  # noqa: PLC0415  needs the extra
    from elastio_calibration.measurement import Setup  # noqa: PLC0415

    known = predictors(profiles, backing_gb, values["pattern"], one=False)
    application = application_of(values)
    found = optimum.candidates(known, application, gb(values["initial_cache_gb"]))
    chosen = optimum.best(found.accepted, optimum.Goal(*limits))
    fast = max((p.static(Setup.STATIC_FAST, application) for p in known), key=lambda f: f.agbs.value)
    currency = next((p.prices.currency for p in known if p.prices), "")
    rows = [render.candidate_row(c, fast, currency, chosen=c is chosen) for c in found.accepted]
    notes = render.notes_by("cache GB ", [(c.cache_bytes / GB, (fast, c.forecast)) for c in found.accepted])
    if values["png"] is not None:
        title = f"{application.checkpoints} checkpoints of {application.checkpoint_gb:g} GB"
        plots.trade_off(rows, title, values["png"])
    document = {"recommended_gb": chosen.cache_bytes / GB, "choices": rows, "refused": found.refused, "notes": notes}
    text = f"{render.candidates_text(rows)}\n{_recommendation(chosen)}"
    emit(values, document, rows, text, [*found.refused, *notes])
    if values["applied"]:
        _apply(app, chosen, [p.profile.conditions for p in known])


def _recommendation(chosen: Candidate) -> str:
    found = chosen.forecast
    time = f"{found.completion_s.value:.1f} s"
    sure = "; nothing was repeated, so the spread is unknown"
    if found.completion_s.high is not None:
        sure = f"; at most {found.completion_s.high:.1f} s in 97 of 100 runs"
    return f"Recommended: {chosen}. Expected: {time} and {found.agbs.value:.0f} AGBs{sure}."


def _apply(app: App, chosen: Candidate, calibrated: list[Conditions]) -> None:
    """Write a drop-in, for an agent that has learned nothing, and set the learned size of the running agent.

    Raises ElastioError before anything is written where the plan is for another configuration, and UnreachableError
    after the drop-in is written where no agent is running.
    """
    conditions = next(c for c in calibrated if c.cache_mb_s == chosen.cache_mb_s)
    path = write_drop_in(app.config_path, load(app.config_path), chosen.cache_bytes, conditions)
    click.echo(f"{path} is written: cache.initial_size_gib is {chosen.cache_bytes / GIB:.4g}", err=True)
    try:
        click.echo(app.client().ask("learn", size_bytes=chosen.cache_bytes)["text"], err=True)
    except UnreachableError as error:
        raise UnreachableError(
            f"the agent does not know the planned size, and a size that it has learned overrides {path.name}: "
            f"repeat the command while the agent is running ({error})"
        ) from error
