"""`elastio expect`: announces a burst, so that its cache is attached before it begins."""

from __future__ import annotations

import click

from elastio.cli.app import App
from elastio.cli.numbers import duration, size
from elastio.control.protocol import MAX_HOLD_S


@click.command()
@click.option(
    "--in",
    "seconds",
    metavar="TIME",
    callback=duration(1, MAX_HOLD_S),
    help="Time until the burst begins, such as 90s, 5m or 2h.",
)
@click.option(
    "--size",
    "size_bytes",
    metavar="SIZE",
    callback=size,
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
    fields = {"seconds": None if seconds is None else round(seconds), "size_bytes": size_bytes}
    click.echo(
        app.client().ask("expect", **{name: value for name, value in fields.items() if value is not None})["text"]
    )
