"""`elastio device`: formats backing devices, adopts volumes and releases them."""

from __future__ import annotations

from pathlib import Path

import click

from elastio.cli import adopt
from elastio.cli.app import App
from elastio.setup.format_backing import format_backing, verify

NEXT = """\
next step:
  elastio setup {path} /data    # makes the filesystem, mounts it, configures and starts the agent
By hand: make a filesystem on /dev/{adaptive}, mount it by its UUID
in /etc/fstab, then `elastio init --device {uuid}`.
Give it `nofail`: the device does not appear while its cache is missing, and the machine must boot without it."""


@click.group(name="device")
def device() -> None:
    """Format backing devices, and adopt volumes that have data."""


for command in (adopt.adopt, adopt.release, adopt.compose):
    device.add_command(command)


@device.command()
@click.argument("path", metavar="DEVICE", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Format also a volume that is not blank: the data on it is lost.")
@click.option("--yes", is_flag=True, help="Format without confirmation.")
@click.pass_obj
def create(app: App, path: Path, force: bool, yes: bool) -> None:
    """Format the blank volume DEVICE as a bcache backing device.

    DEVICE must be a whole, writable, unused volume without any signature, and read as zeros wherever it is looked at.
    Otherwise nothing is changed, and the exit code is 1.
    """
    sysfs = app.sysfs()
    verified = verify(path, sysfs, app.run, is_forced=force)
    if not yes:
        click.confirm(f"format {path} ({verified.shown}) as a backing device?", abort=True)
        # The question may have waited for an hour, and was answered for what was seen.
        verified = verify(path, sysfs, app.run, is_forced=not verified.is_blank)
    created = format_backing(verified, sysfs, app.run)
    click.echo(f"{path} is a backing device: UUID {created.uuid}")
    click.echo(f"use /dev/{created.adaptive} from now on, never {path}")
    click.echo(NEXT.format(path=path, adaptive=created.adaptive, uuid=created.uuid))
