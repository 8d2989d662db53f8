"""`elastio pause` and `elastio resume`: disable and enable automatic boosts."""

from __future__ import annotations

import click

from elastio.cli.app import App
from elastio.errors import ElastioError

LOSS = "accept the loss"


@click.command()
@click.pass_obj
def pause(app: App) -> None:
    """Disable boosts until `elastio resume`, and flush and release an attached cache."""
    click.echo(app.client().ask("pause")["text"])


@click.command()
@click.option(
    "--accept-data-loss", is_flag=True, help="Go on although the device may lack data, or older data returns."
)
@click.option("--yes", is_flag=True, help="Accept the loss of data without confirmation.")
@click.pass_obj
def resume(app: App, accept_data_loss: bool, yes: bool) -> None:
    """Enable automatic boosts again, and end a fault whose cause is gone.

    A device that was started by force without its cache, or a cache that missed writes and is back, needs
    --accept-data-loss: check the filesystem before. Only root may use it.
    """
    if accept_data_loss and not yes:
        typed = click.prompt(f"Older data may return, or data may be missing. Type `{LOSS}` to continue", default="")
        if typed != LOSS:
            raise ElastioError("that was not typed: nothing was changed")
    fields = {"accepts_loss": 1} if accept_data_loss else {}
    click.echo(app.client().ask("resume", **fields)["text"])
