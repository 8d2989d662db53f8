"""`elastio free`: let applications go that a killed agent held back. Needs no configuration, lock, journal or agent."""

from __future__ import annotations

import click

from elastio.cli.app import App
from elastio.host import throttle


@click.command()
@click.pass_context
def free(ctx: click.Context) -> None:
    """Let applications go that an agent held back or slowed down.

    The agent does so itself, and its unit runs this before each start and after each end. By hand it is of use when
    both are hung. An agent that works is not disturbed by it for good: it holds applications back again if it has to.
    """
    app: App = ctx.obj
    groups = throttle.release(app.sysfs())
    click.echo(f"let go: {', '.join(groups)}" if groups else "nobody was held back")
