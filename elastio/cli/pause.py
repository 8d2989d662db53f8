"""`elastio pause` and `elastio resume`: disable and enable automatic boosts."""

from __future__ import annotations

import click

from elastio.cli.app import App


@click.command()
@click.pass_obj
def pause(app: App) -> None:
    """Disable boosts until `elastio resume`, and flush and release an attached cache."""
    click.echo(app.client().ask("pause")["text"])


@click.command()
@click.pass_obj
def resume(app: App) -> None:
    """Enable automatic boosts again."""
    click.echo(app.client().ask("resume")["text"])
