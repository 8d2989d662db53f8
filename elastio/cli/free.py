"""`elastio free`: removes the I/O limits of a killed agent. Needs no configuration, lock, journal or agent."""

from __future__ import annotations

import click

from elastio.cli.app import App
from elastio.host import throttle


@click.command()
@click.pass_context
def free(ctx: click.Context) -> None:
    """Remove the I/O limits that an agent set on applications.

    The agent removes its limits itself, and its unit runs this command before each start and after each stop. Use it
    by hand only if both hang. A running agent sets its limits again when it needs them.
    """
    app: App = ctx.obj
    groups = throttle.release(app.sysfs())
    click.echo(f"I/O limits removed: {', '.join(groups)}" if groups else "there were no I/O limits")
