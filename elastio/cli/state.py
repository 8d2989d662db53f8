"""`elastio state`: says whether the state directory is still needed. Run by the package before it is removed."""

from __future__ import annotations

import os
from pathlib import Path

import click

from elastio.cli.app import App
from elastio.cli.ledger import state_dir
from elastio.cli.which_device import all_devices
from elastio.config.paths import DEVICES, common_dir
from elastio.control.exit_codes import Exit, sentence
from elastio.errors import ConfigError
from elastio.setup.state_directory import why_needed


@click.command()
@click.pass_context
def state(ctx: click.Context) -> None:
    """Show whether the agent and its state directory may be removed from this machine.

    They may not while a cycle is open: the exit code is then 5. Nor while a configuration is there and cannot be used,
    because it may name the directory: the exit code is then 3. Needs no running agent, and changes nothing. Without
    --device this is about all devices, also about those whose configuration is gone.
    """
    app: App = ctx.obj
    refused, folders, unknown = False, *_folders(app)
    for error in unknown:
        click.echo(f"{sentence(error)}; correct it: where this agent keeps its state is not known until then", err=True)
    for folder in folders:
        needed = why_needed(folder)
        refused |= needed is not None
        if needed is None:
            click.echo(f"no cycle is open: {folder} is not needed any more")
            continue
        remedy = "run `elastio pause` and `elastio flush --wait`"
        click.echo(f"elastio: {needed}; {remedy}, and keep {folder} until then", err=True)
    if refused or unknown:
        ctx.exit(Exit.CONFIG if unknown else Exit.REFUSED)


def _folders(app: App) -> tuple[tuple[Path, ...], tuple[ConfigError, ...]]:
    """The state directories of the devices that are meant; of all devices, also those without a configuration.

    Then the errors of configurations that are there and do not say where theirs is.
    """
    configured, unknown = [], []
    for each in all_devices(app):
        try:
            configured.append(_state_dir(each))
        except ConfigError as error:
            unknown.append(error)
            configured.append(state_dir(each))  # what can be found in spite of the error is shown as well
    if app.directory is None or app.wanted is not None:
        return tuple(configured), tuple(unknown)
    common = dict.fromkeys(common_dir(folder) for folder in configured)
    left = (path for folder in common for path in sorted((folder / DEVICES).glob("*")))
    return tuple(dict.fromkeys((*common, *configured, *left))), tuple(unknown)


def _state_dir(app: App) -> Path:
    """The default one only where there is no configuration: neither the file nor drop-ins. Raises ConfigError."""
    path = app.config_path
    is_there = os.path.lexists(path) or any(path.with_name(f"{path.name}.d").glob("*.toml"))
    return app.config().agent.state_dir if is_there else state_dir(app)
