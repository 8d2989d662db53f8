"""`elastio free`: removes the I/O limits of a killed agent. Needs no configuration, lock, journal or agent."""

from __future__ import annotations

from pathlib import Path

import click

from elastio.config.neighbours import uuid_of
from elastio.config.paths import NAME, RUNTIME_DIR
from elastio.errors import ElastioError, LockedError
from elastio.host import recompose, throttle
from elastio.host.locks import require_no_agent
from elastio.host.sysfs import Sysfs, wait_for
from elastio_cli.app import App
from elastio_cli.which_device import chosen


@click.command(short_help="Remove the I/O limits that an agent set on applications.")
@click.option("--device", metavar="NAME", help="Device of the agent  [default: that of elastiod.service]")
@click.option("--force", is_flag=True, help="Also while the agent runs: it may hang.")
@click.pass_context
def free(ctx: click.Context, device: str | None, force: bool) -> None:
    """Remove the I/O limits that an agent set on applications, and resume adopted volumes that it left suspended.

    The agent does both itself, and its unit runs this command before each start and after each stop. While the agent
    of the device runs, nothing is done: its limits are in force. Use it by hand, with --force, only if both hang; an
    agent sets its limits again when it needs them. Limits of the agents of other devices stay.
    """
    app: App = ctx.obj
    path = _configuration(app, device or app.wanted)
    if not force:
        _require_no_agent(app, path)
    try:
        for resumed in recompose.mend_all(app.sysfs(), wait_for):
            click.echo(f"/dev/{resumed} was suspended, and is not any more")
    finally:
        groups = throttle.release(Sysfs(app.root, path.stem))
        click.echo(f"I/O limits removed: {', '.join(groups)}" if groups else "there were no I/O limits")


def _require_no_agent(app: App, path: Path) -> None:
    """Raises LockedError while the agent runs. What a configuration does not say is no reason to hold anybody back."""
    try:
        require_no_agent(app.sysfs().path(str(RUNTIME_DIR).lstrip("/")), uuid_of(path))
    except LockedError as error:
        text = f"{error}: its I/O limits are in force and were left; if it hangs, give --force"
        raise LockedError(text, code=error.code) from error


def _configuration(app: App, wanted: str | None) -> Path:
    """The file of the device, also of one whose configuration cannot be used: applications must not wait for it."""
    if wanted is None:
        return app.config_path
    try:
        return chosen(app, wanted).config_path
    except ElastioError:
        if NAME.fullmatch(wanted) is None:
            raise
        return app.config_path.with_stem(wanted)
