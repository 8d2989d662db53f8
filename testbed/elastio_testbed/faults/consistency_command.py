"""`elastio-testbed consistency`: the checker as a command."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import click

from elastio_testbed.hypervisor import HypervisorError
from elastio_testbed.image import ImageError, build_guest_image
from elastio_testbed.options import suite_option


@click.command()
@click.option("--seed", type=click.IntRange(0, 2**31 - 1), default=1, show_default=True)
@click.option(
    "--mode",
    type=click.Choice(["none", "writearound"]),
    help="Set this cache mode by hand for phase 2 instead of letting the agent go through its phases.",
)
@suite_option
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write the result here.")
def consistency(seed: int, mode: str | None, suite: str | None, json_path: Path | None) -> None:
    """Read and write the same blocks in every phase; exit code 1 when a read returned what was true before.

    With `--mode writearound` that is what has to happen.
    """
    from elastio_testbed.cli import write_text  # noqa: PLC0415  the command line knows this module
    from elastio_testbed.faults import consistency as driver  # noqa: PLC0415  moto takes a second to load

    began = time.monotonic()

    def say(text: str) -> None:
        click.echo(f"[{time.monotonic() - began:7.1f} s] {text}", err=True)

    try:
        with driver.checked_guest(build_guest_image(suite=suite), seed) as (lab, checker):
            if mode is not None:
                wrong = driver.by_hand(lab, checker, mode, say)
                document: dict[str, object] = {"mode": mode, "wrong": wrong, "consistent": not wrong}
            else:
                document = driver.through_all_phases(lab, checker, say).as_dict()
    except (HypervisorError, ImageError) as error:
        raise click.ClickException(str(error)) from error
    text = json.dumps(document, indent=2)
    if json_path is not None:
        write_text(json_path, text + "\n")
    click.echo(text)
    if not (document["consistent"] and document.get("complete", True)):
        sys.exit(1)
