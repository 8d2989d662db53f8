"""`elastio config`: checks the configuration file, and shows where each setting comes from."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import groupby
from operator import attrgetter
from pathlib import Path

import click

from elastio import registry
from elastio.agent.market import policy_of, require_prices, unkept_cap
from elastio.config.files import drop_ins
from elastio.config.neighbours import require_only_one
from elastio.config.schema import load
from elastio.config.text import HIDDEN, Setting, settings
from elastio_cli.app import App


@click.group(name="config")
def config() -> None:
    """Check or show the configuration."""


@config.command(short_help="Check a configuration with the rules of the agent.")
@click.argument("file", required=False, type=click.Path(path_type=Path, dir_okay=False))
@click.pass_obj
def check(app: App, file: Path | None) -> None:
    """Check FILE and its drop-ins with the rules of the agent  [default: the file of --config].

    Changes nothing. The exit code is 3 if the configuration is invalid. What is valid and surely not meant is said on
    stderr.
    """
    path = file or app.config_path
    found = load(path)
    if file is None:  # a file that is given may be about to replace one beside it
        require_only_one(path, found.device.backing_uuid)
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
    for doubt in filter(None, (*found.doubts, unkept_cap(found))):
        click.echo(f"elastio: {doubt}", err=True)


@config.command(short_help="Show every setting, its value, and where it is from.")
@click.option("--json", "as_json", is_flag=True, help="Print the settings as a JSON list.")
@click.pass_obj
def show(app: App, as_json: bool) -> None:
    """Show every setting, its value, and whether it is a default, from the file or from a drop-in.

    These are the values that the agent has after a restart, or after `systemctl reload elastiod` where a reload can
    change them. Secrets in settings of the provider are not shown.
    """
    found = settings(app.config_path)
    if as_json:
        click.echo(json.dumps([_row(each) for each in found], indent=2))
        return
    for section, group in groupby(found, attrgetter("section")):
        click.echo(f"[{section}]")
        for line in _lines(list(group)):
            click.echo(line)


def _row(setting: Setting) -> dict[str, object]:
    value = setting.value
    return {
        "key": f"{setting.section}.{setting.key}",
        "value": str(value) if isinstance(value, Path) else value,
        "source": setting.source,
    }


def _lines(settings: list[Setting]) -> Iterator[str]:
    """TOML, with the sources as comments below each other."""
    shown = [_assignment(each) for each in settings]
    width = max(len(text) for text in shown)
    for text, each in zip(shown, settings, strict=True):
        yield f"{text:<{width}}  # {each.source}"


def _assignment(setting: Setting) -> str:
    if setting.value is None:
        return f"# {setting.key} ="
    if setting.value == HIDDEN:
        return f"# {setting.key} = {HIDDEN}"
    return f"{setting.key} = {setting.text}"
