"""`elastio config`: checks the configuration file."""

from __future__ import annotations

from pathlib import Path

import click

from elastio import registry
from elastio.agent.device_credits import policy_of
from elastio.agent.market import require_prices
from elastio.cli.app import App
from elastio.config.files import drop_ins
from elastio.config.schema import load


@click.group(name="config")
def config() -> None:
    """Check the configuration file."""


@config.command()
@click.argument("file", required=False, type=click.Path(path_type=Path, dir_okay=False))
@click.pass_obj
def check(app: App, file: Path | None) -> None:
    """Check FILE and its drop-ins with the rules of the agent  [default: the file of --config].

    Changes nothing. The exit code is 3 if the configuration is invalid.
    """
    path = file or app.config_path
    found = load(path)
    # Opening the provider checks its settings and does not use the cloud.
    registry.open_provider(found.provider.name, found.provider.settings, found.device.backing_uuid)
    policy_of(found)  # the provider must know the credits of device.volume_type
    require_prices(found)
    extra = len(drop_ins(path))
    click.echo(f"{path} is valid" + (f" with {extra} drop-in{'s' if extra > 1 else ''}" if extra else ""))
    click.echo(f"  backing device {found.device.backing_uuid}, {found.device.bandwidth_mb_s:g} MB/s")
    click.echo(
        f"  caches of {found.cache.min_size_gib:g} to {found.cache.max_size_gib:g} GiB at "
        f"{found.cache.bandwidth_mb_s:g} MB/s from {found.provider.name}, the first of "
        f"{found.cache.initial_size_gib:g} GiB"
    )
