"""`elastio free`: removes the I/O limits of a killed agent. Needs no configuration, lock, journal or agent."""

from __future__ import annotations

import click

from elastio.config.paths import NAME
from elastio.errors import ElastioError
from elastio.host import recompose, throttle
from elastio.host.sysfs import Sysfs, wait_for
from elastio_cli.app import App
from elastio_cli.which_device import chosen


@click.command()
@click.option("--device", metavar="NAME", help="Device of the agent  [default: that of elastiod.service]")
@click.pass_context
def free(ctx: click.Context, device: str | None) -> None:
    """Remove the I/O limits that an agent set on applications, and resume adopted volumes that it left suspended.

    The agent does both itself, and its unit runs this command before each start and after each stop. Use it
    by hand only if both hang. A running agent sets its limits again when it needs them. Limits of the agents of other
    devices stay.
    """
    app: App = ctx.obj
    try:
        for resumed in recompose.mend_all(app.sysfs(), wait_for):
            click.echo(f"/dev/{resumed} was suspended, and is not any more")
    finally:
        groups = throttle.release(Sysfs(app.root, _owner(app, device or app.wanted)))
        click.echo(f"I/O limits removed: {', '.join(groups)}" if groups else "there were no I/O limits")


def _owner(app: App, wanted: str | None) -> str:
    """The name of the device, also of one whose configuration cannot be used: its applications must not wait for it."""
    if wanted is None:
        return app.config_path.stem
    try:
        return chosen(app, wanted).config_path.stem
    except ElastioError:
        if NAME.fullmatch(wanted) is None:
            raise
        return wanted
