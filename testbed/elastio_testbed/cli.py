"""`elastio-testbed`: run experiments in the laboratory."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import click

from elastio.cli.numbers import ABOVE_0, Finite
from elastio.errors import ElastioError
from elastio_testbed.cuts.command import cuts
from elastio_testbed.evaluation import to_text
from elastio_testbed.experiment import EXPERIMENTS, PUBLISHED, Setup
from elastio_testbed.faults.command import faults
from elastio_testbed.faults.consistency_command import consistency
from elastio_testbed.hypervisor import HypervisorError
from elastio_testbed.hypervisor.accel import accelerator
from elastio_testbed.image import ImageError, build_cloud_image, build_guest_image
from elastio_testbed.markdown import MarkError, fault_section, rewritten, sections
from elastio_testbed.openstack.cli import openstack
from elastio_testbed.openstack.errors import LabError
from elastio_testbed.options import suite_option
from elastio_testbed.page import page
from elastio_testbed.run import Plan, Progress, run
from elastio_testbed.series import from_json, shown
from elastio_testbed.trial import EC2, OPENSTACK

ALL = "all"
UNDER_EMULATION = 0.5
FACTOR = Finite(0.01, 10)


@click.group()
def main() -> None:
    """The laboratory of elastio: real bcache in QEMU guests, against an honest EC2 endpoint or a real OpenStack."""


main.add_command(faults)
main.add_command(consistency)
main.add_command(cuts)


@main.command(name="run")
@click.argument("experiment", type=click.Choice(sorted(EXPERIMENTS)))
@click.option(
    "--setup",
    "setups",
    type=click.Choice([*(s.value for s in Setup), ALL]),
    multiple=True,
    default=[ALL],
    show_default=True,
    help="May be given more than once; `all` are the three published ones.",
)
@click.option("--scale", type=FACTOR, default=1.0, show_default=True, help="Of time and data.")
@click.option("--bandwidth", type=FACTOR, help="Of bandwidth and data; 1 with KVM, else 0.5.")
@click.option("--vms", type=click.IntRange(1, 8), default=1, show_default=True)
@click.option("--cloud", type=click.Choice([EC2, OPENSTACK]), default=EC2, show_default=True)
@suite_option
@click.option("--disturb", type=click.IntRange(1, 100), help="Have the disks slow for 10 s in this burst (adaptive).")
@click.option("--repeat", type=click.IntRange(1, 100), default=1, show_default=True, help="Repetitions.")
@click.option("--side-by-side", is_flag=True, help="All set-ups at once, started so that their dumps do not meet.")
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write the result here.")
@click.option("--png", "png_path", type=click.Path(path_type=Path), help="Draw the picture here.")
@click.option("--html", "html_path", type=click.Path(path_type=Path), help="Write a page that needs nothing else here.")
def run_command(
    experiment: str,
    setups: tuple[str, ...],
    json_path: Path | None,
    png_path: Path | None,
    html_path: Path | None,
    bandwidth: float | None,
    **options: Any,
) -> None:
    """Run EXPERIMENT with one or all storage set-ups and compare them. Files are written after every repetition."""
    factor = bandwidth if bandwidth is not None else (1.0 if accelerator() == "kvm" else UNDER_EMULATION)
    plan = Plan(experiment, chosen_setups(setups), bandwidth=factor, **options)
    began = time.monotonic()
    progress = None
    try:
        for progress in run(plan, lambda text: click.echo(f"[{time.monotonic() - began:6.1f} s] {text}", err=True)):
            document = document_of(progress)
            write_files(document, json_path, png_path, html_path)
    except (HypervisorError, ImageError, LabError) as error:
        raise click.ClickException(str(error)) from error
    if progress is None:
        raise click.ClickException("nothing was run")
    for record in progress.evidence[progress.evaluation.shown].values():
        if record.cost_report:
            click.echo(f"\n`elastio report` in the guest:\n{record.cost_report}\n")
    click.echo(to_text(progress.evaluation))
    if not progress.evaluation.is_sound:
        sys.exit(1)


def document_of(progress: Progress) -> dict[str, Any]:
    """The result as it is written to a file: with what its picture shows."""
    evaluation = progress.evaluation
    records = progress.evidence[evaluation.shown]
    return {**evaluation.to_json(), "picture": [shown(s, record).to_json() for s, record in records.items()]}


def write_files(
    document: dict[str, Any], json_path: Path | None, png_path: Path | None, html_path: Path | None
) -> None:
    """What was asked for, in folders that are made if missing."""
    if json_path is not None:
        write_text(json_path, to_json_text(document))
    if png_path is not None:
        from elastio_testbed.picture import draw  # noqa: PLC0415  matplotlib takes a second to load

        draw(document, [from_json(row) for row in document["picture"]], png_path)
    if html_path is not None:
        write_text(html_path, page(document))


def to_json_text(document: dict[str, Any]) -> str:
    """Indented for readers, but for the points of the picture: one line each would be most of the file."""
    text = json.dumps({name: value for name, value in document.items() if name != "picture"}, indent=2)
    points = json.dumps(document["picture"], separators=(",", ":"))
    return f'{text.removesuffix("}").rstrip()},\n  "picture": {points}\n}}\n'


def write_text(path: Path, text: str) -> None:
    """Replace the file at once: a reader sees the old text or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.unfinished")
    unfinished.write_text(text)
    unfinished.replace(path)


def require_writable(path: Path) -> None:
    """Raises ClickException where a file that is written after hours could not be written now."""
    trial = path.with_name(f".{path.name}.trial")
    try:
        write_text(trial, "")
        trial.unlink()
    except OSError as error:
        raise click.ClickException(f"{path} cannot be written: {error.strerror}; nothing was run") from error


def write_or_print(path: Path, text: str) -> None:
    """What took hours is not lost to a full disk."""
    try:
        write_text(path, text)
    except OSError as error:
        click.echo(f"{path} cannot be written: {error.strerror}; this belongs in it:\n{text}", err=True)


@main.command()
@click.argument(
    "results",
    nargs=-1,
    required=True,
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="RESULT...",
)
@click.option(
    "--into",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Rewrite the marked parts of this page instead of printing.",
)
def tables(results: tuple[Path, ...], into: Path | None) -> None:
    """Print the tables of RESULT files (JSON, from `run`, or from `faults`) as Markdown."""
    documents = {path: read_json(path) for path in results}
    campaigns = [document for document in documents.values() if "stories" in document]
    parts = sections([read_result(path) for path, document in documents.items() if document not in campaigns])
    if campaigns:
        parts["faults"] = fault_section(campaigns)
    if into is None:
        click.echo("\n\n".join(parts.values()))
        return
    try:
        text = rewritten(into.read_text(), parts)
    except MarkError as error:
        raise click.ClickException(f"{into}: {error}; nothing was changed") from error
    write_text(into, text)
    click.echo(f"{into}: wrote {', '.join(parts)}")


@main.command()
@click.argument("result", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--png", "png_path", type=click.Path(path_type=Path), help="Draw the picture here.")
@click.option("--html", "html_path", type=click.Path(path_type=Path), help="Write the page here.")
def render(result: Path, png_path: Path | None, html_path: Path | None) -> None:
    """Draw the picture, or write the page, of a RESULT file anew."""
    write_files(read_result(result), None, png_path, html_path)


def read_json(path: Path) -> dict[str, Any]:
    """A document. Raises ClickException for a file that is none."""
    try:
        document = json.loads(path.read_text())
    except ValueError as error:
        raise click.ClickException(f"{path} is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise click.ClickException(f"{path} is not a result: it is no JSON object")
    return document


def read_result(path: Path) -> dict[str, Any]:
    """A result's document. Raises ClickException for a file that is none."""
    document = read_json(path)
    if not document.get("repetitions"):
        raise click.ClickException(f"{path} is not a result of `elastio-testbed run`: it has no repetitions")
    return document


def chosen_setups(words: tuple[str, ...]) -> tuple[Setup, ...]:
    """What `--setup` asks for, each once, in the order in which set-ups are compared."""
    wanted = {setup for word in words for setup in (PUBLISHED if word == ALL else (Setup(word),))}
    return tuple(setup for setup in Setup if setup in wanted)


@main.command(name="predict")
@click.argument("experiment", type=click.Choice(sorted(EXPERIMENTS)))
@click.option("--scale", type=FACTOR, default=1.0, show_default=True, help="Of time and data.")
@click.option("--bandwidth", type=FACTOR, help="Of bandwidth and data; 1 with KVM, else 0.5.")
@click.option("--repeats", type=click.IntRange(1, 20), default=2, show_default=True, help="Of each measurement.")
@click.option(
    "--max-time",
    "max_time_s",
    type=ABOVE_0,
    help="Also run the size planned for this deadline, in the guest's seconds.",
)
@suite_option
@click.option("--json", "json_path", type=click.Path(path_type=Path, dir_okay=False), help="Write the result here.")
@click.option(
    "--profile",
    "profile_path",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Keep the calibration here; one that is there is used.",
)
@click.option("--side-by-side", is_flag=True, help="The three set-ups at once: sooner, and for six processors.")
def predict_command(
    experiment: str,
    scale: float,
    bandwidth: float | None,
    repeats: int,
    max_time_s: float | None,
    suite: str | None,
    json_path: Path | None,
    profile_path: Path | None,
    side_by_side: bool,
) -> None:
    """Calibrate, predict EXPERIMENT, run it for real, and compare: predicted over real, for each storage set-up."""
    from elastio_testbed import predict as prediction  # noqa: PLC0415  scipy takes a second to load

    if json_path is not None:
        require_writable(json_path)
    if profile_path is not None and not profile_path.exists():
        require_writable(profile_path)
    factor = bandwidth if bandwidth is not None else (1.0 if accelerator() == "kvm" else UNDER_EMULATION)
    began = time.monotonic()

    def keep(found: prediction.Prediction) -> None:
        if json_path is not None:
            write_or_print(json_path, json.dumps(found.to_json(), indent=2) + "\n")

    try:
        found = prediction.predict(
            Plan(experiment, PUBLISHED, scale, factor, suite=suite),
            prediction.Asked(repeats, max_time_s, profile_path, side_by_side),
            keep,
            lambda text: click.echo(f"[{time.monotonic() - began:6.1f} s] {text}", err=True),
        )
    except (HypervisorError, ImageError, ElastioError) as error:
        raise click.ClickException(str(error)) from error
    click.echo(prediction.to_text(found))
    if not found.is_sound:
        sys.exit(1)


@main.command()
@click.option("--seconds", type=Finite(10, 3600), default=120, show_default=True)
@suite_option
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write the result here.")
def bench(seconds: float, suite: str | None, json_path: Path | None) -> None:
    """Measure what the daemon costs at rest, at 1 s sampling."""
    from elastio_testbed.bench import footprint  # noqa: PLC0415

    try:
        found = footprint(seconds, suite)
    except (HypervisorError, ImageError) as error:
        raise click.ClickException(str(error)) from error
    if json_path is not None:
        json_path.parent.mkdir(parents=True, exist_ok=True)
        json_path.write_text(json.dumps(found, indent=2) + "\n")
    click.echo(json.dumps(found, indent=2))


@main.command()
@click.option("--scale", type=FACTOR, default=0.25, show_default=True, help="Of time and data.")
@suite_option
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write the result here.")
def sizing(scale: float, suite: str | None, json_path: Path | None) -> None:
    """Measure how near the size that is learned for a burst comes to the smallest that does not spill."""
    from elastio_testbed.sizing import measure  # noqa: PLC0415

    plan = Plan("cm1", (Setup.ADAPTIVE,), scale=scale, bandwidth=1.0 if accelerator() == "kvm" else UNDER_EMULATION)
    try:
        found = measure(plan, build_guest_image(suite=suite), lambda text: click.echo(text, err=True)).as_dict()
    except (HypervisorError, ImageError) as error:
        raise click.ClickException(str(error)) from error
    if json_path is not None:
        write_text(json_path, json.dumps(found, indent=2) + "\n")
    click.echo(json.dumps(found, indent=2))


@main.command()
@click.option("--cloud", "cloud_path", type=click.Path(path_type=Path), help="Also leave a bootable qcow2 here.")
@suite_option
def image(cloud_path: Path | None, suite: str | None) -> None:
    """Build the guest image, unless it is there already."""
    try:
        built = build_guest_image(suite=suite)
        click.echo(f"guest image {built.digest}: {built.root}")
        if cloud_path is not None:
            build_cloud_image(cloud_path, suite=suite)
            click.echo(f"cloud image: {cloud_path}")
    except ImageError as error:
        raise click.ClickException(str(error)) from error


@main.group(name="cloud")
def clouds() -> None:
    """Clouds that run on this machine."""


clouds.add_command(openstack)
