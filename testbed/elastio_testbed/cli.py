"""`elastio-testbed`: run experiments in the laboratory."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import click

from elastio_testbed.experiment import EXPERIMENTS, Setup
from elastio_testbed.hypervisor import HypervisorError
from elastio_testbed.hypervisor.accel import accelerator
from elastio_testbed.image import ImageError, build_cloud_image, build_guest_image
from elastio_testbed.openstack.cli import openstack
from elastio_testbed.openstack.errors import LabError
from elastio_testbed.run import Plan, run

ALL = "all"
UNDER_EMULATION = 0.5


@click.group()
def main() -> None:
    """The laboratory of elastio: real bcache in QEMU guests, against an honest EC2 endpoint."""


@main.command(name="run")
@click.argument("experiment", type=click.Choice(sorted(EXPERIMENTS)))
@click.option("--setup", type=click.Choice([*(s.value for s in Setup), ALL]), default=ALL, show_default=True)
@click.option("--scale", type=click.FloatRange(0.01, 10), default=1.0, show_default=True, help="Of time and data.")
@click.option("--bandwidth", type=click.FloatRange(0.01, 10), help="Of bandwidth and data; 1 with KVM, else 0.5.")
@click.option("--vms", type=click.IntRange(1, 8), default=1, show_default=True)
@click.option("--cloud", type=click.Choice(["ec2", "openstack"]), default="ec2", show_default=True)
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write the result here.")
@click.option("--png", "png_path", type=click.Path(path_type=Path), help="Draw the picture here.")
def run_command(
    experiment: str,
    setup: str,
    scale: float,
    bandwidth: float | None,
    vms: int,
    cloud: str,
    json_path: Path | None,
    png_path: Path | None,
) -> None:
    """Run EXPERIMENT with one or all storage set-ups and compare them."""
    from elastio_testbed.picture import draw  # noqa: PLC0415  matplotlib takes a second to load
    from elastio_testbed.result import to_text  # noqa: PLC0415

    factor = bandwidth if bandwidth is not None else (1.0 if accelerator() == "kvm" else UNDER_EMULATION)
    setups = tuple(Setup) if setup == ALL else (Setup(setup),)
    began = time.monotonic()
    try:
        result, evidence = run(
            Plan(experiment, setups, scale, factor, vms, cloud=cloud),
            lambda text: click.echo(f"[{time.monotonic() - began:6.1f} s] {text}", err=True),
        )
    except (HypervisorError, ImageError, LabError) as error:
        raise click.ClickException(str(error)) from error
    if json_path is not None:
        json_path.parent.mkdir(parents=True, exist_ok=True)
        json_path.write_text(json.dumps(result.to_json(), indent=2) + "\n")
    if png_path is not None:
        draw(result, evidence, png_path)
    for setup_run in evidence.values():
        if setup_run.cost_report:
            click.echo(f"\n`elastio report` in the guest:\n{setup_run.cost_report}\n")
    click.echo(to_text(result))
    if not all(s.checksums_ok and s.volumes_left == 0 for s in result.setups):
        sys.exit(1)


@main.command()
@click.option("--seconds", type=click.FloatRange(10, 3600), default=120, show_default=True)
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write the result here.")
def bench(seconds: float, json_path: Path | None) -> None:
    """Measure what the daemon costs at rest, at 1 s sampling."""
    from elastio_testbed.bench import footprint  # noqa: PLC0415

    try:
        found = footprint(seconds)
    except (HypervisorError, ImageError) as error:
        raise click.ClickException(str(error)) from error
    if json_path is not None:
        json_path.parent.mkdir(parents=True, exist_ok=True)
        json_path.write_text(json.dumps(found, indent=2) + "\n")
    click.echo(json.dumps(found, indent=2))


@main.command()
@click.option("--cloud", "cloud_path", type=click.Path(path_type=Path), help="Also leave a bootable qcow2 here.")
def image(cloud_path: Path | None) -> None:
    """Build the guest image, unless it is there already."""
    try:
        built = build_guest_image()
        click.echo(f"guest image {built.digest}: {built.root}")
        if cloud_path is not None:
            build_cloud_image(cloud_path)
            click.echo(f"cloud image: {cloud_path}")
    except ImageError as error:
        raise click.ClickException(str(error)) from error


@main.group(name="cloud")
def clouds() -> None:
    """Clouds that run on this machine."""


clouds.add_command(openstack)
