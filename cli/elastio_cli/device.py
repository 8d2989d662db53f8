"""`elastio device`: formats backing devices; a volume with data gets an adaptive device, and goes back."""

from __future__ import annotations

import os
import re
from pathlib import Path

import click

from elastio.errors import HostError
from elastio.host import composed
from elastio.host.usage import mounted_at
from elastio_cli.app import App
from elastio_cli.consent import confirm
from elastio_cli.state import without_agent
from elastio_setup import adopted_record as records
from elastio_setup import at_boot, release_created
from elastio_setup.adopt import Adopter
from elastio_setup.adopt_plan import plan
from elastio_setup.adopted_again import recorded_again
from elastio_setup.adopted_record import Record
from elastio_setup.adopted_volume import describe, path_of
from elastio_setup.adopted_volume import replaced as replaced_by
from elastio_setup.format_backing import format_backing, name_of, verify


@click.command(short_help="Put an adaptive device in front of a volume with data.")
@click.argument("target", metavar="DEVICE|VG/LV|MOUNTPOINT", type=click.Path(path_type=Path))
@click.option(
    "--head",
    "head",
    metavar="DEVICE",
    type=click.Path(path_type=Path),
    help="Blank device for the head; without it that lies in the volume group, or behind the filesystem.",
)
@click.option("--at-boot", "is_at_boot", is_flag=True, help="Adopt what is mounted and in use at the next boot.")
@click.option("--cancel", is_flag=True, help="Take --at-boot back, by MOUNTPOINT or UUID.")
@click.option("--dry-run", is_flag=True, help="Check everything, print what would be done, and change nothing.")
@click.option("--yes", is_flag=True, help="Adopt without confirmation.")
@click.pass_obj
def adopt(app: App, target: Path, head: Path | None, is_at_boot: bool, cancel: bool, dry_run: bool, yes: bool) -> None:
    """Put an adaptive device in front of an ext4, xfs, btrfs, closed LUKS or inactive LVM. Experimental.

    If anything does not allow it, nothing is changed, and the exit code is 1.
    """
    _require_root()
    sysfs = app.sysfs()
    adopter = Adopter(sysfs, app.run)
    if cancel:
        click.echo(f"{at_boot.cancel(adopter, str(target))} is not adopted at the next boot")
        return
    found = plan(target, head, sysfs, app.run, is_at_boot=is_at_boot)
    click.echo(found.shown)
    if dry_run:
        return
    if not yes:
        confirm("adopt it?")
        # The question may have waited for an hour, and was answered for what was seen.
        found = plan(target, head, sysfs, app.run, is_at_boot=is_at_boot)
    if is_at_boot:
        when = "at the next boot" if at_boot.ask(adopter, found) else "at the next boot, as was asked for before"
        click.echo(f"it is adopted {when}; `elastio device adopt {found.place} --cancel` takes it back")
        return
    adaptive = adopter.adopt(found)
    at_boot.forget(sysfs, found.volume.uuid)
    click.echo(f"what is on it is on /dev/{adaptive} now; `elastio device release {found.volume.uuid}` undoes it")


@click.command(short_help="Use a volume without elastio again.")
@click.argument("target", metavar="DEVICE|VG/LV|MOUNTPOINT|UUID")
@click.option("--dry-run", is_flag=True, help="Check everything, print what would be done, and change nothing.")
@click.option("--yes", is_flag=True, help="Release without confirmation.")
@click.option("--replaced", is_flag=True, help="The adopted volume was formatted, or its UUID changed.")
@click.pass_obj
def release(app: App, target: str, dry_run: bool, yes: bool, replaced: bool) -> None:
    """Use a volume without elastio: undo `elastio device adopt`, or leave a device of `elastio device create`.

    Nothing is copied. If anything does not allow it, nothing is changed, and the exit code is 1.
    """
    _require_root()
    adopted = _adopted(app, target)
    if adopted is None:
        _release_created(app, target, dry_run, yes)
        return
    (record, place), adopter = adopted, Adopter(app.sysfs(), app.run, is_replaced=replaced)
    around = f", unmounting {place} meanwhile" if place else ""
    if replaced and (found := replaced_by(app.sysfs(), record.head.volume, app.run)) is not None:
        around += f"; its head is erased, and /dev/{found} stays as it is"
    if dry_run:
        with without_agent(app, record.head.backing_uuid):
            adopter.require_releasable(record, place)
        click.echo(f"would release the adopted volume {record.uuid}{around}")
        return
    if not yes:
        confirm(f"release the adopted volume {record.uuid}{around}?")
    with without_agent(app, record.head.backing_uuid):
        adopter.release(record, place)
    click.echo(f"the filesystem {record.uuid} is on its own volume again")


def _release_created(app: App, target: str, dry_run: bool, yes: bool) -> None:
    sysfs = app.sysfs()
    if not dry_run:
        release_created.register(target, sysfs)
    found = release_created.plan(target, sysfs, app.run)
    with without_agent(app, found.uuid):
        click.echo(found.shown)
    if dry_run:
        return
    if not yes:
        confirm("release it?")
    with without_agent(app, found.uuid):
        found = release_created.plan(target, sysfs, app.run)  # the question may have waited for an hour
        partition = release_created.Releaser(sysfs, app.run).release(found)
    click.echo(f"the data is on /dev/{partition} now, without bcache; its agent has no device: disable or remove it")


# Of ext4, xfs, btrfs and LUKS, and of a physical volume of LVM, which has hyphens elsewhere.
UUID = re.compile(r"[0-9A-Za-z](?:-?[0-9A-Za-z]){31}")


def _uuid(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    """Of a UUID without a record nothing is said: its unit may be started while the record is being removed."""
    if value is not None and not UUID.fullmatch(value):
        raise click.BadParameter(f"{value!r} is not the UUID of a filesystem, as blkid shows it")
    return value


@click.command(short_help="Compose an adopted volume, or end what a crash has left.")
@click.argument("uuid", required=False, callback=_uuid)
@click.option("--head", "head", metavar="DEVICE", type=click.Path(path_type=Path), help="Write the lost record again.")
@click.pass_obj
def compose(app: App, uuid: str | None, head: Path | None) -> None:
    """Compose the adopted volume UUID, or end what a crash has left half done, as elastio-compose@UUID.service does.

    With --head, where /etc/elastio/adopted has no record of it: write the record by what the head says before.
    """
    if (uuid is None) == (head is None):
        raise click.UsageError("give the UUID of the filesystem, or --head DEVICE")
    adopter = Adopter(app.sysfs(), app.run)
    if head is not None:
        _require_root()
    adaptive = recorded_again(adopter, head) if head is not None else at_boot.assemble(adopter, uuid or "")
    click.echo(f"/dev/{adaptive} shows the adopted volume" if adaptive else "no adopted volume is composed")


def _adopted(app: App, target: str) -> tuple[Record, Path | None] | None:
    """The record, and where it is mounted if that was named; None if it is not adopted. Raises ConfigError."""
    sysfs = app.sysfs()
    path = path_of(Path(target), sysfs)
    # By its UUID also if another volume's record is damaged.
    if (named := records.load(sysfs, target)) is not None:
        return named, None
    for record in records.load_all(sysfs):
        adaptive = composed.adaptive_of(sysfs, record.head)
        if path.is_dir() and adaptive and str(path.absolute()) in mounted_at(sysfs, adaptive):
            return record, path.absolute()
        volume = describe(sysfs, name_of(path, sysfs), app.run) if path.is_block_device() else None
        if volume is not None and volume.uuid == record.uuid:
            return record, None
    return None


def _require_root() -> None:
    if os.geteuid() != 0:
        raise HostError("only root can adopt and release volumes: use sudo", code="adopt.root_user")


NEXT = """\
next step:
  elastio setup {path} /data    # makes the filesystem, mounts it, configures and starts the agent
By hand: make a filesystem on /dev/{adaptive}, mount it by its UUID
in /etc/fstab, then `elastio init --device {uuid}`.
Give it `nofail`: the device does not appear while its cache is missing, and the machine must boot without it."""


@click.group(name="device")
def device() -> None:
    """Format backing devices, and adopt volumes that have data."""


for command in (adopt, release, compose):
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
        confirm(f"format {path} ({verified.shown}) as a backing device?")
        # The question may have waited for an hour, and was answered for what was seen.
        verified = verify(path, sysfs, app.run, is_forced=not verified.is_blank)
    created = format_backing(verified, sysfs, app.run)
    click.echo(f"{path} is a backing device: UUID {created.uuid}")
    click.echo(f"use /dev/{created.adaptive} from now on, never {path}")
    click.echo(NEXT.format(path=path, adaptive=created.adaptive, uuid=created.uuid))
