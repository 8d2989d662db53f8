"""`elastio-testbed cuts`: one append, one fsync, and the power is cut."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click

from elastio_testbed.conditions import guests_on
from elastio_testbed.console import Say, click_errors, conclude, progress
from elastio_testbed.files import write_json
from elastio_testbed.hypervisor import chosen_hypervisor
from elastio_testbed.image import build_guest_image
from elastio_testbed.machine import MAKE_FILESYSTEM
from elastio_testbed.options import guest_options, json_option, seed_option
from elastio_testbed.scratch import scratch_folder


@click.command()
@click.option(
    "--runs", type=click.IntRange(1, 10_000), default=24, show_default=True, help="Number of cuts over all phases."
)
@click.option(
    "--control",
    "control_runs",
    type=click.IntRange(1, 100),
    default=3,
    show_default=True,
    help="Number of cuts of the negative control.",
)
@seed_option
@guest_options
@click.option(
    "--filesystem",
    type=click.Choice(sorted(MAKE_FILESYSTEM)),
    default="ext4",
    show_default=True,
    help="Filesystem on the adaptive device.",
)
@json_option
def cuts(runs: int, control_runs: int, seed: int, suite: str | None, filesystem: str, json_path: Path | None) -> None:
    """Cut the power right after an acknowledged fsync, in every phase, and read the copies of the disks back.

    Exit code 1 if an acknowledged record is lost, or if dm-writecache, cut in the same way, loses none.
    """
    with click_errors():
        document = trial(runs, control_runs, seed, suite, filesystem, progress(), partial(write_json, json_path))
    conclude(document)


def trial(
    runs: int,
    control_runs: int,
    seed: int,
    suite: str | None,
    filesystem: str,
    say: Say,
    keep: Callable[[dict[str, Any]], None] = lambda _: None,
) -> dict[str, Any]:
    """Run the control first, which takes less time; `keep` gets the document after each cut.

    Raises HypervisorError, and ImageError if there is no image to boot.
    """
    from elastio_testbed.cuts import adaptive, control, plan  # noqa: PLC0415  moto takes a second to load
    from elastio_testbed.cuts.cut_result import CutResult, summary  # noqa: PLC0415

    image, beside = build_guest_image(suite=suite), build_guest_image(suite=control.SUITE)
    say(f"guests on {chosen_hypervisor()}")
    seen: dict[str, list[CutResult]] = {"control": [], "agent": []}

    def document() -> dict[str, Any]:
        results = summary(seen["agent"], seen["control"])
        return {**guests_on(suite), "filesystem": filesystem, "seed": seed, **results}

    with scratch_folder("elastio-cuts-") as name:
        folder = Path(name)
        every = {
            "control": control.results(beside, plan.control(control_runs, seed), seed, folder / "control", say),
            "agent": adaptive.results(image, plan.plan(runs, seed), seed, filesystem, folder / "agent", say),
        }
        for kind, results in every.items():
            for result in results:
                failure = result.failure.partition("\n")[0]
                say(f"{result.planned}: {len(result.lost)} of {result.acknowledged} lost {failure}")
                seen[kind].append(result)
                keep(document())
    return document()
