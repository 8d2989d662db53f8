"""`elastio expect`: announces a burst, so that its cache is attached before it begins."""

from __future__ import annotations

import click

from elastio.cli import quantities
from elastio.cli.app import App
from elastio.control.protocol import MAX_HOLD_S


@click.command()
@click.option(
    "--in",
    "seconds",
    metavar="TIME",
    callback=quantities.duration,
    help="Time until the burst begins, such as 90s, 5m or 2h.",
)
@click.option(
    "--size",
    "size_bytes",
    metavar="SIZE",
    callback=quantities.size,
    help="Amount that it writes, such as 4G  [default: as learned]",
)
@click.option("--cancel", is_flag=True, help="Forget all announced bursts.")
@click.pass_obj
def expect(app: App, seconds: float | None, size_bytes: int | None, cancel: bool) -> None:
    """Announce a burst, for a scheduler, a timer or an application that knows when it will write.

    The agent buys the cache so early that it is attached by then, within the spending caps. If no load follows, it is
    flushed and deleted again.
    """
    if cancel == (seconds is not None) or (cancel and size_bytes is not None):
        raise click.UsageError("give either --in, with or without --size, or --cancel")
    if seconds is not None and not 1 <= seconds <= MAX_HOLD_S:
        raise click.BadParameter("a burst is announced from 1 s to 7 days ahead", param_hint="--in")
    size = {} if size_bytes is None else {"size_bytes": size_bytes}
    fields = {} if seconds is None else {"seconds": round(seconds), **size}
    click.echo(app.client().ask("expect", **fields)["text"])
