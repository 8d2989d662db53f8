"""`elastio boost`: buys and attaches a cache, whatever the load."""

from __future__ import annotations

import click

from elastio.cli.app import App, describe
from elastio.cli.waiting import wait_options
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
@wait_options(WAIT_S)
@click.pass_obj
def boost(app: App, size_gib: float | None, wait_s: float | None) -> None:
    """Buy a cache volume and attach it now, within the spending caps.

    The exit code is 5 if the agent refuses, for example because a cap is reached.
    """
    fields = {} if size_gib is None else {"size_bytes": int(size_gib * GIB)}
    click.echo(app.client().ask("boost", **fields)["text"])
    if wait_s is not None:
        _wait(app, wait_s)


def _wait(app: App, wait_s: float) -> None:
    for seen in app.watch(wait_s, lambda _: "the cache is not attached"):
        if seen.phase == "boosting":
            took = seen.cycle.boosted_after_s if seen.cycle else None
            click.echo("the cache is attached" + ("" if took is None else f" (after {format_duration(took)})"))
            return
        if seen.phase != "attaching":
            reasons = app.client().ask("why", count=1).get("decisions") or [{}]
            raise ElastioError(f"the boost failed: {reasons[-1].get('reason') or describe(seen)}")
