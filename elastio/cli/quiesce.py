"""`elastio quiesce` and `elastio unquiesce`: a backing volume that is whole by itself, for a snapshot."""

from __future__ import annotations

import click

from elastio.cli.app import App, standing
from elastio.errors import ElastioError
from elastio.exits import TimedOutError
from elastio.protocol import MAX_HOLD_S
from elastio.units import format_duration, format_size

WAIT_S = 3600.0
HOLD_S = 600.0
LEAST_S = 1.0


@click.command()
@click.option(
    "--timeout",
    "wait_s",
    metavar="SECONDS",
    type=click.FloatRange(LEAST_S, MAX_HOLD_S / 2),
    default=WAIT_S,
    show_default=True,
    help="How long to wait for the flush.",
)
@click.option(
    "--hold",
    "hold_s",
    metavar="SECONDS",
    type=click.FloatRange(LEAST_S, MAX_HOLD_S / 2),
    default=HOLD_S,
    show_default=True,
    help="How long it stays quiesced at least, unless `elastio unquiesce` ends it.",
)
@click.pass_obj
def quiesce(app: App, wait_s: float, hold_s: float) -> None:
    """Flush the cache, release it, and let no boost begin: a snapshot of the backing volume is then whole.

    Ends with code 0 once that is so, and it stays so for --hold seconds at least. Any other code: nothing is held.
    """
    app.client().ask("quiesce", seconds=int(wait_s + hold_s))
    try:
        _wait(app, wait_s)
    except ElastioError:
        app.client().ask("unquiesce")
        raise
    click.echo(f"the backing volume is whole by itself, for {format_duration(hold_s)} at least")


def _wait(app: App, wait_s: float) -> None:
    for seen in app.watch(wait_s, lambda s: f"{format_size(s.backing.dirty_bytes if s.backing else 0)} are dirty"):
        if seen.phase == "faulted":
            raise ElastioError(standing(seen))
        if seen.hold is None:
            raise TimedOutError("the hold was ended before the cache was flushed")
        if seen.hold.safe:
            return


@click.command()
@click.pass_obj
def unquiesce(app: App) -> None:
    """Let boosts begin again. Code 5: nothing was held any more, and a snapshot made meanwhile may be torn."""
    click.echo(app.client().ask("unquiesce")["text"])
