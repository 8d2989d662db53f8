"""`elastio-testbed consistency`: the checker as a command."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from elastio_testbed.console import click_errors, progress
from elastio_testbed.files import write_json
from elastio_testbed.image import build_guest_image
from elastio_testbed.options import json_option, seed_option, suite_option


@click.command()
@seed_option
@click.option(
    "--mode",
    type=click.Choice(["none", "writearound"]),
    help="Cache mode to be set by hand while flushing, instead of driving the agent through its phases.",
)
@suite_option
@json_option
def consistency(seed: int, mode: str | None, suite: str | None, json_path: Path | None) -> None:
    """Read and write the same blocks in every phase. Exit code 1 if a read returned stale data.

    With `--mode writearound` stale reads are expected.
    """
    from elastio_testbed.faults import consistency as driver  # noqa: PLC0415  moto takes a second to load

    say = progress()
    with click_errors(), driver.checked_guest(build_guest_image(suite=suite), seed) as (lab, checker):
        if mode is not None:
            wrong = driver.by_hand(lab, checker, mode, say)
            document: dict[str, object] = {"mode": mode, "wrong": wrong, "consistent": not wrong}
        else:
            document = driver.through_all_phases(lab, checker, say).as_dict()
    write_json(json_path, document)
    click.echo(json.dumps(document, indent=2))
    if not (document["consistent"] and document.get("complete", True)):
        sys.exit(1)
