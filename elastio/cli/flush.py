"""`elastio flush`: writes the dirty data back and releases the cache volume."""

from __future__ import annotations

import sys

import click

from elastio.cli.app import App, describe
from elastio.cli.options import wait_options
from elastio.control.status import Status
from elastio.errors import ElastioError
from elastio.units import format_size

WAIT_S = 3600.0
STEPS = 1000


@click.command()
@wait_options(WAIT_S)
@click.pass_obj
def flush(app: App, wait_s: float | None) -> None:
    """Flush the cache and delete its volume, even during a load."""
    click.echo(app.client().ask("flush")["text"])
    if wait_s is not None:
        wait_for_release(app, wait_s)
        click.echo("no cache is attached and its volume is deleted")


def wait_for_release(app: App, wait_s: float) -> None:
    """Return when the volume is deleted, which is after all data is on the backing device."""
    most = 0
    with click.progressbar(length=STEPS, label="flushing", item_show_func=_left, file=sys.stderr) as bar:
        for seen in app.watch(wait_s, _unfinished, shows_progress=False):
            if seen.phase == "idle":
                bar.update(STEPS - bar.pos, 0)
                return
            if seen.phase == "faulted":
                raise ElastioError(describe(seen))
            left = dirty_bytes(seen)
            most = max(most, left)
            done = STEPS if most == 0 else STEPS - STEPS * left // most
            bar.update(max(0, done - bar.pos), left)


def _left(dirty: int | None) -> str:
    return "" if dirty is None else f"{format_size(dirty)} dirty"


def dirty_bytes(seen: Status) -> int:
    return seen.backing.dirty_bytes if seen.backing else 0


def _unfinished(seen: Status) -> str:
    return f"{format_size(dirty_bytes(seen))} are still dirty" if dirty_bytes(seen) else "the volume is not released"
