"""`elastio boost`: buys and attaches a cache, whatever the load."""

from __future__ import annotations

import json
import time

import click

from elastio.cli.app import App, describe
from elastio.cli.options import wait_options
from elastio.cli.terminal import busy
from elastio.control.protocol import RefusedByAgentError
from elastio.errors import ElastioError
from elastio.units import GIB, format_duration

# Longer than the default of policy.attach_timeout_s, 180 s.
WAIT_S = 300.0


@click.command()
@click.option(
    "--size",
    "size_gib",
    metavar="GIB",
    type=click.FloatRange(min=0, min_open=True, max=65536),
    help="Size of the cache  [default: the learned size]",
)
@click.option("--dry-run", is_flag=True, help="Show what it would buy and cost; buy nothing.")
@click.option("--drill", is_flag=True, help="Prove that boosts work: buy the smallest cache, use, flush and delete it.")
@click.option("--json", "as_json", is_flag=True, help="Print the result of --dry-run or --drill as one JSON document.")
@wait_options(WAIT_S)
@click.pass_obj
def boost(app: App, size_gib: float | None, dry_run: bool, drill: bool, as_json: bool, wait_s: float | None) -> None:
    """Buy a cache volume and attach it now, within the spending caps.

    The exit code is 5 if the agent refuses, for example because a cap is reached.
    """
    size_bytes = None if size_gib is None else int(size_gib * GIB)
    if drill and (dry_run or size_gib is not None or wait_s is not None):
        raise click.UsageError("--drill takes no other option than --json")
    if dry_run and wait_s is not None:
        raise click.UsageError("give --dry-run or --wait, not both")
    if as_json and not (dry_run or drill):
        raise click.UsageError("--json needs --dry-run or --drill")
    if dry_run:
        _show_quote(app, size_bytes, as_json)
        return
    if drill:
        from elastio.cli.drill import run  # noqa: PLC0415  a boost needs no provider

        run(app, as_json=as_json)
        return
    fields = {} if size_bytes is None else {"size_bytes": size_bytes}
    click.echo(app.client().ask("boost", **fields)["text"])
    if wait_s is not None:
        _wait(app, wait_s)


def _show_quote(app: App, size_bytes: int | None, as_json: bool) -> None:
    from elastio.cli import dry_run  # noqa: PLC0415  a boost needs no provider

    with busy("asking the provider for its price"):
        found = dry_run.ask(app, size_bytes, time.time())
    if as_json:
        click.echo(json.dumps(dry_run.to_dict(found), indent=2))
    else:
        for name, text in dry_run.rows(found):
            click.echo(f"{name:<14}{text}")
        click.echo("nothing was bought")
    if found.refused:
        raise RefusedByAgentError(f"the boost would be refused: {found.refused}")


def _wait(app: App, wait_s: float) -> None:
    for seen in app.watch(wait_s, lambda _: "the cache is not attached"):
        if seen.phase == "boosting":
            took = seen.cycle.boosted_after_s if seen.cycle else None
            click.echo("the cache is attached" + ("" if took is None else f" (after {format_duration(took)})"))
            return
        if seen.phase != "attaching":
            reasons = app.client().ask("why", count=1).get("decisions") or [{}]
            raise ElastioError(f"the boost failed: {reasons[-1].get('reason') or describe(seen)}")
