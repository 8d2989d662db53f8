"""`elastio-testbed faults`: the campaign as a command."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from elastio_testbed.faults.kinds import KINDS, SELECTION
from elastio_testbed.faults.plan import PlannedRun, plan
from elastio_testbed.faults.story import Story, summary
from elastio_testbed.hypervisor import HypervisorError
from elastio_testbed.image import ImageError
from elastio_testbed.image.debian import chosen_suite
from elastio_testbed.options import suite_option


@click.command()
@click.option("--runs", type=click.IntRange(1, 10_000), default=60, show_default=True)
@click.option("--seed", type=click.IntRange(0, 2**31 - 1), default=1, show_default=True, help="Of the plan.")
@click.option("--kind", "kinds", type=click.Choice(sorted(KINDS)), multiple=True, help="Only these; else all.")
@click.option("--selection", is_flag=True, help=f"The short selection of {len(SELECTION)} kinds, one run each.")
@click.option("--only", type=click.IntRange(1), help="Of the plan only the run with this number: play it again.")
@click.option("--guests", type=click.IntRange(1, 8), default=1, show_default=True, help="So many runs at a time.")
@click.option("--list", "is_list", is_flag=True, help="Print the plan and run nothing.")
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write the result here, after every run.")
@suite_option
@click.option("--evidence", type=click.Path(path_type=Path), help="Keep what is known of failed runs here.")
def faults(
    seed: int,
    guests: int,
    is_list: bool,
    json_path: Path | None,
    suite: str | None,
    evidence: Path | None,
    **options: Any,
) -> None:
    """Break a guest in every way there is, and count what was lost. Exit code 1 when anything was."""
    wanted = chosen(seed=seed, **options)
    if is_list:
        for run in wanted:
            click.echo(str(run))
        return
    folder = evidence or (json_path or Path("out/faults/result.json")).with_suffix(".evidence")
    try:
        document = campaign(wanted, seed, folder, json_path, guests, suite)
    except (HypervisorError, ImageError) as error:
        raise click.ClickException(str(error)) from error
    click.echo(json.dumps({name: value for name, value in document.items() if name != "stories"}, indent=2))
    if not document["sound"]:
        sys.exit(1)


def chosen(
    runs: int, seed: int, kinds: tuple[str, ...], *, selection: bool, only: int | None
) -> tuple[PlannedRun, ...]:
    """The runs that are asked for. Raises ClickException when the plan has none of that number."""
    planned = plan(len(SELECTION) if selection else runs, seed, SELECTION if selection else kinds or tuple(KINDS))
    wanted = tuple(run for run in planned if only in (None, run.number))
    if not wanted:
        raise click.ClickException(f"the plan has {len(planned)} runs and none with the number {only}")
    return wanted


def campaign(
    wanted: tuple[PlannedRun, ...],
    seed: int,
    evidence: Path,
    json_path: Path | None,
    guests: int = 1,
    suite: str | None = None,
) -> dict[str, object]:
    """Carry the runs out and return the document. What is done is on the disk before the next run begins."""
    from elastio_testbed.cli import write_text  # noqa: PLC0415  the command line knows this module
    from elastio_testbed.faults.campaign import carry_out  # noqa: PLC0415  moto takes a second to load

    began = time.monotonic()

    def say(text: str) -> None:
        click.echo(f"[{time.monotonic() - began:7.1f} s] {text}", err=True)

    def document(stories: Sequence[Story]) -> dict[str, object]:
        return {"suite": chosen_suite(suite).name, **summary(seed, stories)}

    def keep(stories: Sequence[Story]) -> None:
        if json_path is not None:
            write_text(json_path, json.dumps(document(stories), indent=2) + "\n")

    return document(carry_out(wanted, seed, evidence, say, guests=guests, keep=keep, suite=suite))
