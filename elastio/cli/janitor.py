"""`elastio janitor`: volumes of machines that are gone. Runs outside them, with an account's own credentials."""

from __future__ import annotations

import json
import time

import click

from elastio import registry
from elastio.control.exit_codes import Exit
from elastio.errors import ConfigError
from elastio.janitor import SweepResult, sweep
from elastio.units import format_size


def _settings(_ctx: click.Context, _param: click.Parameter, given: tuple[str, ...]) -> dict[str, object]:
    pairs = [text.partition("=") for text in given]
    for name, equals, _ in pairs:
        if not name or not equals:
            raise click.BadParameter("write KEY=VALUE")
    return {name: value for name, _, value in pairs}


@click.command()
@click.option("--provider", "name", required=True, metavar="NAME", help="Whose volumes, for example aws.")
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", callback=_settings, help="A setting of the provider."
)
@click.option("--dry-run", is_flag=True, help="Delete nothing, say what would be deleted.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per volume.")
@click.pass_context
def janitor(ctx: click.Context, name: str, settings: dict[str, object], dry_run: bool, as_json: bool) -> None:
    """Delete expired volumes of agents whose machines are gone.

    Only volumes that are tagged clean, past their expiry and attached to nothing. Everything else is kept, and named
    with the reason: what is not tagged clean may hold the only copy of somebody's data. Code 1: one failed.
    """
    if not name.isidentifier():
        raise ConfigError(f"{name!r} is no name of a provider")
    failed = False
    for result in sweep(registry.open_fleet(name, settings), time.time(), dry_run=dry_run):
        failed |= result.outcome == "failed"
        click.echo(json.dumps(_row(result)) if as_json else _line(result))
    ctx.exit(Exit.FAILED if failed else Exit.OK)


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
