"""`elastio watch`: a live view of what the agent does, over the control socket."""

from __future__ import annotations

import sys
from typing import TextIO

import click

from elastio.accounting.database import local_zone
from elastio.control.client import ControlClient
from elastio.control.protocol import MAX_DECISIONS
from elastio.control.status import Status
from elastio.errors import ControlError
from elastio_cli import terminal
from elastio_cli.app import App
from elastio_cli.options import Finite
from elastio_cli.watch_view import Format, Watched, begun_wall, frame, log_line, phase_of

# An agent that answers at all does so at once; Ctrl-C and the next try must not wait for one that hangs.
ANSWER_S = 3.0


@click.command(short_help="Show what the agent does, again and again.")
@click.option(
    "--interval",
    "interval_s",
    metavar="SECONDS",
    type=Finite(min=0.2, max=3600),
    default=2.0,
    show_default=True,
    help="Time between two questions to the agent.",
)
@click.option("--devices", "with_device", is_flag=True, help="Show also the devices: backing, cache, volumes, machine.")
@click.option("--once", is_flag=True, help="Show it once and end.")
@click.pass_obj
def watch(app: App, interval_s: float, with_device: bool, once: bool) -> None:
    """Show what the agent does, again and again: load, cache, dirty data, flush, cost, and what it waits for.

    On a terminal it draws in place, as large as the terminal. Otherwise it prints a line each time. Ctrl-C ends it. An
    agent that stops answering is asked again each time; one that does not answer at first ends it with exit code 4.
    """
    asker = Asker(app, ControlClient(app.client().path, ANSWER_S))
    seen = asker.first()
    out = sys.stdout
    is_live = terminal.is_live(out)
    form = Format(tz=local_zone(), interval_s=interval_s, with_device=with_device, symbols=terminal.symbols_of(out))
    try:
        if once:
            _print_once(seen, app, form, out, is_live)
        elif is_live:
            _draw(asker, seen, app, form, out)
        else:
            _log(asker, seen, app, interval_s)
    except KeyboardInterrupt:
        return


class Asker:
    """Asks the agent for its status, and where the phase is another one also when it began."""

    def __init__(self, app: App, client: ControlClient) -> None:
        self._app, self._client = app, client

    def first(self) -> Watched:
        """After the first answer. Raises ControlError if there is none."""
        status = self._client.status()
        return Watched.first(status, self._app.clock.now(), self._begun(status))

    def next(self, seen: Watched) -> Watched:
        """With one more answer, or with the reason why there is none. Each of two questions takes ANSWER_S at most."""
        try:
            status = self._client.status()
            begun = self._begun(status) if phase_of(status) != phase_of(seen.status) else None
        except ControlError as error:
            return seen.silent(str(error), self._app.clock.now())
        return seen.answered(status, self._app.clock.now(), begun)

    def _begun(self, status: Status) -> float | None:
        decisions = self._client.ask("why", count=MAX_DECISIONS).get("decisions") or []
        return begun_wall(decisions, phase_of(status))


def _print_once(seen: Watched, app: App, form: Format, out: TextIO, is_live: bool) -> None:
    if not is_live:
        click.echo(log_line(seen))
        return
    form = _sized(form, terminal.size(out).columns, 1000)
    lines = frame(seen, app.clock.now(), form)
    click.echo("\n".join(line.text for line in lines[:-1]))


def _draw(asker: Asker, seen: Watched, app: App, form: Format, out: TextIO) -> None:
    with terminal.screen(out) as screen:
        next_s = app.clock.now() + form.interval_s
        while True:
            size = screen.size
            screen.draw(frame(seen, app.clock.now(), _sized(form, size.columns, size.lines)), size.columns)
            screen.wait(max(0.0, next_s - app.clock.now()))
            if app.clock.now() >= next_s:
                seen = asker.next(seen)
                next_s = app.clock.now() + form.interval_s


def _sized(form: Format, columns: int, rows: int) -> Format:
    return Format(columns, rows, form.tz, form.interval_s, form.symbols, form.with_device)


def _log(asker: Asker, seen: Watched, app: App, interval_s: float) -> None:
    while True:
        click.echo(log_line(seen))
        app.sleep(interval_s)
        seen = asker.next(seen)
