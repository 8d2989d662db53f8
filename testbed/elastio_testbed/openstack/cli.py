"""`elastio-testbed cloud openstack`: the laboratory's OpenStack from the command line."""

from __future__ import annotations

import time

import click

MIB = 2**20


@click.group()
def openstack() -> None:
    """A real one-node OpenStack in a root directory of its own, on loopback."""


@openstack.command()
def up() -> None:
    """Install what is missing, start what does not run. Repeating does nothing."""
    from elastio_testbed.openstack.lab import open_lab  # noqa: PLC0415  the SDK takes a second to load

    began = time.monotonic()
    with _told():
        lab = open_lab(_say)
        installed_s = time.monotonic() - began
        if installed_s > 1:
            _say(f"packages installed in {installed_s:.0f} s: {lab.root}")
        lab.up(_say)
    click.echo(f"OpenStack is up after {time.monotonic() - began:.1f} s; logs in {lab.root}/var/log/lab")


@openstack.command()
@click.option("--remove", is_flag=True, help="Also remove packages, databases and volumes.")
def down(remove: bool) -> None:
    """Stop guests and services, and unmount."""
    from elastio_testbed.openstack.lab import find_lab, remove_lab  # noqa: PLC0415

    with _told():
        lab = find_lab()
        if lab is not None:
            lab.down()
        if remove:
            remove_lab()
    click.echo("OpenStack is down" + (" and removed" if remove else ""))


@openstack.command()
def status() -> None:
    """What runs, with its memory; exit code 1 when anything does not."""
    from elastio_testbed.openstack.lab import find_lab  # noqa: PLC0415

    lab = find_lab()
    if lab is None:
        raise click.ClickException("there is no OpenStack yet; `elastio-testbed cloud openstack up` makes it")
    rows = lab.status()
    for row in rows:
        state = f"pid {row.pid:7d}  {row.memory_bytes / MIB:6.0f} MiB" if row.pid else "down"
        click.echo(f"{row.name:16s} {state}")
    click.echo(f"{'together':16s} {'':11s}  {sum(row.memory_bytes for row in rows) / MIB:6.0f} MiB")
    if any(row.pid is None for row in rows):
        raise SystemExit(1)


def _say(text: str) -> None:
    click.echo(text, err=True)


class _told:
    """Turns LabError into one sentence and exit code 1."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        from elastio_testbed.openstack.errors import LabError  # noqa: PLC0415

        if isinstance(error, LabError):
            raise click.ClickException(str(error)) from error
