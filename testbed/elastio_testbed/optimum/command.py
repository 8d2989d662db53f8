"""`elastio-testbed optimum`: how far decisions are from those of somebody who knows the future."""

from __future__ import annotations

from pathlib import Path

import click

from elastio_cli.options import ABOVE_0
from elastio_testbed.console import click_errors, progress
from elastio_testbed.files import require_writable, write_json
from elastio_testbed.options import json_option


@click.command()
@click.option(
    "--traces",
    "folder",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Folder of recorded traces, in any format of `elastio simulate`. Default: forty built-in loads.",
)
@click.option(
    "--saturated",
    "saturated_mb_s",
    metavar="MB/S",
    type=ABOVE_0,
    help="Bandwidth of the recorded devices: where a trace reaches it, the application wanted more.",
)
@click.option("--jobs", type=click.IntRange(1, 64), help="Simulations at a time. Default: one for each processor.")
@json_option
def optimum(folder: Path | None, saturated_mb_s: float | None, jobs: int | None, json_path: Path | None) -> None:
    """Compare the agent with an offline optimum, on the simulator, at three tariffs."""
    from elastio_testbed.optimum.comparison import document, rows, to_text  # noqa: PLC0415
    from elastio_testbed.optimum.market import markets  # noqa: PLC0415
    from elastio_testbed.optimum.traces import loads, loads_in  # noqa: PLC0415

    if saturated_mb_s is not None and folder is None:
        raise click.UsageError("--saturated is for recorded traces: name their folder with --traces")
    if json_path is not None:
        require_writable(json_path)
    with click_errors():
        chosen = loads() if folder is None else loads_in(folder, saturated_mb_s)
        every = markets()
        result = document(list(rows(chosen, every, progress(), jobs)), every)
    write_json(json_path, result)
    click.echo(to_text(result))
