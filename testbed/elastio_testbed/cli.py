"""`elastio-testbed`: run experiments in the laboratory."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from elastio_cli.options import ABOVE_0, Finite
from elastio_testbed.adoption import adopt
from elastio_testbed.bars_command import WITH_BARS, run_with_bars
from elastio_testbed.bars_report import has_bars
from elastio_testbed.bars_report import sections as sections_with_bars
from elastio_testbed.catalogue import EXPERIMENTS
from elastio_testbed.console import click_errors, progress
from elastio_testbed.cuts.command import cuts
from elastio_testbed.errors import PlaceholderError
from elastio_testbed.evaluation import to_text
from elastio_testbed.experiment import PUBLISHED, Ahead, Setup
from elastio_testbed.faults.command import consistency, faults
from elastio_testbed.files import (
    json_text,
    read_json,
    read_result,
    require_writable,
    write_json,
    write_or_print,
    write_text,
)
from elastio_testbed.hypervisor import QEMU
from elastio_testbed.image import build_cloud_image, build_guest_image
from elastio_testbed.markdown import fault_section, rewritten, sections
from elastio_testbed.openstack.cli import openstack
from elastio_testbed.optimum.command import optimum
from elastio_testbed.options import (
    FACTOR,
    adopted_option,
    bandwidth_option,
    boot_every_guest,
    default_bandwidth,
    guest_options,
    json_option,
    scale_option,
    suite_option,
    use_hypervisor,
)
from elastio_testbed.run import Progress, run
from elastio_testbed.series import series_of
from elastio_testbed.trial import EC2, OPENSTACK, Plan

ALL = "all"
EXPERIMENT = click.Choice(sorted(EXPERIMENTS))
ANY_EXPERIMENT = click.Choice(sorted([*EXPERIMENTS, *WITH_BARS]))
RESULT = click.Path(path_type=Path, exists=True, dir_okay=False)
png_option = click.option("--png", "png_path", type=click.Path(path_type=Path), help="File for the picture.")
html_option = click.option(
    "--html", "html_path", type=click.Path(path_type=Path), help="File for a self-contained page with all tables."
)


@click.group()
def main() -> None:
    """The laboratory of elastio: real bcache in QEMU guests, against an EC2-compatible endpoint or a real OpenStack."""


main.add_command(adopt)
main.add_command(faults)
main.add_command(consistency)
main.add_command(cuts)
main.add_command(optimum)


@main.command(name="run")
@click.argument("experiment", type=ANY_EXPERIMENT)
@click.option(
    "--setup",
    "setups",
    type=click.Choice([*(s.value for s in Setup), ALL]),
    multiple=True,
    default=[ALL],
    show_default=True,
    help="Storage set-up; may be repeated. `all` means those of the experiment, which are the three published ones "
    "except for cold.",
)
@scale_option
@bandwidth_option
@click.option("--vms", type=click.IntRange(1, 8), default=1, show_default=True, help="Number of guests per set-up.")
@click.option(
    "--cloud", type=click.Choice([EC2, OPENSTACK]), default=EC2, show_default=True, help="Cloud that sells the volumes."
)
@guest_options
@click.option(
    "--disturb",
    type=click.IntRange(1, 100),
    help="Number of the burst in which the disks of an adaptive guest are slow for 10 s.",
)
@click.option(
    "--ahead",
    type=click.Choice([a.value for a in Ahead]),
    callback=lambda _ctx, _param, value: None if value is None else Ahead(value),
    help="How the agent learns of bursts before they begin: the application announces them, or the agent forecasts "
    "them from what it has seen. Default: it does not.",
)
@adopted_option
@click.option("--repeat", type=click.IntRange(1, 100), default=1, show_default=True, help="Number of repetitions.")
@click.option("--side-by-side", is_flag=True, help="All set-ups at once, with start times that keep their dumps apart.")
@json_option
@png_option
@html_option
def run_command(
    experiment: str,
    setups: tuple[str, ...],
    scale: float | None,
    json_path: Path | None,
    png_path: Path | None,
    html_path: Path | None,
    **options: Any,
) -> None:
    """Run EXPERIMENT with one or all storage set-ups and compare them. Files are written after every repetition.

    `two-to-one`, `slo` and `pgbench` compare controls of one set-up instead, and `montage` bandwidths of a volume; they
    take the options of the guest, --scale, --bandwidth and --json.
    """
    if experiment in WITH_BARS:
        run_with_bars(experiment, scale, options["bandwidth"], options["suite"], json_path)
        return
    published = EXPERIMENTS[experiment]
    plan = Plan(experiment, chosen_setups(setups, published.setups), scale or published.default_scale, **options)
    last = None
    with click_errors():
        for last in run(plan, progress()):
            write_files(document_of(last), json_path, png_path, html_path)
    if last is None:
        raise click.ClickException("nothing was run")
    for record in last.evidence[last.evaluation.shown].values():
        if record.cost_report:
            click.echo(f"\n`elastio report` in the guest:\n{record.cost_report}\n")
    click.echo(to_text(last.evaluation))
    if not last.evaluation.is_sound:
        sys.exit(1)


def document_of(done: Progress) -> dict[str, Any]:
    """The result as it is stored, with the data of its picture."""
    evaluation = done.evaluation
    records = done.evidence[evaluation.shown]
    return {**evaluation.to_json(), "picture": [series_of(s, record).to_json() for s, record in records.items()]}


def write_files(
    document: dict[str, Any], json_path: Path | None, png_path: Path | None, html_path: Path | None
) -> None:
    """Write each file that has a path. Missing folders are made."""
    write_json(json_path, document)
    if png_path is not None:
        from elastio_testbed.picture import save  # noqa: PLC0415  matplotlib takes a second to load

        save(document, png_path)
    if html_path is not None:
        from elastio_testbed.page import page  # noqa: PLC0415

        write_text(html_path, page(document))


@main.command()
@click.argument("results", nargs=-1, required=True, type=RESULT, metavar="RESULT...")
@click.option("--into", type=RESULT, help="Page into which the tables are written, between its placeholders.")
def tables(results: tuple[Path, ...], into: Path | None) -> None:
    """Print the tables of RESULT files (JSON of `run` or `faults`) as Markdown."""
    documents = {path: read_json(path) for path in results}
    campaigns = [document for document in documents.values() if "stories" in document]
    shared = [document for document in documents.values() if has_bars(document)]
    parts = sections(
        [read_result(path) for path, document in documents.items() if document not in [*campaigns, *shared]]
    )
    parts |= sections_with_bars(shared)
    if campaigns:
        parts["faults"] = fault_section(campaigns)
    if into is None:
        click.echo("\n\n".join(parts.values()))
        return
    try:
        text = rewritten(into.read_text(), parts)
    except PlaceholderError as error:
        raise click.ClickException(f"{into}: {error}; nothing was changed") from error
    write_text(into, text)
    click.echo(f"{into}: wrote {', '.join(parts)}")


@main.command()
@click.argument("result", type=RESULT)
@png_option
@html_option
def render(result: Path, png_path: Path | None, html_path: Path | None) -> None:
    """Draw the picture, or write the page, of a RESULT file."""
    write_files(read_result(result), None, png_path, html_path)


def chosen_setups(words: tuple[str, ...], every: tuple[Setup, ...] = PUBLISHED) -> tuple[Setup, ...]:
    """The set-ups of `--setup`, each once, in the order in which they are compared. `every`: what `all` means."""
    wanted = {setup for word in words for setup in (every if word == ALL else (Setup(word),))}
    return tuple(setup for setup in Setup if setup in wanted)


@main.command(name="predict")
@click.argument("experiment", type=EXPERIMENT)
@scale_option
@bandwidth_option
@click.option(
    "--repeats", type=click.IntRange(1, 20), default=2, show_default=True, help="Repetitions of each measurement."
)
@click.option(
    "--max-time",
    "max_time_s",
    type=ABOVE_0,
    help="Deadline in the guest's seconds; the size planned for it is run, too.",
)
@guest_options
@click.option("--json", "json_path", type=click.Path(path_type=Path, dir_okay=False), help="File for the result.")
@click.option(
    "--profile",
    "profile_path",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File for the calibration; an existing one is used instead of calibrating.",
)
@click.option("--side-by-side", is_flag=True, help="The three set-ups at once: faster, but needs six processors.")
def predict_command(
    experiment: str, scale: float | None, bandwidth: float, suite: str | None, json_path: Path | None, **options: Any
) -> None:
    """Calibrate, predict EXPERIMENT, run it, and compare: predicted over measured, for each storage set-up."""
    from elastio_testbed import predict as prediction  # noqa: PLC0415  scipy takes a second to load

    if json_path is not None:
        require_writable(json_path)
    asked = prediction.PredictOptions(**options)
    if asked.profile_path is not None and not asked.profile_path.exists():
        require_writable(asked.profile_path)

    def keep(found: prediction.Prediction) -> None:
        if json_path is not None:
            write_or_print(json_path, json_text(found.to_json()))

    with click_errors():
        plan = Plan(experiment, PUBLISHED, scale or EXPERIMENTS[experiment].default_scale, bandwidth, suite=suite)
        found = prediction.predict(plan, asked, keep, progress())
    click.echo(prediction.to_text(found))
    if not found.is_sound:
        sys.exit(1)


@main.command()
@click.option(
    "--seconds", type=Finite(10, 3600), default=120, show_default=True, help="Duration of the measurement in seconds."
)
@suite_option
@json_option
def bench(seconds: float, suite: str | None, json_path: Path | None) -> None:
    """Measure what the idle daemon costs, at a sampling interval of 1 s, in a guest that QEMU boots for it."""
    from elastio_testbed.bench import footprint  # noqa: PLC0415

    use_hypervisor(QEMU)  # the other one counts processor time in steps of 10 ms
    boot_every_guest()
    with click_errors():
        found = footprint(seconds, suite)
    write_json(json_path, found)
    click.echo(json.dumps(found, indent=2))


@main.command()
@click.option("--scale", type=FACTOR, default=0.25, show_default=True, help="Factor for times and amounts of data.")
@guest_options
@json_option
def sizing(scale: float, suite: str | None, json_path: Path | None) -> None:
    """Compare the cache size that is learned for a burst with the smallest that absorbs it."""
    from elastio_testbed.sizing import measure  # noqa: PLC0415

    plan = Plan("cm1", (Setup.ADAPTIVE,), scale=scale, bandwidth=default_bandwidth())
    with click_errors():
        found = measure(plan, build_guest_image(suite=suite), progress()).as_dict()
    write_json(json_path, found)
    click.echo(json.dumps(found, indent=2))


@main.command()
@click.option("--cloud", "cloud_path", type=click.Path(path_type=Path), help="File for a bootable qcow2 image.")
@suite_option
def image(cloud_path: Path | None, suite: str | None) -> None:
    """Build the guest image, unless it is in the cache."""
    with click_errors():
        built = build_guest_image(suite=suite)
        click.echo(f"guest image {built.digest}: {built.root}")
        if cloud_path is not None:
            build_cloud_image(cloud_path, suite=suite)
            click.echo(f"cloud image: {cloud_path}")


@main.group(name="cloud")
def clouds() -> None:
    """Clouds that run on this machine."""


clouds.add_command(openstack)
