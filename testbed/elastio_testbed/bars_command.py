"""What `elastio-testbed run` does for experiments that compare no set-ups, but have bars of their own."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from elastio_testbed.bars import Asked
from elastio_testbed.bars_report import to_text
from elastio_testbed.console import click_errors, progress
from elastio_testbed.files import require_writable, write_json

TWO_TO_ONE, SLO, PGBENCH, MONTAGE = "two-to-one", "slo", "pgbench", "montage"
WITH_BARS = (TWO_TO_ONE, SLO, PGBENCH, MONTAGE)
# The options of `run` that these experiments take.
TAKEN = {"experiment", "scale", "bandwidth", "suite", "json_path"}


def run_with_bars(
    experiment: str, scale: float | None, bandwidth: float, suite: str | None, json_path: Path | None
) -> None:
    """Run it, print every bar, and keep the result. Exit code 1 if a bar is missed."""
    _require_taken(experiment)
    if json_path is not None:
        require_writable(json_path)
    from elastio_testbed.montage.experiment import montage_result  # noqa: PLC0415  moto takes a second
    from elastio_testbed.sharing.experiment import two_to_one_result  # noqa: PLC0415
    from elastio_testbed.sharing.pgbench_experiment import pgbench_result  # noqa: PLC0415
    from elastio_testbed.sharing.slo_experiment import slo_result  # noqa: PLC0415

    def keep(document: Mapping[str, Any]) -> None:
        write_json(json_path, document)

    results = {TWO_TO_ONE: two_to_one_result, SLO: slo_result, PGBENCH: pgbench_result, MONTAGE: montage_result}
    with click_errors():
        document = results[experiment](Asked(scale or 1.0, bandwidth, suite), keep, progress())
    click.echo(to_text(document))
    if not all(bar["is_met"] for bar in document["bars"]):
        sys.exit(1)


def _require_taken(experiment: str) -> None:
    """Raises UsageError if an option was given that the experiment does not take."""
    context = click.get_current_context()
    given = [
        parameter.opts[0]
        for parameter in context.command.params
        if parameter.expose_value
        and parameter.name not in TAKEN
        and context.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE
    ]
    if given:
        raise click.UsageError(f"{experiment} does not take {', '.join(given)}; nothing was run")
