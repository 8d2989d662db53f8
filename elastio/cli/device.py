"""`elastio device`: backing devices."""

from __future__ import annotations

from pathlib import Path

import click

from elastio.cli.app import App
from elastio.setup.blank import examine, make
from elastio.units import format_size

NEXT = """\
next steps:
  mkfs.ext4 /dev/{adaptive}
  echo '/dev/disk/by-uuid/<UUID of the filesystem> /data ext4 nofail 0 2' >> /etc/fstab
  mount /data
  elastio init --device {uuid}
`nofail` matters: while its cache is missing the device waits, and the machine should boot all the same"""


@click.group(name="device")
def device() -> None:
    """Make a backing device."""


@device.command()
@click.argument("path", metavar="DEVICE", type=click.Path(path_type=Path))
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def create(app: App, path: Path, yes: bool) -> None:
    """Make the blank volume DEVICE a backing device, ready for a filesystem.

    Refused, with nothing changed, unless it is a whole, writable, unused volume without any signature.
    """
    sysfs = app.sysfs()
    blank = examine(path, sysfs, app.run)
    size = format_size(blank.size_bytes)
    if not yes:
        click.confirm(f"{path} ({size}, blank) becomes a backing device; go on?", abort=True)
    made = make(blank, sysfs, app.run)
    click.echo(f"{path} is a backing device: UUID {made.uuid}")
    click.echo(f"use /dev/{made.adaptive} from now on, never {path} itself")
    click.echo(NEXT.format(adaptive=made.adaptive, uuid=made.uuid))
