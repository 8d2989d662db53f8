"""`elastio quiesce` and `elastio unquiesce`: a backing volume that is whole by itself, for a snapshot."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import click

from elastio.cli.app import App, standing
from elastio.control.exit_codes import TimedOutError
from elastio.control.protocol import MAX_HOLD_S, RefusedByAgentError
from elastio.core.state import InhibitionReason
from elastio.errors import ElastioError
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
    "trigger_delay_s",
    metavar="SECONDS",
    type=click.FloatRange(LEAST_S, MAX_HOLD_S / 2),
    default=HOLD_S,
    show_default=True,
    help="How long it stays quiesced at least, unless `elastio unquiesce` ends it.",
)
@click.pass_obj
def quiesce(app: App, wait_s: float, trigger_delay_s: float) -> None:
    """Flush the cache, release it, and let no boost begin: a snapshot of the backing volume is then whole.

    Ends with code 0 once that is so, and it stays so for --hold seconds at least. Any other code: it is not so, and no
    hold of this command is left; one that was there before stays, and may have become longer.
    """
    client = app.client()
    hold = client.status().hold
    is_first = hold is None or hold.reason != InhibitionReason.SNAPSHOT
    with _ended_by_signals():
        try:
            client.ask("quiesce", seconds=int(wait_s + trigger_delay_s))
            _wait(app, wait_s)
        except RefusedByAgentError:
            raise
        except BaseException:  # Ctrl-C and a signal too: whoever is gone can end no hold
            if is_first:
                _end_hold(app)
            raise
    click.echo(f"the backing volume is whole by itself, for {format_duration(trigger_delay_s)} at least")


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP end the command as an exception, with the code that a shell shows for them."""

    def end(number: int, _frame: FrameType | None) -> None:
        sys.exit(128 + number)

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end_hold(app: App) -> None:
    """The first error is the one that counts: what fails here is only told."""
    try:
        app.client().ask("unquiesce")
    except RefusedByAgentError as refusal:
        click.echo(f"elastio: {refusal}", err=True)
    except ElastioError as error:
        click.echo(f"elastio: the hold could not be ended, and ends when its time is over: {error}", err=True)


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
