"""`elastio janitor`: deletes volumes of machines that no longer exist. Runs outside them, with its own credentials."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import click

from elastio import registry
from elastio.control.exit_codes import Exit
from elastio.errors import ConfigError
from elastio.janitor import SweepResult, sweep
from elastio.units import format_size
from elastio_cli.terminal import busy


def _settings(_ctx: click.Context, _param: click.Parameter, given: tuple[str, ...]) -> dict[str, object]:
    pairs = [text.partition("=") for text in given]
    for name, equals, _ in pairs:
        if not name or not equals:
            raise click.BadParameter("give it as KEY=VALUE")
    return {name: value for name, _, value in pairs}


@click.command()
@click.option("--provider", "name", required=True, metavar="NAME", help="Name of the cloud provider, for example aws.")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    callback=_settings,
    help="Setting of the provider; repeatable.",
)
@click.option("--dry-run", is_flag=True, help="Print what would be deleted, and delete nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per volume.")
@click.pass_context
def janitor(ctx: click.Context, name: str, settings: dict[str, object], dry_run: bool, as_json: bool) -> None:
    """Delete expired cache volumes of machines that no longer exist.

    A volume is deleted if it is tagged clean, past its expiry and not attached. Every other volume is kept and listed
    with the reason: without the tag it may hold the only copy of data. The exit code is 1 if a deletion failed.
    """
    if not name.isidentifier():
        raise ConfigError(f"{name!r} is not the name of a provider", code="provider.name")
    failed = False
    results = sweep(registry.open_fleet(name, settings), time.time(), dry_run=dry_run)
    while (result := _next(results)) is not None:
        failed |= result.outcome == "failed"
        click.echo(json.dumps(_row(result)) if as_json else _line(result))
    ctx.exit(Exit.FAILED if failed else Exit.OK)


def _next(results: Iterator[SweepResult]) -> SweepResult | None:
    with busy("asking the cloud"):
        return next(results, None)


def _line(result: SweepResult) -> str:
    volume = result.volume
    return f"{volume.id}  {format_size(volume.size_bytes)}  {result.outcome}: {result.reason}  [{volume.owner}]"


def _row(result: SweepResult) -> dict[str, object]:
    volume = result.volume
    return {
        "id": volume.id,
        "outcome": result.outcome,
        "reason": result.reason,
        "size_bytes": volume.size_bytes,
        "state": volume.state,
        "tag": volume.tag.value,
        "owner": volume.owner,
        "backing_uuid": volume.backing_uuid,
        "expires_wall": volume.expires_wall,
    }
