"""`elastio expect`: announces a burst, so that its cache is attached before it begins."""

from __future__ import annotations

import click

from elastio.cli.app import App
from elastio.cli.options import duration, size
from elastio.control.protocol import MAX_HOLD_S
from elastio.host.systemd import NAME, next_elapse


def _timer(_context: click.Context, _option: click.Parameter, value: str | None) -> str | None:
    if value is not None and not NAME.fullmatch(value):
        raise click.BadParameter(f"{value} is not the name of a timer, such as backup.timer")
    return value


@click.command()
@click.option(
    "--in",
    "seconds",
    metavar="TIME",
    callback=duration(1, MAX_HOLD_S),
    help="Time until the burst begins, such as 90s, 5m or 2h.",
)
@click.option("--timer", metavar="UNIT", callback=_timer, help="The burst begins when this systemd timer elapses.")
@click.option(
    "--size",
    "size_bytes",
    metavar="SIZE",
    callback=size,
    help="Amount that it writes, such as 4G  [default: as learned]",
)
@click.option("--cancel", is_flag=True, help="Forget all announced bursts, and release a cache that waits for one.")
@click.pass_obj
def expect(app: App, seconds: float | None, timer: str | None, size_bytes: int | None, cancel: bool) -> None:
    """Announce a burst, for a scheduler, a timer or an application that knows when it will write.

    The agent buys the cache so early that it is attached by then, within the spending caps. If no load follows, it is
    flushed and deleted again. An announcement of a burst that is announced already replaces it.
    """
    if [seconds is not None, timer is not None, cancel].count(True) != 1 or (cancel and size_bytes is not None):
        raise click.UsageError("give either --in or --timer, with or without --size, or --cancel")
    if timer is not None:
        seconds = _until(app, timer)
        if seconds is None:
            return
    fields = {"seconds": None if seconds is None else round(seconds), "size_bytes": size_bytes}
    click.echo(
        app.client().ask("expect", **{name: value for name, value in fields.items() if value is not None})["text"]
    )


def _until(app: App, timer: str) -> float | None:
    """Seconds until the timer elapses; None, and a sentence, if that cannot be announced now."""
    at = next_elapse(timer, app.run)
    if at is None:
        click.echo(f"{timer} waits for nothing now: its service runs, or it is not started")
        return None
    seconds = at - app.clock.wall()
    if seconds < 1:
        click.echo(f"{timer} elapses now")
        return None
    if seconds > MAX_HOLD_S:
        click.echo(f"{timer} elapses in more than 7 days: too early to announce")
        return None
    return seconds
