"""`elastio state`: says whether the state directory is still needed. Run by the package before it is removed."""

from __future__ import annotations

from pathlib import Path

import click

from elastio.cli.app import App
from elastio.cli.ledger import state_dir
from elastio.cli.which_device import all_devices
from elastio.config.paths import DEVICES, common_dir
from elastio.control.exit_codes import Exit
from elastio.setup.state_directory import why_needed


@click.command()
@click.pass_context
def state(ctx: click.Context) -> None:
    """Show whether the agent and its state directory may be removed from this machine.

    They may not while a cycle is open: the exit code is then 5. Needs no running agent, and changes nothing. Without
    --device this is about all devices, also about those whose configuration is gone.
    """
    app: App = ctx.obj
    refused = False
    for folder in _folders(app):
        needed = why_needed(folder)
        refused |= needed is not None
        if needed is None:
            click.echo(f"no cycle is open: {folder} is not needed any more")
            continue
        remedy = "run `elastio pause` and `elastio flush --wait`"
        click.echo(f"elastio: {needed}; {remedy}, and keep {folder} until then", err=True)
    if refused:
        ctx.exit(Exit.REFUSED)


def _folders(app: App) -> tuple[Path, ...]:
    """The state directories of the devices that are meant; of all devices, also those without a configuration."""
    configured = [state_dir(each) for each in all_devices(app)]
    if app.directory is None or app.wanted is not None:
        return tuple(configured)
    common = dict.fromkeys(common_dir(folder) for folder in configured)
    left = (path for folder in common for path in sorted((folder / DEVICES).glob("*")))
    return tuple(dict.fromkeys((*common, *configured, *left)))
