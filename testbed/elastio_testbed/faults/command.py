"""`elastio-testbed faults` and `consistency`: the campaign and the checker of reads as commands."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from elastio_testbed.adopted import KEEPING, PACKAGES
from elastio_testbed.conditions import guests_on
from elastio_testbed.console import click_errors, conclude, progress
from elastio_testbed.faults.kinds import EVERYWHERE, KINDS, OF_ADOPTED, SELECTION
from elastio_testbed.faults.plan import PlannedRun, plan
from elastio_testbed.faults.run_result import RunResult, summary
from elastio_testbed.files import write_json
from elastio_testbed.hypervisor import chosen_hypervisor
from elastio_testbed.image import build_guest_image
from elastio_testbed.options import adopted_option, guest_options, json_option, seed_option


@click.command()
@click.option("--runs", type=click.IntRange(1, 10_000), default=60, show_default=True, help="Number of runs.")
@seed_option
@click.option(
    "--kind", "kinds", type=click.Choice(sorted(KINDS)), multiple=True, help="Kind of fault; may be repeated."
)
@click.option("--selection", is_flag=True, help=f"The short selection of {len(SELECTION)} kinds, one run each.")
@click.option("--only", type=click.IntRange(1), multiple=True, help="Number of a run of the plan; may be repeated.")
@click.option("--guests", type=click.IntRange(1, 8), default=1, show_default=True, help="Number of parallel guests.")
@click.option(
    "--devices",
    type=click.IntRange(1, 2),
    default=1,
    show_default=True,
    help="Adaptive devices of each guest. Faults strike the first one; the second boosts beside it.",
)
@adopted_option
@click.option("--list", "is_list", is_flag=True, help="Print the plan and run nothing.")
@json_option
@guest_options
@click.option("--evidence", type=click.Path(path_type=Path), help="Folder for the records of failed runs.")
def faults(
    seed: int,
    guests: int,
    devices: int,
    adopted: str | None,
    is_list: bool,
    json_path: Path | None,
    suite: str | None,
    evidence: Path | None,
    **options: Any,
) -> None:
    """Inject faults into a guest and its cloud, and count what was lost. Exit code 1 if anything was."""
    wanted = chosen(seed=seed, adopted=adopted, **options)
    if is_list:
        for run in wanted:
            click.echo(str(run))
        return
    folder = evidence or (json_path or Path("out/faults/result.json")).with_suffix(".evidence")
    from elastio_testbed.faults.campaign import carry_out  # noqa: PLC0415  moto takes a second to load

    def document(results: Sequence[RunResult]) -> dict[str, object]:
        return {**guests_on(suite), "devices": devices, "adopted": adopted, **summary(seed, results)}

    def keep(results: Sequence[RunResult]) -> None:
        write_json(json_path, document(results))

    with click_errors():
        lab = {"devices": devices, "adopted": adopted}
        results = carry_out(wanted, seed, folder, progress(), guests=guests, keep=keep, suite=suite, **lab)
    conclude(document(results))


def chosen(
    runs: int, seed: int, kinds: tuple[str, ...], *, selection: bool, only: tuple[int, ...], adopted: str | None
) -> tuple[PlannedRun, ...]:
    """The selected runs. Raises ClickException for what needs an adopted volume, or a number that is not planned."""
    of_layout = () if adopted is None or adopted.split("/")[0] in KEEPING else OF_ADOPTED
    if impossible := (set(kinds) & set(OF_ADOPTED)).difference(of_layout):
        raise click.ClickException(
            f"no tombstone comes and goes with a cache there: {', '.join(sorted(impossible))} need --adopted, with "
            f"another layout than {', '.join(KEEPING)}"
        )
    wanted_kinds = (*SELECTION, *of_layout) if selection else kinds
    planned = plan(len(wanted_kinds) if selection else runs, seed, wanted_kinds or (*EVERYWHERE, *of_layout))
    if missing := set(only).difference(run.number for run in planned):
        raise click.ClickException(f"the plan has {len(planned)} runs, but no run {min(missing)}")
    return tuple(run for run in planned if not only or run.number in only)


@click.command()
@seed_option
@click.option(
    "--mode",
    type=click.Choice(["none", "writearound"]),
    help="Cache mode to be set by hand while flushing, instead of driving the agent through its phases.",
)
@adopted_option
@guest_options
@json_option
def consistency(seed: int, mode: str | None, adopted: str | None, suite: str | None, json_path: Path | None) -> None:
    """Read and write the same blocks in every phase. Exit code 1 if a read returned stale data.

    With `--mode writearound` stale reads are expected.
    """
    from elastio_testbed.faults import consistency as driver  # noqa: PLC0415  moto takes a second to load

    say = progress()
    say(f"guests on {chosen_hypervisor()}")
    image = build_guest_image(suite=suite, extra=PACKAGES if adopted else ())
    with click_errors(), driver.checked_guest(image, seed, adopted) as (lab, checker):
        if mode is not None:
            wrong = driver.by_hand(lab, checker, mode, say)
            document: dict[str, object] = {"mode": mode, "wrong": wrong, "consistent": not wrong}
        else:
            document = {"adopted": adopted, **driver.through_all_phases(lab, checker, say).as_dict()}
    write_json(json_path, document)
    click.echo(json.dumps(document, indent=2))
    if not (document["consistent"] and document.get("complete", True)):
        sys.exit(1)
